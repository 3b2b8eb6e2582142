# SPDX-License-Identifier: Apache-2.0
"""Simulated cases: each scenario's recording, and its truth."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from bench.accuracy.calibration_run import AWAKE_NS, WAKEUPS_PER_S, wakeup_rate
from bench.accuracy.plans import SCENARIOS
from bench.accuracy.recording import KINDS, Case, Group, Recording
from bench.accuracy.scenarios import make_case, simulate_on

from qjoule.model.arrays import Machine, Segments

SECOND = 1_000_000_000


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


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: make_case(name, 1) for name in SCENARIOS}


def test_same_seed_same_bytes(cases: dict[str, Case]) -> None:
    for name in ("losses", "multiplexed", "two_packages"):
        assert every_array(cases[name]) == every_array(make_case(name, 1))
    assert every_array(make_case("losses", 2)) != every_array(cases["losses"])


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_case_is_whole(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    recording, truth = case.recording, case.truth
    for one in (recording, case.calibration):
        assert one is not None
        check_recording(one)
    for domain, total_nj in truth.total_nj.items():
        owned = truth.group_nj[domain].sum() + truth.idle_nj[domain]
        assert owned == pytest.approx(total_nj, rel=1e-9)
        queries = np.array([group.kind == "queries" for group in recording.groups])
        by_query = truth.query_nj[domain].sum()
        assert by_query == pytest.approx(truth.group_nj[domain][queries].sum(), rel=1e-9)
    seconds = (recording.end_ns - recording.begin_ns) * 1e-9
    packages = len(recording.machine.packages)
    assert 5 < truth.total_nj["package"] * 1e-9 / seconds / packages < 500
    seen = recording.query >= 0
    asked = truth.query_group[recording.query[seen]]
    np.testing.assert_array_equal(asked, recording.segments.group[seen])


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


def test_scenarios_differ_in_what_they_are_about(cases: dict[str, Case]) -> None:
    assert cases["no_counters"].recording.segments.counters is None
    assert "dram" not in cases["no_dram"].truth.total_nj
    assert "dram" in cases["losses"].truth.total_nj
    assert len(cases["two_packages"].recording.machine.packages) == 2
    multiplexed = cases["multiplexed"].recording.segments
    assert multiplexed.scaled is not None
    assert multiplexed.valid is not None
    assert 0.1 < multiplexed.scaled.mean() < 0.95
    np.testing.assert_array_equal(multiplexed.valid[:, 0], multiplexed.scaled > 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cross_socket_queries_run_on_both_packages(seed: int) -> None:
    recording = make_case("two_packages", seed).recording
    package = recording.machine.cpu_package[recording.segments.cpu]
    wide = recording.segments.group == 0
    pairs = np.unique(np.stack([recording.query[wide], package[wide]]), axis=1)
    packages = np.unique(pairs[0], return_counts=True)[1]
    assert len(packages) > 20
    assert (packages == 2).mean() > 0.8


def test_frequency_steps_move_the_clock(cases: dict[str, Case]) -> None:
    def frequencies(name: str) -> float:
        segments = cases[name].recording.segments
        assert segments.counters is not None
        cpu_ns = segments.t1_ns - segments.t0_ns
        long = cpu_ns > 100_000
        return float(np.std(segments.counters[long, 0] / cpu_ns[long]))

    assert frequencies("frequency_steps") > 0.25 > frequencies("single_shape")


def test_lost_time_is_told_to_the_nanosecond() -> None:
    with_loss = make_case("losses", 4).recording
    lost_ns = sum(int(one.lost_ns[-1]) for one in with_loss.lost)
    kept_ns = int((with_loss.segments.t1_ns - with_loss.segments.t0_ns).sum())
    assert 0.0005 < lost_ns / (lost_ns + kept_ns) < 0.08
    for one in with_loss.lost:
        assert np.all(np.diff(one.t_ns) > 0)
        assert np.all(np.diff(one.lost_ns) > 0)


def test_calibration_phases_run_what_they_say(cases: dict[str, Case]) -> None:
    case = cases["smt_both_busy"]
    assert case.calibration is not None
    segments = case.calibration.segments
    kernels = [phase for phase in case.calibration_phases if not wakeup_rate(phase.name)]
    assert {phase.name for phase in kernels} == {
        "idle", "integer", "floating_point", "cache", "stream", "chase"
    }  # fmt: skip
    for phase in kernels:
        inside = np.minimum(segments.t1_ns, phase.t1_ns) - np.maximum(segments.t0_ns, phase.t0_ns)
        cpus = np.clip(inside, 0, None).sum() / (phase.t1_ns - phase.t0_ns)
        assert cpus == pytest.approx(phase.threads, abs=0.1)
        busy_cpus = np.bincount(segments.cpu, np.clip(inside, 0, None)) > SECOND // 2
        cores = np.unique(np.flatnonzero(busy_cpus) % (len(case.calibration.machine.cpu_ids) // 2))
        assert len(cores) == (phase.threads // 2 if phase.smt else phase.threads)


def test_wake_ups_of_a_calibration_run(cases: dict[str, Case]) -> None:
    case = cases["two_packages"]
    assert case.calibration is not None
    segments = case.calibration.segments
    load = [group.name for group in case.calibration.groups].index("load")
    named = {phase.name: phase for phase in case.calibration_phases}
    for rate in WAKEUPS_PER_S:
        for name, beside in ((f"wakeups_{rate}", 0), (f"wakeups_{rate}_beside", 1)):
            phase = named[name]
            assert phase.threads == 1 + beside and not phase.smt
            inside = (segments.t0_ns >= phase.t0_ns) & (segments.t1_ns <= phase.t1_ns)
            inside &= segments.group == load
            short = inside & (segments.t1_ns - segments.t0_ns < 2 * AWAKE_NS)
            waking = np.bincount(segments.cpu[short]).argmax()
            mine = inside & (segments.cpu == waking)
            seconds = (phase.t1_ns - phase.t0_ns) * 1e-9
            assert mine.sum() / seconds == pytest.approx(rate, rel=0.05)
            spent = (segments.t1_ns - segments.t0_ns)[mine].mean()
            assert spent == pytest.approx(AWAKE_NS, rel=0.05)
            used = np.unique(segments.cpu[inside])
            assert len(used) == 1 + beside
            assert len(np.unique(case.calibration.machine.cpu_package[used])) == 1


def test_recorded_schedules_are_simulated_as_they_are() -> None:
    machine = Machine(np.array([3, 5, 8, 9]), np.array([0, 0, 2, 2]), np.array([7, 7, 1, 4]))
    t0 = np.array([0, 0, 100_000, 400_000, 800_000])
    segments = Segments(
        t0, t0 + 90_000, np.array([3, 5, 8, 9, 3], np.uint16), np.array([0, 1, 0, 2, 1])
    )
    groups = (Group("a", "queries"), Group("b", "queries"), Group("c", "kernel"))
    query = np.array([0, 1, 0, -1, 2])
    case = simulate_on(machine, segments, groups, query, span_ns=(0, SECOND), seed=3)
    assert len(case.recording.segments.cpu) == len(t0)
    np.testing.assert_array_equal(case.recording.segments.group, segments.group)
    assert case.recording.machine.cpu_core is not None
    slots = case.recording.machine.slots(case.recording.segments.cpu)
    core = case.recording.machine.cpu_core[slots]
    assert core[0] == core[1] != core[2]
    assert len(case.recording.machine.packages) == 2
    owned = case.truth.group_nj["package"].sum() + case.truth.idle_nj["package"]
    assert owned == pytest.approx(case.truth.total_nj["package"], rel=1e-9)
    np.testing.assert_array_equal(case.truth.query_group, [0, 1, 1])
