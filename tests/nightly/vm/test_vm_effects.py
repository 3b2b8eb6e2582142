# SPDX-License-Identifier: Apache-2.0
"""Idle tails and wake-ups on two packages with SMT: the live view's sums against the segments of
another tracer, for the same seconds.
"""

from __future__ import annotations

import numpy as np
import pytest

from live_effects_cases import Effects, of_segments, of_sums
from nightly.vm.support.machine import Run
from nightly.vm.support.streams import Recorded, recorded
from qjoule.contract import Block, Grade

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def live(amd64: Run) -> Recorded:
    return recorded(amd64, "effects")


@pytest.fixture(scope="module")
def both(amd64: Run, live: Recorded) -> tuple[Effects, Effects]:
    sums, bounds_ns = of_sums(live.records(Block.AGGREGATE), live.records(Block.PACKAGE_TIME))
    segments = recorded(amd64, "recorded").records(Block.SEGMENT)
    return sums, of_segments(segments, live.records(Block.CPU), bounds_ns)


def test_the_energy_is_measured_so_effects_are_summed(live: Recorded) -> None:
    assert live.records(Block.HELLO)["grade"].tolist() == [Grade.MEASURED]
    assert len(np.unique(live.records(Block.PACKAGE_TIME)["package"])) == 2


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
