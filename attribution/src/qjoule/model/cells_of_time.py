# SPDX-License-Identifier: Apache-2.0
"""Divides windows into cells of time, and cells into blocks. The model learns from whole blocks.

Where a cell ends depends on the windows' times alone. So parts of a trace that begin where a cell
begins can be attributed apart from each other, with the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qjoule.model.arrays import WindowBatch
from qjoule.model.coarse import ends
from qjoule.model.energy import I64, Bool, WindowEnergy

#: A cell has at least so much time and so many windows. A block also ends when it has so many
#: entries, since entries take memory.
BLOCK_NS = 30_000_000_000
BLOCK_WINDOWS = 512
BLOCK_ENTRIES = 1 << 18
#: Windows that are looked at first for the end of a cell.
_LOOKED_AT = 1024


class Cells:
    """Finds the ends of cells in consecutive windows.

    `slow`: a cell ends only where no slow counter is within a window of its own.
    """

    def __init__(self, *, slow: bool) -> None:
        self._slow = slow
        self._ns = self._windows = 0  #: of the open cell; the time stops at `BLOCK_NS`

    def ends(self, energy: WindowEnergy) -> Bool:
        """(windows,) whether a cell ends with each of the windows that follow."""
        bounds_ns = energy.boundaries_ns
        count = len(bounds_ns) - 1
        allowed = ends(energy) if self._slow else np.ones(count, bool)
        out = np.zeros(count, bool)
        at = 0
        while at < count:

            def full(begin: int, end: int, at: int = at) -> Bool:
                # Differences first: the times of a hostile trace could overflow when added up.
                ns = self._ns + np.minimum(bounds_ns[begin + 1 : end + 1] - bounds_ns[at], BLOCK_NS)
                windows = self._windows + 1 + np.arange(begin - at, end - at)
                found: Bool = (ns >= BLOCK_NS) & (windows >= BLOCK_WINDOWS) & allowed[begin:end]
                return found

            last = _first(at, count, full)
            if last is None:
                ns = self._ns + min(int(bounds_ns[count] - bounds_ns[at]), BLOCK_NS)
                self._ns, self._windows = min(ns, BLOCK_NS), self._windows + count - at
                return out
            at = last + 1
            out[last] = True
            self._ns = self._windows = 0
        return out

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
            held = entries + self._before[begin + 1 : end + 1] - self._before[first]
            ends: Bool = (held >= BLOCK_ENTRIES) & self._allowed[begin:end]
            return self._cells[begin:end] | ends

        last = _first(first, len(self._cells), full)
        return None if last is None else last + 1


def _first(at: int, count: int, true: Callable[[int, int], Bool]) -> int | None:
    """The first of the windows [at, count) of which `true(begin, end)` is true; None: of none.

    It looks at few windows first: in a trace with millions of them, most cells end soon.
    """
    size = _LOOKED_AT
    while at < count:
        end = min(at + size, count)
        found = np.flatnonzero(true(at, end))
        if len(found):
            return at + int(found[0])
        at, size = end, size * 2
    return None
