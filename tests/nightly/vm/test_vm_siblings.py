# SPDX-License-Identifier: Apache-2.0
"""Two packages with SMT: overlap, idle tails and wake-ups in the recording and the live view.

The live view's sums are held against the segments of another tracer, for the same seconds.
"""

from __future__ import annotations

import numpy as np
import pytest

from live_effects_cases import Effects, of_segments, of_sums
from nightly.vm.support.machine import Run
from nightly.vm.support.streams import Load, Recorded, load, recorded
from qjoule.contract import Block, Grade

pytestmark = pytest.mark.timeout(1800)

LOADS = ("first", "sibling", "other")


@pytest.fixture(scope="module")
def live(amd64: Run) -> Recorded:
    return recorded(amd64, "live")


@pytest.fixture(scope="module")
def segments(amd64: Run) -> np.ndarray:
    return recorded(amd64, "recorded").records(Block.SEGMENT)


def test_cores_and_packages_are_the_machines(live: Recorded) -> None:
    cpus = live.records(Block.CPU)
    assert cpus["cpu"].tolist() == [0, 1, 2, 3]
    assert cpus["package"].tolist() == [0, 0, 1, 1]
    assert cpus["core"].tolist() == [0, 0, 0, 0]
    assert cpus["sibling"].tolist() == [0, 0, 2, 2]


def _overlap_ns(segments: np.ndarray, one: Load) -> int:
    """Part of a load's time in which anything ran on the other thread of its core."""
    mine = segments[segments["tgid"] == one.pid]
    beside = segments[segments["cpu"] == one.cpu ^ 1]
    begin = np.maximum.outer(mine["t0_ns"].astype(np.int64), beside["t0_ns"].astype(np.int64))
    end = np.minimum.outer(mine["t1_ns"].astype(np.int64), beside["t1_ns"].astype(np.int64))
    return int(np.maximum(end - begin, 0).sum())


@pytest.mark.parametrize("name", LOADS)
def test_the_live_views_overlap_is_that_of_the_segments(
    amd64: Run, live: Recorded, segments: np.ndarray, name: str
) -> None:
    """CPU time agrees within 2 % and 10 ms, and the part with a busy sibling within 10 %.

    An emulated CPU stalls for milliseconds between reading the time and reading its sibling's
    clock.
    """
    one = load(amd64, name)
    sums = live.records(Block.AGGREGATE)
    sums = sums[sums["tgid"] == one.pid]
    mine = segments[segments["tgid"] == one.pid]
    cpu_ns = int((mine["t1_ns"] - mine["t0_ns"]).sum())
    overlap_ns = _overlap_ns(segments, one)
    assert int(sums["cpu_ns"].sum()) == pytest.approx(cpu_ns, rel=0.02, abs=1e7)
    assert int(sums["overlap_ns"].sum()) == pytest.approx(overlap_ns, rel=0.1, abs=1e7)
    assert (sums["overlap_ns"] <= sums["cpu_ns"]).all()


def test_overlap_is_with_the_sibling_and_nobody_else(amd64: Run, segments: np.ndarray) -> None:
    """Two loads shared a core while a third had the other package almost to itself."""
    first, sibling, other = (load(amd64, name) for name in LOADS)
    together_ns = min(first.t1_ns, sibling.t1_ns) - max(first.t0_ns, sibling.t0_ns)
    assert together_ns > 3e8
    for one in (first, sibling):
        assert _overlap_ns(segments, one) >= 0.9 * together_ns
    assert _overlap_ns(segments, other) < 0.7 * other.cpu_ns


@pytest.mark.parametrize("name", LOADS)
def test_a_load_has_its_cpu_time(amd64: Run, segments: np.ndarray, name: str) -> None:
    """As it measured with the kernel's clock between its first and last reading."""
    one = load(amd64, name)
    mine = segments[segments["tgid"] == one.pid]
    assert np.unique(mine["cpu"][mine["t0_ns"] >= one.t0_ns]).tolist() == [one.cpu]
    inside = np.minimum(mine["t1_ns"], one.t1_ns).astype(np.int64) - np.maximum(
        mine["t0_ns"], one.t0_ns
    ).astype(np.int64)
    assert int(np.maximum(inside, 0).sum()) == pytest.approx(one.cpu_ns, rel=0.05, abs=1e7)


@pytest.fixture(scope="module")
def naps(amd64: Run) -> Recorded:
    return recorded(amd64, "effects")


@pytest.fixture(scope="module")
def both(amd64: Run, naps: Recorded) -> tuple[Effects, Effects]:
    sums, bounds_ns = of_sums(naps.records(Block.AGGREGATE), naps.records(Block.PACKAGE_TIME))
    segments = recorded(amd64, "recorded").records(Block.SEGMENT)
    return sums, of_segments(segments, naps.records(Block.CPU), bounds_ns)


def test_the_energy_is_measured_so_effects_are_summed(naps: Recorded) -> None:
    assert naps.records(Block.HELLO)["grade"].tolist() == [Grade.MEASURED]
    assert len(np.unique(naps.records(Block.PACKAGE_TIME)["package"])) == 2


def test_a_package_was_awake_as_long_as_its_segments_say(both: tuple[Effects, Effects]) -> None:
    """Within 3 %: an emulated CPU may stand still between two tracers' readings of the clock."""
    sums, segments = both
    assert sums.awake_ns.shape == segments.awake_ns.shape
    assert (segments.awake_ns.sum(axis=0) > 0).all()
    assert sums.awake_ns.sum(axis=0) == pytest.approx(segments.awake_ns.sum(axis=0), rel=0.03)


@pytest.mark.parametrize("which", ["package", "core"])
def test_tails_and_wake_ups_are_those_of_the_segments(
    both: tuple[Effects, Effects], which: str
) -> None:
    """Of all owners together, within 5 %."""
    sums, segments = both
    tails, wakes = {"package": (slice(3, 8), 13), "core": (slice(8, 13), 14)}[which]
    assert segments.everybody[wakes] > 200, "there were naps"
    assert sums.everybody[tails] == pytest.approx(segments.everybody[tails], rel=0.05)
    assert sums.everybody[wakes] == pytest.approx(segments.everybody[wakes], rel=0.05)


def test_the_kernels_own_part_is_the_same(both: tuple[Effects, Effects]) -> None:
    """It slept last, or woke first, in some of them: within 10 % and 20 events."""
    sums, segments = both
    mine, expected = sums.of[0][3:], segments.of[0][3:]
    assert expected[-1] > 20
    assert mine[-1] == pytest.approx(expected[-1], rel=0.1, abs=20)
    assert mine[9] == pytest.approx(expected[9], rel=0.1, abs=20 * 1.6e6)
