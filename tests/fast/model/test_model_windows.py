# SPDX-License-Identifier: Apache-2.0
"""Segments to windows by hand, and open blocks of windows however they were cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from model_cases import chunks, energy, segments
from qjoule.model._sweep import Sweep
from qjoule.model.arrays import Entries, LostTime, Machine, Segments, WindowBatch
from qjoule.model.batches import OpenBlock, cut, joined, windows
from qjoule.model.windows import SegmentWindows

#: One package of two cores with two threads each.
TWO_CORES = Machine(np.arange(4), np.zeros(4, np.int64), np.array([0, 0, 1, 1]))


def run(bounds: list[int], given: Segments, lost: tuple[LostTime, ...] = ()) -> WindowBatch:
    """The windows between `bounds` on `TWO_CORES`."""
    made = energy(bounds, {(0, "package"): [0] * (len(bounds) - 1)})
    return joined([*batches(SegmentWindows(TWO_CORES, made, lost), given)])


def batches(stream: SegmentWindows, given: Segments, cuts: Sequence[int] = ()) -> list[WindowBatch]:
    return [*map(stream.add, chunks(given, cuts)), stream.finish()]


def test_a_package_is_shared_by_cores_and_a_core_by_its_threads() -> None:
    #     0   2   4   6   8
    # 0   aaaaaaaaaaaa           core 0
    # 1       bbbbbbbb           core 0
    # 2           cccccccccc     core 1
    batch = run([0, 10], segments([(0, 6, 0, 1), (2, 6, 1, 2), (4, 9, 2, 3)]))
    entries = batch.entries
    assert entries.cpu_ns.tolist() == [6, 4, 5]
    assert entries.overlap_ns.tolist() == [4, 4, 0]
    # 0-2: a alone; 2-4: a and b on one core; 4-6: both cores busy; 6-9: c alone.
    assert entries.shared_ns.tolist() == [2 + 1 + 0.5, 1 + 0.5, 1 + 3]
    assert (batch.active_ns.tolist(), batch.core_ns.tolist()) == ([[9]], [[11]])
    assert batch.idle_ns.tolist() == [[25]]


def test_lost_time_has_no_more_room_than_its_cpu_left_free() -> None:
    lost = LostTime(2, np.array([0, 10]), np.array([0, 8]))
    batch = run([0, 10, 20], segments([(0, 7, 2, 1)]), (lost,))
    assert batch.lost_ns.tolist() == [[3], [5]]
    assert batch.active_ns.tolist() == [[7], [0]]  # the lost time did run, but nobody knows when


@pytest.mark.parametrize("room", [0, 1000])
def test_an_open_block_is_what_its_batches_are_and_what_was_joined_does_not_change(
    room: int,
) -> None:
    bounds = range(0, 2001, 100)
    made = energy(bounds, {(0, "package"): [7] * 20})
    given = segments([(t, t + 40, t // 50 % 2, t // 50 % 3) for t in range(0, 1950, 50)])
    (whole,) = (joined(batches(SegmentWindows(TWO_CORES, made), given)),)
    block, seen = OpenBlock(room), []
    for batch in batches(SegmentWindows(TWO_CORES, made), given, (5, 6, 20, 39)):
        block.add(batch)
        seen.append(block.joined())
    for part in seen:
        expected = cut(whole, 0, windows(part))
        for item in fields(Entries):
            values, wanted = (getattr(one.entries, item.name) for one in (part, expected))
            assert (values.dtype, values.tolist()) == (wanted.dtype, wanted.tolist())
        for name in ("idle_ns", "lost_ns", "active_ns", "core_ns"):
            assert getattr(part, name).tolist() == getattr(expected, name).tolist()
        assert part.energy.boundaries_ns.tolist() == expected.energy.boundaries_ns.tolist()


@pytest.mark.parametrize(
    ("bounds", "package", "core", "packages", "cores"),
    [
        ([0, 0], [0], [0], 1, 1),
        ([10, 0], [0], [0], 1, 1),
        ([0, 2**63 - 1], [0], [0], 1, 1),
        ([-(2**63), 0], [0], [0], 1, 1),
        ([0, 10], [1], [0], 1, 1),
        ([0, 10], [-1], [0], 1, 1),
        ([0, 10], [0], [1], 1, 1),
        ([0, 10], [0], [0, 0], 1, 1),
    ],
)
def test_a_machine_that_contradicts_itself_is_refused(
    bounds: list[int], package: list[int], core: list[int], packages: int, cores: int
) -> None:
    slots, of_core = np.array(package, np.int32), np.array(core, np.int32)
    with pytest.raises(ValueError):
        Sweep(np.array(bounds), slots, slots, of_core, packages, cores, 100)


def test_columns_of_other_lengths_are_refused() -> None:
    zero = np.zeros(1, np.int32)
    sweep = Sweep(np.array([0, 10]), zero, zero, zero, 1, 1, 100)
    one, two, valid = np.zeros(1, np.int64), np.zeros(2, np.int64), np.ones(1, bool)
    count, none = np.ones(1, np.uint64), [None] * 6
    wrong: list[Any] = [
        (one, two, zero, one, None, *none),
        (one, one, zero, two, None, *none),
        (one, one, zero, one, None, two, count, count, valid, valid, valid),
        (one, one, zero, one, None, count, count, count, valid, valid, np.ones(2, bool)),
        (one, one, zero, one, None, None, None, None, valid, valid, valid),
        (one, one, zero, one, None, count, count, None, valid, valid, valid),
        (one, None, zero, one, None, *none),
        (np.zeros(4, np.int64)[::2], two, np.zeros(2, np.int32), two, None, *none),
    ]
    for columns in wrong:
        with pytest.raises(ValueError):
            sweep.add(*columns)
    assert sweep.take()[0] == 0
