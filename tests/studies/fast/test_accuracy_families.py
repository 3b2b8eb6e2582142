# SPDX-License-Identifier: Apache-2.0
"""Families of machines: what is the same in all of them, what differs, and histories."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from bench.accuracy import history
from bench.accuracy.families import FAMILIES, full_name, split_name
from bench.accuracy.harness import attribute
from bench.accuracy.history import make_history, remembering, run_history
from bench.accuracy.memory_step import with_memory
from bench.accuracy.outcomes import HISTORY, MEMORY, shapes
from bench.accuracy.recording import Case
from bench.accuracy.scenarios import make_case

from qjoule.model.coefficients import Coefficients
from qjoule.model.ledger import Ledger
from studies.fast.test_accuracy_simulator_cases import check_recording, every_array


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {family: make_case(full_name(family, "short_bursts"), 2) for family in FAMILIES}


def test_names() -> None:
    assert split_name("short_bursts") == ("friendly", "short_bursts")
    assert split_name("unseen/short_bursts") == ("unseen", "short_bursts")
    assert all(split_name(full_name(f, "x")) == (f, "x") for f in FAMILIES)
    for bad in ("nothing/short_bursts", "friendly/nothing", "nothing"):
        with pytest.raises(KeyError):
            make_case(bad, 0)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_same_seed_same_bytes(cases: dict[str, Case], family: str) -> None:
    name = full_name(family, "short_bursts")
    assert every_array(make_case(name, 2)) == every_array(cases[family])
    assert every_array(make_case(name, 3)) != every_array(cases[family])


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_case_of_a_family_is_whole(cases: dict[str, Case], family: str) -> None:
    case = cases[family]
    assert case.family == family and case.scenario == "short_bursts"
    for recording in (case.recording, case.calibration):
        assert recording is not None
        check_recording(recording)
    for domain, total_nj in case.truth.total_nj.items():
        owned = case.truth.group_nj[domain].sum() + case.truth.idle_nj[domain]
        assert owned == pytest.approx(total_nj, rel=1e-9)


def test_the_same_server_runs_on_the_machines_of_all_families(cases: dict[str, Case]) -> None:
    friendly = cases["friendly"]
    for family, case in cases.items():
        if family == "siblings":
            assert len(case.recording.machine.cpu_ids) == 2 * len(
                np.unique(case.recording.machine.core_slots())
            )
            continue
        np.testing.assert_array_equal(
            case.recording.segments.t0_ns, friendly.recording.segments.t0_ns
        )
        np.testing.assert_array_equal(
            case.recording.segments.group, friendly.recording.segments.group
        )
        if family != "friendly":
            assert case.truth.total_nj["package"] != friendly.truth.total_nj["package"]


def test_tails_and_traffic_cost_more_and_hidden_misses_are_not_counted(
    cases: dict[str, Case],
) -> None:
    friendly = cases["friendly"].truth.group_nj["package"].sum()
    assert cases["wake_tails"].truth.group_nj["package"].sum() > 1.02 * friendly
    assert cases["uncore_follows_work"].truth.group_nj["package"].sum() > 1.005 * friendly
    seen, hidden = (cases[f].recording.segments.counters for f in ("friendly", "all_together"))
    assert seen is not None and hidden is not None
    assert hidden[:, 2].sum() < 0.95 * seen[:, 2].sum()
    np.testing.assert_allclose(hidden[:, 1].sum(), seen[:, 1].sum(), rtol=1e-3)


@pytest.fixture(scope="module")
def days() -> list[Case]:
    return make_history("wake_tails", 1, 4)


def test_a_history_is_one_machine_whose_shapes_recur(days: list[Case]) -> None:
    assert [case.number for case in days] == [0, 1, 2, 3]
    assert {(case.scenario, case.family, case.seed) for case in days} == {
        (HISTORY, "wake_tails", 1)
    }
    names = [{g.name for g in case.recording.groups if g.kind == "queries"} for case in days]
    assert any(a & b for a in names for b in names if a is not b)
    assert len({frozenset(one) for one in names}) > 1
    for one, other in pairwise(days):
        assert one.recording.end_ns < other.recording.begin_ns
        assert one.recording.series == other.recording.series
        assert one.calibration is other.calibration
        check_recording(other.recording)
    rest = [case.truth.idle_w[0, "package"] for case in days]
    assert max(rest) < 1.1 * min(rest)


def test_a_recurring_shape_draws_the_same_power_on_another_day(days: list[Case]) -> None:
    per_ns: dict[str, list[float]] = {}
    for case in days:
        cut = case.recording.segments
        counters = cut.counters
        if counters is None:
            pytest.fail("this machine has counters")
        for row in np.flatnonzero(shapes(case)):
            mine = cut.group == row
            rate = counters[mine, 1].sum() / counters[mine, 0].sum()
            per_ns.setdefault(case.recording.groups[row].name, []).append(float(rate))
    again = [rates for rates in per_ns.values() if len(rates) > 1]
    assert again
    for rates in again:
        assert max(rates) < 1.6 * min(rates)  # siblings slow each other


def test_same_history_same_bytes(days: list[Case]) -> None:
    assert every_array(make_history("wake_tails", 1, 2)) == every_array(days[:2])
    with pytest.raises(ValueError, match="at least one"):
        make_history("friendly", 0, 0)


def test_what_is_learned_is_handed_on(days: list[Case]) -> None:
    handed: list[int | None] = []

    def counting(case: Case, state: int | None) -> tuple[Ledger, int]:
        handed.append(state)
        ledger = attribute(case.recording, Coefficients(), refit=False)
        return ledger, (state or 0) + 1

    assert len(list(remembering(days[:3], counting))) == 3
    assert handed == [None, 1, 2]


def test_histories_are_run_with_and_without_memory(days: list[Case]) -> None:
    plain = run_history(days[:2])
    assert [len(one.outcomes) for one in plain] == [1, 1]
    both = run_history(days[:2], history.forgetful)
    for one in both:
        first, second = one.outcomes
        assert (first.method, second.method) == ("uncalibrated", MEMORY)
        assert first.shape_errors == second.shape_errors


def test_the_products_memory_is_handed_on(days: list[Case]) -> None:
    first, second = run_history(days[:2], with_memory)
    alone, remembered = (second.outcome(name) for name in ("uncalibrated", MEMORY))
    assert alone is not None and remembered is not None
    assert alone.shape_errors != remembered.shape_errors
    assert len(remembered.held) == len(alone.held)
    assert first.outcome(MEMORY) is not None
