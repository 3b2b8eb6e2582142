# SPDX-License-Identifier: Apache-2.0
"""The accuracy bench: its harness, real recordings as workloads, the power fit, the command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies.bench.accuracy import harness
from studies.bench.accuracy.engine_run import NotConserved, attribute
from studies.bench.accuracy.harness import Wanted, run_case
from studies.bench.accuracy.outcomes import shapes as query_shapes
from studies.bench.accuracy.recording import Case
from studies.bench.accuracy.scenarios import make_case

from qjoule.engine.accounts import divided
from qjoule.model.coefficients import Coefficients
from qjoule.model.ledger import Ledger

pytestmark = pytest.mark.beside

SCENARIO = "equal_time_unequal_power"


@cache
def case(seed: int) -> Case:
    return make_case(SCENARIO, seed)


def test_qjoule_runs_all_ways_and_twice() -> None:
    wanted = Wanted((*harness.OWN, "cycles"), by_query_below=1, twice_below=1)
    result = run_case(case(0), wanted)
    by_name = {outcome.method: outcome for outcome in result.outcomes}
    assert list(by_name) == [*harness.OWN, "cycles"]
    assert result.repeats is True
    shapes = int(query_shapes(case(0)).sum())
    for name in harness.OWN:
        outcome = by_name[name]
        assert outcome.intervals["package"] == len(outcome.widths["package"]) == shapes
        assert outcome.covered["package"] == sum(outcome.held)
        assert len(outcome.held) == len(outcome.shape_errors) == shapes
        assert all(len(halves) == shapes for halves in outcome.parts.values())
        widest = np.max([*outcome.parts.values()], axis=0)
        assert np.all(np.array(outcome.widths["package"]) >= 0.45 * widest)
    assert by_name["qjoule"].shape_errors != by_name["qjoule_time"].shape_errors
    assert by_name["qjoule"].errors["package"] < by_name["cycles"].errors["package"]
    assert by_name["qjoule"].errors["queries"] > 0
    assert "queries" not in by_name["uncalibrated"].errors
    assert not by_name["cycles"].intervals
    json.dumps(asdict(result))


def test_a_ledger_that_invents_energy_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def inflated(*arguments: Any) -> Ledger:
        ledger = divided(*arguments)
        ledger.domains["package"].energy_nj[0] += 1
        return ledger

    monkeypatch.setattr("studies.bench.accuracy.engine_run.divided", inflated)
    with pytest.raises(NotConserved):
        attribute(case(0).recording, Coefficients(), refit=False)


BENCH = Path(__file__).parents[2] / "bench" / "bench_accuracy.py"
SMALL = (
    *("--seeds", "1", "--families", "wake_tails", "--scenarios", "mostly_idle"),
    *("--methods", "uncalibrated,cpu_time", "--record", "0", "--jobs", "1", "--history", "1"),
    "--no-real-power",
)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, BENCH, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_a_stored_run_prints_the_same_tables(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    done = bench(*SMALL, "--json", str(path))
    assert done.returncode == 0, done.stderr
    again = bench("--from", str(path))
    assert again.returncode == 0, again.stderr
    assert "  mostly_idle" in again.stdout
    assert "one machine on several days, not calibrated, each day alone" in again.stdout
    assert done.stdout.endswith(again.stdout)
    page = bench("--from", str(path), "--page").stdout
    assert page.startswith("# Accuracy\n")
    assert "| wake tails | 1 |" in page
