# SPDX-License-Identifier: Apache-2.0
"""What threads do to a core: instructions, misses, and the effects that counters do not see.

A cell is one package between two events: what effects are computed from.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
from studies.bench.accuracy.machine import PhysicalMachine
from studies.bench.accuracy.recording import F64, I64


@dataclass(frozen=True)
class Activity:
    """One row per behaviour, all (n,).

    A thread retires 1 / (`core_cpi` / f + `stall_ns`) instructions per nanosecond at f GHz: cycles
    in the core shrink with frequency, waiting for memory does not. `misses` is LLC misses per
    instruction. `intensity` multiplies the energy of the core by effects that counters cannot see:
    the width of vector instructions, operands that toggle more or fewer wires. `writes` is the
    number of lines written back per miss. Beside a busy sibling an instruction costs `beside` times
    as much, and a miss `beside_misses` times. Counters do not see the part `prefetched` of the
    misses. `wide` is 1 for behaviours with wide vector instructions, otherwise 0.
    """

    core_cpi: F64
    stall_ns: F64
    misses: F64
    intensity: F64
    writes: F64
    beside: F64
    beside_misses: F64
    prefetched: F64
    wide: F64

    def take(self, rows: npt.NDArray[np.integer] | slice) -> Activity:
        """Selects rows in the given order; a row may occur more than once."""
        return Activity(*(getattr(self, field.name)[rows] for field in fields(self)))

    @staticmethod
    def join(parts: list[Activity]) -> Activity:
        """Concatenates the rows of all parts."""
        names = [field.name for field in fields(Activity)]
        return Activity(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))

    def varied(self, random: np.random.Generator, spread: float) -> Activity:
        """Varies every row by a few per cent, as calls of one statement vary."""
        n = len(self.core_cpi)
        by = np.exp(random.normal(0, spread, (3, n)))
        return replace(
            self,
            core_cpi=self.core_cpi * by[0],
            stall_ns=self.stall_ns * by[1] * by[2],
            misses=self.misses * by[1],
            intensity=self.intensity * np.exp(random.normal(0, spread / 4, n)),
        )

    @staticmethod
    def plain(core_cpi: F64, stall_ns: F64, misses: F64, intensity: F64, writes: F64) -> Activity:
        """Behaviours of which counters see every miss, and that cost the same beside a sibling."""
        ones, zeros = np.ones_like(core_cpi), np.zeros_like(core_cpi)
        return Activity(core_cpi, stall_ns, misses, intensity, writes, ones, ones, zeros, zeros)


def draw_activity(
    random: np.random.Generator,
    memory_bound: npt.ArrayLike,
    hidden: float,
    overlap: tuple[float, float] = (1.5, 8.0),
) -> Activity:
    """Behaviours from compute-bound (`memory_bound` 0) to memory-bound (1).

    The compute-bound end is a hash or sort in the cache: near three instructions per cycle and one
    miss in thousands. The memory-bound end is a scan or a probe of a large table: near 0.3
    instructions per cycle and 20 to 40 misses per thousand. Database operators show this range
    (Ailamaki et al., "DBMSs on a modern processor", VLDB 1999; Sirin and Ailamaki,
    "Micro-architectural Analysis of OLAP", VLDB 2020). `hidden` bounds |intensity - 1|. `overlap`
    is how many misses wait at once: a scan prefetches, a probe waits for each.
    """
    bound = np.asarray(memory_bound, np.float64)
    n = bound.shape
    misses = 1e-3 * 0.1 * (300 ** (bound * random.uniform(0.9, 1.1, n)))
    return Activity.plain(
        core_cpi=random.uniform(0.33, 0.6, n) * (1 + 0.4 * bound),
        stall_ns=misses * random.uniform(80, 110, n) / random.uniform(*overlap, n),
        misses=misses,
        intensity=1 + hidden * random.uniform(-1, 1, n),
        writes=random.uniform(0, 0.6, n),
    )


#: The kernels of a calibration run: core_cpi, stalls in ns per miss, misses per instruction, and
#: lines written back per miss.
KERNELS = {
    "integer": (0.30, 0.0, 1e-6, 0.0),
    "floating_point": (0.50, 0.0, 1e-6, 0.0),
    "cache": (0.65, 0.0, 2e-4, 0.3),
    "stream": (0.60, 9.0, 4e-2, 0.5),
    "chase": (1.00, 85.0, 1.2e-1, 0.0),
}


def draw_kernel(random: np.random.Generator, name: str, hidden: float) -> Activity:
    """One of `KERNELS` for this machine, (1,). Its hidden intensity is drawn as well."""
    core_cpi, miss_ns, misses, writes = KERNELS[name]
    core_cpi *= random.uniform(0.8, 1.25)
    misses *= random.uniform(0.7, 1.4)
    miss_ns *= random.uniform(0.8, 1.25)
    intensity = 1 + hidden * random.uniform(-1, 1)
    row = (core_cpi, miss_ns * misses, misses, intensity, writes)
    return Activity.plain(*(np.array([value]) for value in row))


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
        threads = threads_by_core(begin, end, slice_core, (cores, len(edges_ns) - 1))
        own = threads[slice_core[row], interval]
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
        sums = np.bincount(self.interval, values, minlength=len(self.edges_ns) - 1)
        return sums.astype(np.float64, copy=False)

    def highest(self, values: F64) -> F64:
        """(n,) the largest value, at least 0, over the cells of each interval."""
        maxima = np.zeros(len(self.edges_ns) - 1)
        np.maximum.at(maxima, self.interval, values)
        return maxima


def threads_by_core(begin: I64, end: I64, slice_core: I64, shape: tuple[int, int]) -> I64:
    """(cores, intervals), which is `shape`: how many slices of each core there are in each interval
    from `begin` to before `end`."""
    cores, intervals = shape
    n = intervals + 1
    change = np.bincount(slice_core * n + begin, minlength=cores * n)
    change = change - np.bincount(slice_core * n + end, minlength=cores * n)
    return np.asarray(np.cumsum(change.reshape(cores, n), axis=1)[:, :-1])


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
