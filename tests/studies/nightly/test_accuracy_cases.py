# SPDX-License-Identifier: Apache-2.0
"""Simulated cases of every scenario and family, and histories of one machine."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from bench.accuracy.families import FAMILIES, full_name
from bench.accuracy.history import make_history
from bench.accuracy.outcomes import HISTORY
from bench.accuracy.plans import SCENARIOS
from bench.accuracy.recording import KINDS, Case, Recording
from bench.accuracy.scenarios import make_case

pytestmark = pytest.mark.beside
NAMES = [*SCENARIOS, *(full_name(family, "short_bursts") for family in FAMILIES)]


def every_array(value: Any) -> list[bytes]:
    """The bytes of everything in a case, in order."""
    if isinstance(value, np.ndarray):
        return [value.tobytes()]
    if is_dataclass(value):
        return [b for field in fields(value) for b in every_array(getattr(value, field.name))]
    if isinstance(value, dict):
        return [b for item in value.items() for b in every_array(item)]
    if isinstance(value, tuple | list):
        return [b for item in value for b in every_array(item)]
    return [repr(value).encode()]


def check_recording(recording: Recording) -> None:
    """Checks that segments are in order, inside the run, on existing CPUs, and do not overlap."""
    segments = recording.segments
    assert np.all(np.diff(segments.t0_ns) >= 0)
    assert segments.t0_ns[0] >= recording.begin_ns
    assert segments.t1_ns.max() <= recording.end_ns
    assert np.all(segments.t1_ns > segments.t0_ns)
    assert np.all(recording.machine.slots(segments.cpu) >= 0)
    assert {group.kind for group in recording.groups} <= set(KINDS)
    order = np.lexsort((segments.t0_ns, segments.cpu))
    same = np.diff(segments.cpu[order].astype(int)) == 0
    assert np.all((segments.t0_ns[order][1:] >= segments.t1_ns[order][:-1])[same])


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: make_case(name, 1) for name in NAMES}


@pytest.mark.parametrize("name", ["losses", NAMES[-1]])
def test_a_seed_decides_every_byte(cases: dict[str, Case], name: str) -> None:
    assert every_array(cases[name]) == every_array(make_case(name, 1))
    assert every_array(cases[name]) != every_array(make_case(name, 2))


@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_whole(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    recording, truth = case.recording, case.truth
    assert case.calibration is not None
    for one in (recording, case.calibration):
        check_recording(one)
    for domain, total_nj in truth.total_nj.items():
        owned = truth.group_nj[domain].sum() + truth.idle_nj[domain]
        assert owned == pytest.approx(total_nj, rel=1e-9)
        queries = np.array([group.kind == "queries" for group in recording.groups])
        by_query = truth.query_nj[domain].sum()
        assert by_query == pytest.approx(truth.group_nj[domain][queries].sum(), rel=1e-9)
    seen = recording.query >= 0
    asked = truth.query_group[recording.query[seen]]
    np.testing.assert_array_equal(asked, recording.segments.group[seen])


@pytest.fixture(scope="module")
def days() -> list[Case]:
    return make_history("wake_tails", 1, 3)


def test_a_history_is_one_machine_whose_shapes_recur(days: list[Case]) -> None:
    assert [case.number for case in days] == [0, 1, 2]
    assert {(case.scenario, case.family, case.seed) for case in days} == {
        (HISTORY, "wake_tails", 1)
    }
    names = [{g.name for g in case.recording.groups if g.kind == "queries"} for case in days]
    assert any(a & b for a in names for b in names if a is not b)
    for one, other in pairwise(days):
        assert one.recording.end_ns < other.recording.begin_ns
        assert one.recording.series == other.recording.series
        assert one.calibration is other.calibration
    assert every_array(make_history("wake_tails", 1, 2)) == every_array(days[:2])
    with pytest.raises(ValueError, match="at least one"):
        make_history("friendly", 0, 0)
