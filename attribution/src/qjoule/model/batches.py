# SPDX-License-Identifier: Apache-2.0
"""Cuts batches of windows, joins consecutive ones, and divides windows into cells of time and cells
into blocks. The model learns from whole blocks.

Where a cell ends depends on the windows' times alone. So parts of a trace that begin where a cell
begins can be attributed apart from each other, with the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from qjoule.model.arrays import Entries, Requests, WindowBatch
from qjoule.model.energy import I64, Bool, WindowEnergy
from qjoule.model.slow import ends

#: A cell has at least the first time and the second number of windows. A block also ends at the
#: third number of entries, because entries take memory.
BLOCK_NS = 30_000_000_000
BLOCK_WINDOWS = 512
BLOCK_ENTRIES = 3 << 16
#: Number of windows in the first step of the search for the end of a cell.
_FIRST_SEARCH = 1024


def windows(batch: WindowBatch) -> int:
    """Number of windows in a batch."""
    return len(batch.idle_ns)


def cut(batch: WindowBatch, first: int, last: int) -> WindowBatch:
    """Windows `first` to `last` - 1 of a batch, counted from the batch's own first window."""
    if first == 0 and last == windows(batch):
        return batch
    low, high = np.searchsorted(batch.entries.window, (first, last))
    entries = batch.entries.take(slice(low, high))
    return WindowBatch(
        batch.first + first,
        batch.energy.slice(first, last),
        batch.packages,
        batch.idle_ns[first:last],
        batch.lost_ns[first:last],
        replace(entries, window=entries.window - first),
        batch.active_ns[first:last],
        batch.core_ns[first:last],
        _cut_requests(batch.requests, first, last),
    )


def _cut_requests(requests: Requests | None, first: int, last: int) -> Requests | None:
    if requests is None:
        return None
    low, high = np.searchsorted(requests.window, (first, last))
    inside = requests.take(slice(low, high))
    return replace(inside, window=inside.window - first)


def joined(batches: Sequence[WindowBatch]) -> WindowBatch:
    """Joins consecutive batches, so that the way a trace was cut does not affect the result."""
    if len(batches) == 1:
        return batches[0]
    block = OpenBlock(sum(len(batch.entries.window) for batch in batches))
    for batch in batches:
        block.add(batch)
    return block.joined()


def _joined(batches: Sequence[WindowBatch], entries: Entries) -> WindowBatch:
    firsts = [batch.first for batch in batches]
    energies = [batch.energy for batch in batches]
    edges = [energy.boundaries_ns[1:] for energy in energies]

    def stacked(name: str) -> Any:
        return np.concatenate([getattr(batch, name) for batch in batches])

    def joined_columns(name: str) -> Any:
        return np.concatenate([getattr(energy, name) for energy in energies], axis=1)

    return WindowBatch(
        first=firsts[0],
        energy=replace(
            energies[0],
            boundaries_ns=np.concatenate([energies[0].boundaries_ns[:1], *edges]),
            energy_nj=joined_columns("energy_nj"),
            cause=joined_columns("cause"),
            half_width_ns=joined_columns("half_width_ns"),
        ),
        packages=batches[0].packages,
        idle_ns=stacked("idle_ns"),
        lost_ns=stacked("lost_ns"),
        entries=entries,
        active_ns=stacked("active_ns"),
        core_ns=stacked("core_ns"),
        requests=_joined_requests(batches),
    )


def _joined_requests(batches: Sequence[WindowBatch]) -> Requests | None:
    shifted = [
        replace(
            requests_of.requests,
            window=requests_of.requests.window + requests_of.first - batches[0].first,
        )
        for requests_of in batches
        if requests_of.requests is not None
    ]
    if not shifted:
        return None
    return Requests(
        *(
            np.concatenate([getattr(requests_of, item.name) for requests_of in shifted])
            for item in fields(Requests)
        )
    )


class OpenBlock:
    """Consecutive windows, to which more can be added. `room`: initial capacity in entries.

    Most of a block's memory is its entries. They are stored once, in arrays with room for more, so
    that a whole block is not copied to join its batches. Room that is not used takes no memory.
    """

    def __init__(self, room: int) -> None:
        self._first_room = room
        self._batches: list[WindowBatch] = []  #: without their entries
        self._columns: dict[str, Any] = {}
        self.entries = self.windows = 0

    @property
    def first(self) -> int:
        """Number of the first window; there must be one."""
        return self._batches[0].first

    def add(self, batch: WindowBatch) -> None:
        """Adds the windows that follow."""
        first_window = batch.first - (self._batches[0].first if self._batches else batch.first)
        used_rows, self.entries = self.entries, self.entries + len(batch.entries.window)
        for item in fields(Entries):
            values = getattr(batch.entries, item.name)
            column = self._room(item.name, values, used_rows)
            if values.any():  # the pages of what is 0 on this machine take no memory
                column[used_rows : self.entries] = values
        self._columns["window"][used_rows : self.entries] += first_window
        self.windows += windows(batch)
        # Empty copies: a view would keep the batch's arrays.
        self._batches.append(replace(batch, entries=batch.entries.take(np.zeros(0, np.int64))))

    def _room(self, name: str, values: Any, used_rows: int) -> Any:
        """The array of a column, with room for all entries."""
        column = self._columns.get(name)
        if column is None or len(column) < self.entries:
            room = max(self.entries, 2 * used_rows, self._first_room)
            grown = np.zeros((room, *values.shape[1:]), values.dtype, order="F")
            if column is not None:
                grown[:used_rows] = column[:used_rows]
            self._columns[name] = column = grown
        return column

    def joined(self) -> WindowBatch:
        """All windows as one batch; there must be one. Windows added later do not change it."""
        entries = Entries(
            **{item.name: self._columns[item.name][: self.entries] for item in fields(Entries)}
        )
        return _joined(self._batches, entries)


class Cells:
    """Finds the ends of cells in consecutive windows.

    `slow`: a cell ends only where no slow counter is inside one of its own windows.
    """

    def __init__(self, *, slow: bool) -> None:
        self._slow = slow
        self._ns = self._windows = 0  #: of the open cell; the time stops at `BLOCK_NS`

    def ends(self, energy: WindowEnergy) -> Bool:
        """(windows,) whether a cell ends with each of the windows that follow."""
        bounds_ns = energy.boundaries_ns
        count = len(bounds_ns) - 1
        allowed = ends(energy) if self._slow else np.ones(count, bool)
        cell_end = np.zeros(count, bool)
        position = 0
        while position < count:

            def full(begin: int, end: int, position: int = position) -> Bool:
                # Differences first: the times of a hostile trace could overflow when added up.
                ns = self._ns + np.minimum(
                    bounds_ns[begin + 1 : end + 1] - bounds_ns[position], BLOCK_NS
                )
                windows = self._windows + 1 + np.arange(begin - position, end - position)
                is_full: Bool = (ns >= BLOCK_NS) & (windows >= BLOCK_WINDOWS) & allowed[begin:end]
                return is_full

            last = _first(position, count, full)
            if last is None:
                ns = self._ns + min(int(bounds_ns[count] - bounds_ns[position]), BLOCK_NS)
                self._ns, self._windows = min(ns, BLOCK_NS), self._windows + count - position
                return cell_end
            position = last + 1
            cell_end[last] = True
            self._ns = self._windows = 0
        return cell_end

    def block_ends(self, batch: WindowBatch) -> BlockEnds:
        """Where blocks may end in the windows that follow."""
        allowed = ends(batch.energy) if self._slow else np.ones(len(batch.idle_ns), bool)
        return BlockEnds(batch.entries.window, self.ends(batch.energy), allowed)


class BlockEnds:
    """Of a batch of n windows: `entry_window` (m,) of each entry; `cell_ends` (n,), and `allowed`
    (n,), whether a block may end there because it is large."""

    def __init__(self, entry_window: I64, cell_ends: Bool, allowed: Bool) -> None:
        self._cells, self._allowed = cell_ends, allowed
        counts = np.bincount(entry_window, minlength=len(cell_ends))
        self._before = np.append(0, np.cumsum(counts))  #: entries before each window

    def after(self, first: int, entries: int) -> int | None:
        """The window before which a block ends that has `entries` entries before window `first`;
        None if it stays open."""

        def full(begin: int, end: int) -> Bool:
            held_entries = entries + self._before[begin + 1 : end + 1] - self._before[first]
            ends: Bool = (held_entries >= BLOCK_ENTRIES) & self._allowed[begin:end]
            return self._cells[begin:end] | ends

        last = _first(first, len(self._cells), full)
        return None if last is None else last + 1


def _first(begin: int, count: int, condition: Callable[[int, int], Bool]) -> int | None:
    """The first of the windows [begin, count) for which `condition(begin, end)` is true; None
    without any.

    It looks at few windows first: in a trace with millions of them, most cells end soon.
    """
    size = _FIRST_SEARCH
    while begin < count:
        end = min(begin + size, count)
        matches = np.flatnonzero(condition(begin, end))
        if len(matches):
            return begin + int(matches[0])
        begin, size = end, size * 2
    return None
