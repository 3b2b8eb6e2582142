# SPDX-License-Identifier: Apache-2.0
"""An open block: the same windows however they were cut, and whatever its room was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest

from model_cases import chunks, energy, machine, segments
from qjoule.model.arrays import Entries, WindowBatch
from qjoule.model.batches import OpenBlock, cut, joined, windows
from qjoule.model.windows import SegmentWindows

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


@pytest.mark.parametrize("room", [0, 1, 30, 1000])
@pytest.mark.parametrize("cuts", [(), (1,), (5, 6, 20, 39), tuple(range(1, 39))])
def test_it_is_what_its_batches_are(cuts: tuple[int, ...], room: int) -> None:
    block = OpenBlock(room)
    for batch in batches(*cuts):
        block.add(batch)
    assert (block.windows, block.entries) == (WINDOWS, len(WHOLE.entries.window))
    check(block.joined(), WHOLE)


@pytest.mark.parametrize("room", [0, 1000])
def test_what_was_looked_at_does_not_change(room: int) -> None:
    block = OpenBlock(room)
    first, second = cut(WHOLE, 0, 7), cut(WHOLE, 7, WINDOWS)
    block.add(first)
    seen = block.joined()
    block.add(second)
    check(seen, cut(WHOLE, 0, 7))
    check(block.joined(), WHOLE)
    assert windows(seen) == 7


def test_a_block_that_begins_later_counts_from_its_own_first_window() -> None:
    block = OpenBlock(0)
    for batch in (cut(WHOLE, 3, 4), cut(WHOLE, 4, 9)):
        block.add(batch)
    check(block.joined(), cut(WHOLE, 3, 9))
    assert int(np.max(block.joined().entries.window)) == 5
