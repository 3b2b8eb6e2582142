# SPDX-License-Identifier: Apache-2.0
"""Segments to windows by hand, and open blocks of windows however they were cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from model_cases import chunks, energy, machine, segments
from qjoule.model._sweep import Sweep
from qjoule.model.arrays import Entries, LostTime, Machine, Segments, WindowBatch
from qjoule.model.batches import OpenBlock, cut, joined, windows
from qjoule.model.windows import SegmentWindows

#: One package of two cores with two threads each.
TWO_CORES = Machine(np.arange(4), np.zeros(4, np.int64), np.array([0, 0, 1, 1]))


def run(bounds: list[int], given: Segments, lost: tuple[LostTime, ...] = ()) -> list[WindowBatch]:
    """The windows between `bounds` on `TWO_CORES`, as they are completed."""
    made = energy(bounds, {(0, "package"): [0] * (len(bounds) - 1)})
    stream = SegmentWindows(TWO_CORES, made, lost)
    return [stream.add(given), stream.finish()]


def counted(given: Segments, counts: list[Any], **more: Any) -> Segments:
    """Segments with the same count in all three counters."""
    values = np.array(counts, np.uint64)[:, None].repeat(3, 1)
    return replace(given, counters=values, valid=np.ones(values.shape, bool), **more)


def test_a_package_is_shared_by_cores_and_a_core_by_its_threads() -> None:
    #     0   2   4   6   8
    # 0   aaaaaaaaaaaa           core 0
    # 1       bbbbbbbb           core 0
    # 2           cccccccccc     core 1
    given = segments([(0, 6, 0, 1), (2, 6, 1, 2), (4, 9, 2, 3)])
    batch = run([0, 10], given)[1]
    entries = batch.entries
    assert entries.group.tolist() == [1, 2, 3]
    assert entries.cpu_ns.tolist() == [6, 4, 5]
    assert entries.overlap_ns.tolist() == [4, 4, 0]
    # 0-2: a alone; 2-4: a and b on one core; 4-6: both cores busy; 6-9: c alone.
    assert entries.shared_ns.tolist() == [2 + 1 + 0.5, 1 + 0.5, 1 + 3]
    assert (batch.active_ns.tolist(), batch.core_ns.tolist()) == ([[9]], [[11]])
    assert batch.idle_ns.tolist() == [[25]]


def test_windows_come_as_soon_as_no_later_segment_can_touch_them() -> None:
    first, rest = run([0, 10, 20, 30], segments([(0, 5, 0, 1), (12, 40, 1, 1), (20, 21, 0, 1)]))
    assert (len(first.idle_ns), first.first, rest.first) == (2, 0, 2)
    assert first.entries.cpu_ns.tolist() == [5, 8]
    assert rest.entries.cpu_ns.tolist() == [11]


def test_counts_are_cut_in_whole_counts_that_add_up() -> None:
    given = counted(segments([(0, 30, 0, 1)]), [100])
    entries = run([0, 7, 14, 30], given)[1].entries
    assert entries.counters[:, 0].tolist() == [23, 23, 54]
    assert entries.counted_ns[:, 0].tolist() == [7, 7, 16]


def test_counts_go_with_the_overlap_of_their_own_segment() -> None:
    alone, beside, sibling = (0, 10, 0, 1), (10, 20, 0, 1), (15, 20, 1, 2)
    given = counted(segments([alone, beside, sibling]), [1000, 40, 8])
    entries = run([0, 20], given)[1].entries
    assert entries.counters[:, 1].tolist() == [1040, 8]
    assert entries.overlap_counters[:, 1].tolist() == [20, 8]


def test_time_in_which_multiplexed_counters_did_not_count() -> None:
    given = segments([(0, 8, 0, 1), (8, 12, 0, 1), (12, 20, 0, 2)])
    shares = np.array([0.25, 1, np.nan], np.float32)
    entries = run([0, 20], counted(given, [1, 1, 1], scaled=shares))[1].entries
    assert entries.scaled_ns.tolist() == [6, 8]  # nothing is known about the last one
    assert run([0, 20], given)[1].entries.scaled_ns.tolist() == [0, 0]


def test_an_impossible_count_is_as_if_it_had_not_been_read() -> None:
    stream = SegmentWindows(TWO_CORES, energy([0, 20], {(0, "package"): [0]}))
    given = counted(segments([(0, 10, 0, 1), (10, 20, 0, 1)]), [2**64 - 1, 7])
    stream.add(given)
    entries = stream.finish().entries
    assert entries.counters.tolist() == [[7, 7, 7]]
    assert entries.counted_ns.tolist() == [[10, 10, 10]]
    assert stream.anomalies.counts() == {"implausible_counters": 1}


def test_lost_time_has_no_more_room_than_its_cpu_left_free() -> None:
    lost = LostTime(2, np.array([0, 10]), np.array([0, 8]))
    batch = run([0, 10, 20], segments([(0, 7, 2, 1)]), (lost,))[1]
    assert batch.lost_ns.tolist() == [[3], [5]]
    assert batch.active_ns.tolist() == [[7], [0]]  # the lost time did run, but nobody knows when


def test_segments_on_one_cpu_queue_up_in_their_order() -> None:
    given = segments([(0, 10, 0, 1), (1, 20, 0, 2), (2, 30, 0, 3)])
    entries = run([0, 20, 40], given)[1].entries
    found = zip(entries.window, entries.group, entries.cpu_ns, strict=True)
    assert [tuple(map(int, row)) for row in found] == [(0, 1, 10), (0, 2, 10), (1, 3, 10)]


BOUNDS, ZERO = np.array([0, 10]), np.zeros(1, np.int32)


@pytest.mark.parametrize(
    "arguments",
    [
        (np.array([0, 0]), ZERO, ZERO, ZERO, 1, 1),
        (np.array([10, 0]), ZERO, ZERO, ZERO, 1, 1),
        (np.array([0, 2**63 - 1]), ZERO, ZERO, ZERO, 1, 1),
        (np.array([-(2**63), 0]), ZERO, ZERO, ZERO, 1, 1),
        (BOUNDS, ZERO + 1, ZERO, ZERO, 1, 1),
        (BOUNDS, ZERO - 1, ZERO, ZERO, 1, 1),
        (BOUNDS, ZERO, ZERO + 1, ZERO, 1, 1),
        (BOUNDS, ZERO, ZERO, ZERO, 1, 0),
        (BOUNDS, ZERO, ZERO, np.zeros(2, np.int32), 1, 1),
        (np.zeros(9, np.int8), ZERO, ZERO, ZERO, 1, 1),
    ],
)
def test_a_machine_that_contradicts_itself_is_refused(arguments: list[Any]) -> None:
    with pytest.raises(ValueError):
        Sweep(*arguments, 100)  # type: ignore[call-arg]


def test_columns_of_other_lengths_are_refused() -> None:
    sweep = Sweep(BOUNDS, ZERO, ZERO, ZERO, 1, 1, 100)
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    slot, valid, count, none = ZERO, np.ones(1, bool), np.ones(1, np.uint64), [None] * 6
    wrong: list[Any] = [
        (one, two, slot, one, None, *none),
        (one, one, slot, two, None, *none),
        (one, one, slot, one, None, two, count, count, valid, valid, valid),
        (one, one, slot, one, None, count, count, count, valid, valid, np.ones(2, bool)),
        (one, one, slot, one, None, None, None, None, valid, valid, valid),
        (one, one, slot, one, None, count, count, None, valid, valid, valid),
        (one, None, slot, one, None, *none),
        (np.zeros(4, np.int64)[::2], two, np.zeros(2, np.int32), two, None, *none),
    ]
    for columns in wrong:
        with pytest.raises(ValueError):
            sweep.add(*columns)
    assert sweep.take()[0] == 0


WINDOWS = 20
ENERGY = energy(range(0, 100 * WINDOWS + 1, 100), {(0, "package"): [7] * WINDOWS})
ROWS = [(t, t + 40, t // 50 % 2, t // 50 % 3) for t in range(0, 100 * WINDOWS - 50, 50)]


def batches(*cuts: int) -> Iterator[WindowBatch]:
    stream = SegmentWindows(machine(0, 0), ENERGY)
    yield from map(stream.add, chunks(segments(ROWS), cuts))
    yield stream.finish()


def check(block: WindowBatch, whole: WindowBatch) -> None:
    assert (block.first, block.packages) == (whole.first, whole.packages)
    for item in fields(Entries):
        mine, other = getattr(block.entries, item.name), getattr(whole.entries, item.name)
        assert mine.dtype == other.dtype
        assert mine.tolist() == other.tolist()
    assert block.energy.boundaries_ns.tolist() == whole.energy.boundaries_ns.tolist()
    for name in ("idle_ns", "lost_ns", "active_ns", "core_ns"):
        assert getattr(block, name).tolist() == getattr(whole, name).tolist()


WHOLE = joined(list(batches()))


@pytest.mark.parametrize("room", [0, 1000])
@pytest.mark.parametrize("cuts", [(), (5, 6, 20, 39), tuple(range(1, 39))])
def test_a_block_is_what_its_batches_are(cuts: tuple[int, ...], room: int) -> None:
    block = OpenBlock(room)
    for batch in batches(*cuts):
        block.add(batch)
    assert (block.windows, block.entries) == (WINDOWS, len(WHOLE.entries.window))
    check(block.joined(), WHOLE)


@pytest.mark.parametrize("room", [0, 1000])
def test_a_joined_block_does_not_change_when_windows_follow(room: int) -> None:
    block = OpenBlock(room)
    block.add(cut(WHOLE, 3, 7))
    seen = block.joined()
    block.add(cut(WHOLE, 7, WINDOWS))
    check(seen, cut(WHOLE, 3, 7))
    check(block.joined(), cut(WHOLE, 3, WINDOWS))
    assert windows(seen) == 4
