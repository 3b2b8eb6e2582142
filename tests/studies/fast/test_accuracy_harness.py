# SPDX-License-Identifier: Apache-2.0
"""The harness distinguishes a perfect method from a broken one, and detects unbalanced ledgers."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bench.accuracy import harness, report
from bench.accuracy.harness import NotConserved, Wanted, run_all, run_case
from bench.accuracy.peers import Peer
from bench.accuracy.peers.observed import Observed
from bench.accuracy.recording import F64, Case
from bench.accuracy.scenarios import make_case

from qjoule.engine.accounts import divided
from qjoule.model.coefficients import Coefficients
from qjoule.model.domain_sums import DomainSums
from qjoule.model.ledger import Ledger

SCENARIO = "equal_time_unequal_power"


@cache
def case(seed: int) -> Case:
    return make_case(SCENARIO, seed)


def cached(_scenario: str, seed: int) -> Case:
    return case(seed)


def test_a_perfect_and_a_broken_method(monkeypatch: pytest.MonkeyPatch) -> None:
    truths = {case(seed).recording.begin_ns: case(seed).truth for seed in (0, 1)}
    turn = iter(truths.values())

    def perfect(_seen: Observed) -> F64:
        return next(turn).group_nj["package"]

    def broken(seen: Observed) -> F64:
        return np.roll(seen.cpu_ns.sum(axis=(0, 1)), 1)

    peers = (Peer("perfect", False, "", perfect), Peer("broken", False, "", broken))
    monkeypatch.setattr(harness, "PEERS", peers)
    wanted = Wanted(("perfect", "broken"))
    results = list(run_all([SCENARIO], [0, 1], wanted, make=cached))
    errors = [{o.method: o.errors["package"] for o in result.outcomes} for result in results]
    assert [one["perfect"] for one in errors] == [0, 0]
    assert all(one["broken"] > 0.5 for one in errors)


def test_qjoule_runs_all_ways_and_twice() -> None:
    wanted = Wanted((*harness.OWN, "cycles"), by_query_below=1, twice_below=1)
    result = run_case(case(0), wanted)
    by_name = {outcome.method: outcome for outcome in result.outcomes}
    assert list(by_name) == [*harness.OWN, "cycles"]
    assert result.repeats is True
    shapes = int(harness.shapes(case(0)).sum())
    for name in harness.OWN:
        one = by_name[name]
        assert one.intervals["package"] == len(one.widths["package"]) == shapes
        assert one.covered["package"] == sum(one.held)
        assert len(one.held) == len(one.shape_errors) == shapes
        assert all(len(halves) == shapes for halves in one.parts.values())
        widest = np.max([*one.parts.values()], axis=0)
        assert np.all(np.array(one.widths["package"]) >= 0.45 * widest)
    assert by_name["qjoule"].shape_errors != by_name["qjoule_time"].shape_errors
    assert by_name["qjoule"].errors["package"] < by_name["cycles"].errors["package"]
    assert by_name["qjoule"].errors["queries"] > 0
    assert "queries" not in by_name["uncalibrated"].errors
    assert not by_name["cycles"].intervals
    json.dumps(asdict(result))


def test_a_method_without_its_inputs_has_no_error() -> None:
    result = run_case(make_case("no_counters", 1), Wanted(("cpu_time", "cycles")))
    assert [set(outcome.errors) for outcome in result.outcomes] == [{"package"}, set()]


def test_without_counters_both_ways_are_the_same() -> None:
    wanted = Wanted(("uncalibrated", "uncalibrated_time"), 0, 0)
    result = run_case(make_case("no_counters", 1), wanted)
    one, two = result.outcomes
    assert not result.counted
    assert replace(one, method="") == replace(two, method="")


def test_other_figures_give_another_digest() -> None:
    wanted = Wanted(("uncalibrated",), 0, 0)
    assert run_case(case(0), wanted).digest == run_case(case(0), wanted).digest
    assert run_case(case(0), wanted).digest != run_case(case(1), wanted).digest


def test_a_missing_nanojoule_is_found() -> None:
    sums = DomainSums(np.array([4, 5]), measured_nj=12, idle_nj=2, residual_nj=1)
    ledger = SimpleNamespace(domains={"package": sums})
    harness.check_conserved(ledger, {"package": 12})  # type: ignore[arg-type]
    sums.energy_nj[0] -= 1
    with pytest.raises(NotConserved, match="11 nJ attributed of 12"):
        harness.check_conserved(ledger, {"package": 12})  # type: ignore[arg-type]


def test_a_ledger_that_invents_energy_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def inflated(*given: Any) -> Ledger:
        ledger = divided(*given)
        ledger.domains["package"].energy_nj[0] += 1
        return ledger

    monkeypatch.setattr("bench.accuracy.harness.divided", inflated)
    with pytest.raises(NotConserved):
        harness.attribute(case(0).recording, Coefficients(), refit=False)


def test_how_much_power_and_time_differ() -> None:
    """No spread where every shape draws the same power."""
    even = case(0)
    segments = even.recording.segments
    spent = np.bincount(segments.group, segments.t1_ns - segments.t0_ns).astype(np.float64)
    truth = replace(even.truth, group_nj={"package": spent * 3.0})
    assert harness.time_error(replace(even, truth=truth)) == pytest.approx(0)
    assert harness.time_error(even) > 0.05


def test_a_summary_of_real_results_renders() -> None:
    results = [run_case(case(seed), Wanted(("no_refit", "cpu_time"), 0, 0)) for seed in (0, 1)]
    lines = report.render(report.Summary(results))
    assert any(line.startswith("cpu_time") for line in lines)
