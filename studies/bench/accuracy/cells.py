# SPDX-License-Identifier: Apache-2.0
"""One package between two events: what effects are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.bench.accuracy.activity import Activity
from studies.bench.accuracy.machine import PhysicalMachine
from studies.bench.accuracy.recording import F64, I64


@dataclass(frozen=True)
class Cells:
    """c cells: pairs of a slice (s of them) and an interval (n of them) in which it ran.

    `edges_ns` (n + 1,) bound the intervals. `begin`, `end` (s,) are the first interval of each
    slice and the one after its last; `slice_core` (s,) its core within the package. `row` and
    `interval` (c,) are the pairs; `threads` (c,) busy threads of the cell's core; `core_threads`
    (cores, n) those of every core; `busy_cores` (n,).
    """

    edges_ns: I64
    begin: I64
    end: I64
    slice_core: I64
    row: I64
    interval: I64
    threads: I64
    core_threads: I64
    busy_cores: I64

    @staticmethod
    def of(edges_ns: I64, t0_ns: I64, t1_ns: I64, slice_core: I64, cores: int) -> Cells:
        """Cells of slices that begin and end at some of `edges_ns`."""
        begin, end = np.searchsorted(edges_ns, t0_ns), np.searchsorted(edges_ns, t1_ns)
        row, interval = spread(begin, end)
        n = len(edges_ns)
        change = np.bincount(slice_core * n + begin, minlength=cores * n)
        change = change - np.bincount(slice_core * n + end, minlength=cores * n)
        threads = np.cumsum(change.reshape(cores, n), axis=1)[:, :-1]
        own = threads.reshape(-1)[slice_core[row] * (n - 1) + interval]
        busy = (threads > 0).sum(axis=0)
        return Cells(edges_ns, begin, end, slice_core, row, interval, own, threads, busy)

    @property
    def dt_ns(self) -> F64:
        """(n,) lengths of the intervals."""
        return np.diff(self.edges_ns).astype(np.float64)

    @property
    def core(self) -> I64:
        """(c,) core of each cell."""
        return self.slice_core[self.row]

    def total(self, values: F64) -> F64:
        """(n,) sums over the cells of each interval."""
        found = np.bincount(self.interval, values, minlength=len(self.edges_ns) - 1)
        return found.astype(np.float64, copy=False)

    def highest(self, values: F64) -> F64:
        """(n,) the largest value, at least 0, over the cells of each interval."""
        found = np.zeros(len(self.edges_ns) - 1)
        np.maximum.at(found, self.interval, values)
        return found


def spread(begin: I64, end: I64) -> tuple[I64, I64]:
    """(row, interval) of every interval from `begin` to before `end` of each row, in row order."""
    count = end - begin
    first = np.cumsum(count) - count
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) + (begin - first)[row]


@dataclass(frozen=True)
class Setting:
    """What a package and its slices are: `activity` (s,) of the slices, `package` its number."""

    machine: PhysicalMachine
    package: int
    activity: Activity
    t0_ns: I64
    t1_ns: I64
    span_ns: tuple[int, int]
