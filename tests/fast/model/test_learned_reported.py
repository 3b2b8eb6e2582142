# SPDX-License-Identifier: Apache-2.0
"""What the regression over windows learned, from the model to the table and to JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model_cases import accounts
from power_cases import CYCLE_NJ, IDLE_W, INSTRUCTION_NJ, MISS_NJ, SHARED_W, Known, known
from qjoule.model import assemble, latency
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.energy import Cause
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution, TraceInfo
from qjoule.reporters.json_report import to_json
from qjoule.reporters.table import render

INFO = TraceInfo("db1", "kernel", "cpu", "2026-11-21T00:00:00Z", 30.0, True, {})
UNKNOWN = "idle power is unknown"
TIMES = "\N{MULTIPLICATION SIGN}"


def ledger_of(*cases: Known, refit: bool = True, **known_of: Any) -> Ledger:
    """Adds one case after another to a ledger, as if one machine had recorded them."""
    account = accounts(cases[0].series, (0,), Coefficients(**known_of), refit=refit).new()
    at_ns, first = 0, 0
    for case in cases:
        energy = case.batch.energy
        later = replace(energy, boundaries_ns=energy.boundaries_ns + at_ns)
        account.add(replace(case.batch, first=first, energy=later))
        at_ns, first = int(later.boundaries_ns[-1]), first + len(case.batch.idle_ns)
    return account.finish()


def reported(ledger: Ledger) -> Attribution:
    groups = ledger.groups
    labels = [
        GroupLabel("queries", (("fingerprint", f"f{g}"),), f"select {g}") for g in range(groups)
    ]
    about = assemble.Provenance(INFO, "powercap", "measured")
    return assemble.attribution(ledger, labels, latency.CallStats.none(groups), about)


def printed(found: Attribution) -> str:
    return " ".join(render(found, width=200).split())


def document(found: Attribution) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(to_json(found))
    return parsed


def test_power_at_rest_that_was_learned_is_told_with_its_interval() -> None:
    found = reported(ledger_of(known(1, (1.0, 1.0, 1.0))))
    assert UNKNOWN not in printed(found)
    (note,) = [n for n in document(found)["model"]["notes"] if n.startswith("power at rest")]
    assert note in printed(found)
    match = re.search(
        r"learned from windows alone: ([\d.]+) W \[([\d.]+), ([\d.]+)\] of package 0", note
    )
    assert match
    value, low, high = map(float, match.groups())
    assert low < value < high
    assert low <= IDLE_W <= high
    assert document(found)["model"]["coefficients"]["idle_w.package.0"] == pytest.approx(
        value, abs=0.005
    )


def test_beside_a_calibration_the_windows_are_not_alone() -> None:
    idle = {(0, "package"): PowerInterval(IDLE_W, IDLE_W - 1, IDLE_W + 1)}
    ledger = ledger_of(known(2, (1.0, 1.0)), idle_w=idle, a=1.5, calibrated=True)
    assert "learned from calibration and windows" in printed(reported(ledger))


@pytest.mark.parametrize(("windows", "refit"), [(10, True), (300, False)])
def test_power_at_rest_is_unknown_where_nothing_told_it(windows: int, refit: bool) -> None:
    found = reported(ledger_of(known(3, (1.0, 1.0), windows=windows), refit=refit))
    assert UNKNOWN in printed(found)
    assert any(UNKNOWN in note for note in document(found)["model"]["notes"])
    assert "power at rest" not in printed(found)


def test_it_stays_learned_when_the_counter_goes_away() -> None:
    before, after = known(4, (1.0, 1.0)), known(5, (1.0, 1.0))
    missing = np.full_like(after.batch.energy.cause, Cause.MISSING)
    energy = replace(after.batch.energy, cause=missing)
    after = replace(after, batch=replace(after.batch, energy=energy))
    text = printed(reported(ledger_of(before, after)))
    assert UNKNOWN not in text
    assert "power at rest, learned from windows alone" in text


def test_a_statement_that_draws_more_is_named() -> None:
    covariance = np.diag([0.05, 0.02, 2.0, 0.01, 0.01, 0.05, 0.01]) ** 2
    machine: dict[str, Any] = {"a": CYCLE_NJ, "b": INSTRUCTION_NJ, "c": MISS_NJ, "calibrated": True}
    machine["covariance"] = tuple(tuple(map(float, row)) for row in covariance)
    machine |= {"shared_w": {(0, "package"): SHARED_W}, "shared_error_w": {(0, "package"): 0.5}}
    found = reported(ledger_of(known(6, (1.4, 0.7, 1.0, 1.0)), **machine))
    rows = {row["shape"]: row for row in document(found)["rows"]}
    low, high = rows["select 0"]["power_factor_ci95"]
    assert low > 1
    assert low < rows["select 0"]["power_factor"] < high
    assert low < 1.4 < high
    assert re.search(rf"draws 1\.\d+{TIMES} \[.*\] what its weight says: select 0", printed(found))


def test_statements_that_ran_together_are_flagged_and_named() -> None:
    found = reported(ledger_of(known(7, (1.1, 0.92, 1.0, 1.1), together=True)))
    rows = {row["shape"]: row for row in document(found)["rows"]}
    assert "not_separable" in rows["select 0"]["flags"]
    assert "power_factor" not in rows["select 0"]
    assert "not_separable" not in rows["select 2"]["flags"]
    note = "select 0 and select 1 always ran together: their power cannot be told apart"
    assert note in document(found)["model"]["notes"]
    assert printed(found).count("always ran together") == 1
    assert note in printed(found)
    assert re.search(r"flags a not_separable", printed(found))


def test_a_machine_that_changed_is_said_to_have() -> None:
    cases = known(8, (1.0, 1.0, 1.0), windows=3000), known(9, (0.6, 1.5, 0.6))
    found = reported(ledger_of(*cases))
    notes = [n for n in document(found)["model"]["notes"] if n.startswith("package power")]
    assert notes
    assert all(note in printed(found) for note in notes)
    assert all(re.fullmatch(r"package power .* \(\d+ times\)", note) for note in notes)
