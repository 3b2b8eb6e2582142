# SPDX-License-Identifier: Apache-2.0
"""The energy of a simulated machine and its owners.

Power of a package at every instant:

    P = P_idle + M(f) [if any core is busy] + x / (1 + s * x / full)
    x = sum of the threads' own power
    own power of a thread = V(f)**2 * intensity * (cycle_nj * f / threads of its core that are busy
                            + instruction_nj * instructions/ns) + miss_nj * misses/ns

The literature reports each of these effects. Power is concave in load, a package that is awake
draws a part once, and siblings add far less than cores: Power Containers (Shen et al., ASPLOS
2013), HaPPy (Zhai et al., ATC 2014) and Bellosa ("The benefits of event-driven energy accounting",
SIGOPS EW 2000). Power is linear in event rates and scales with the square of the voltage: Isci and
Martonosi (MICRO 2003).

**Owners.** P_idle belongs to idle. M is divided at each instant equally over the package's busy
cores, and within a core equally over its busy threads. The rest, after saturation, belongs to the
threads in proportion to their own power at that instant. So two busy siblings each get half of
their core's clock power, and a miss belongs to the thread that caused it. A core without a running
thread draws nothing beyond P_idle. The core domain follows the same rule with the core part of own
power; DRAM has P_idle and misses.

Everything is constant between two events (a thread comes or goes, temperature or frequency moves a
step), so energy is exact: sums over the intervals between events, linear inside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bench.accuracy.activity import Activity
from bench.accuracy.machine import GRID_NS, Climate, PhysicalMachine
from bench.accuracy.recording import F64, I64

DOMAINS = ("package", "core", "dram")
COUNTS = ("cycles", "instructions", "misses")
QUANTITIES = (*DOMAINS, *COUNTS)  #: nanojoules of each domain, then events


@dataclass(frozen=True)
class Stretches:
    """n slices: one thread had a CPU. Slices do not overlap on a CPU; times are in ns."""

    t0_ns: I64
    t1_ns: I64
    cpu: I64
    activity: Activity

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Stretches:
        """Selects slices in the given order."""
        index = np.arange(len(self.cpu))[rows]
        times = self.t0_ns[index], self.t1_ns[index]
        return Stretches(*times, self.cpu[index], self.activity.take(index))


@dataclass(frozen=True)
class Power:
    """Energy of one package, exact between any two instants.

    `energy_nj[domain]` (edges,) is the running sum since the first of `edges_ns`. `idle_nj[domain]`
    is the part of it that belongs to P_idle, over the whole run.
    """

    edges_ns: I64
    energy_nj: dict[str, F64]
    idle_nj: dict[str, float]

    def at(self, domain: str, t_ns: npt.ArrayLike) -> F64:
        """Energy of `domain` up to each time."""
        since = np.asarray(t_ns, np.float64) - self.edges_ns[0]
        found: F64 = np.interp(since, self.edges_ns - self.edges_ns[0], self.energy_nj[domain])
        return found


@dataclass(frozen=True)
class Simulation:
    """What all threads of a machine caused: `power` by package, and amounts per slice."""

    power: tuple[Power, ...]
    _stretches: Stretches
    _package: I64
    _cells: tuple[_Cells, ...]

    def amounts(
        self, parent: I64, t0_ns: I64, t1_ns: I64, names: Sequence[str] = QUANTITIES
    ) -> dict[str, F64]:
        """What the part of each slice `parent` from `t0_ns` to `t1_ns` caused: some `QUANTITIES`.

        The part must lie inside its slice. The parts of a slice add up to the slice.
        """
        found = {name: np.zeros(len(parent)) for name in names}
        for package, cells in enumerate(self._cells):
            mine = np.flatnonzero(self._package[parent] == package)
            ends = cells.place(parent[mine], t0_ns[mine]), cells.place(parent[mine], t1_ns[mine])
            for name in names:
                found[name][mine] = cells.between(name, ends)
        return found

    def whole(self, names: Sequence[str] = QUANTITIES) -> dict[str, F64]:
        """What each slice caused."""
        every = np.arange(len(self._stretches.cpu))
        return self.amounts(every, self._stretches.t0_ns, self._stretches.t1_ns, names)


@dataclass(frozen=True)
class _Cells:
    """One package's (slice, interval) pairs; those of a slice are adjacent and in time order.

    `first` and `interval0` (all slices) give the index of a slice's first cell and that cell's
    interval. `sums[quantity]` (cells + 1,) is the running sum over all cells.
    """

    edges_ns: I64
    first: I64
    interval0: I64
    sums: dict[str, F64]

    def between(self, name: str, ends: tuple[tuple[I64, F64], tuple[I64, F64]]) -> F64:
        """Amount of one quantity between two places of each slice."""
        (cell0, part0), (cell1, part1) = ends
        sums = self.sums[name]
        # Subtract whole cells first: parts of cells are small compared with running sums.
        whole = sums[cell1] - sums[cell0]
        inside1 = part1 * (sums[np.minimum(cell1 + 1, len(sums) - 1)] - sums[cell1])
        inside0 = part0 * (sums[np.minimum(cell0 + 1, len(sums) - 1)] - sums[cell0])
        between: F64 = whole + (inside1 - inside0)
        return between

    def place(self, stretch: I64, t_ns: I64) -> tuple[I64, F64]:
        """The cell that contains each time, and the elapsed share of that cell."""
        edge = np.searchsorted(self.edges_ns, t_ns, "right") - 1
        after = self.edges_ns[np.minimum(edge + 1, len(self.edges_ns) - 1)]
        length = np.maximum(after - self.edges_ns[edge], 1)
        return self.first[stretch] + edge - self.interval0[stretch], (
            t_ns - self.edges_ns[edge]
        ) / length


def simulate(
    machine: PhysicalMachine, stretches: Stretches, climate: Climate, span_ns: tuple[int, int]
) -> Simulation:
    """Energy and events of slices, all inside `span_ns` (begin, end), on `machine`.

    Raises:
        ValueError: slices are empty, overlap on a CPU, or reach beyond the span.
    """
    _check(stretches, span_ns)
    topology = machine.topology
    core = stretches.cpu % topology.cores
    package = core // topology.cores_per_package
    power, cells = [], []
    for p in range(topology.packages):
        mine = np.flatnonzero(package == p)
        mine = mine[np.lexsort((stretches.t0_ns[mine], stretches.cpu[mine]))]
        here = stretches.take(mine), core[mine]
        sweep = _Sweep(machine, *here, climate, package=p, span_ns=span_ns)
        power.append(sweep.power())
        cells.append(sweep.cells(mine, len(stretches.cpu)))
    return Simulation(tuple(power), stretches, package, tuple(cells))


def _check(stretches: Stretches, span_ns: tuple[int, int]) -> None:
    if not len(stretches.cpu):
        return
    if stretches.t0_ns.min() < span_ns[0] or stretches.t1_ns.max() > span_ns[1]:
        raise ValueError("a stretch reaches beyond the run")
    if (stretches.t1_ns <= stretches.t0_ns).any():
        raise ValueError("a stretch takes no time")
    order = np.lexsort((stretches.t0_ns, stretches.cpu))
    cpu, t0, t1 = stretches.cpu[order], stretches.t0_ns[order], stretches.t1_ns[order]
    if ((cpu[1:] == cpu[:-1]) & (t0[1:] < t1[:-1])).any():
        raise ValueError("two stretches overlap on a CPU")


class _Sweep:
    """One package: who runs at the same time as whom in every interval, and the power that
    draws.
    """

    def __init__(
        self,
        machine: PhysicalMachine,
        stretches: Stretches,
        core: I64,
        climate: Climate,
        *,
        package: int,
        span_ns: tuple[int, int],
    ) -> None:
        self._machine, self._climate, self._package = machine, climate, package
        self._stretches = stretches
        grid = np.arange(climate.begin_ns, span_ns[1], GRID_NS)
        times = (stretches.t0_ns, stretches.t1_ns, grid, np.array(span_ns))
        every = np.sort(np.concatenate(times))
        self._edges_ns = every[np.diff(every, prepend=every[0] - 1) > 0]
        self._dt_ns = np.diff(self._edges_ns).astype(np.float64)
        self._step = climate.step(self._edges_ns[:-1])
        self._begin = np.searchsorted(self._edges_ns, stretches.t0_ns)
        self._end = np.searchsorted(self._edges_ns, stretches.t1_ns)
        self._core = core - package * machine.topology.cores_per_package
        self._spread()
        self._draw()

    def _spread(self) -> None:
        """The cells, and the number of busy threads and cores in each."""
        count = self._end - self._begin
        self._first = np.cumsum(count) - count
        self._row = np.repeat(np.arange(len(count)), count)
        self._interval = np.arange(len(self._row)) + (self._begin - self._first)[self._row]
        cores, n = self._machine.topology.cores_per_package, len(self._edges_ns)
        change = np.bincount(self._core * n + self._begin, minlength=cores * n)
        change = change - np.bincount(self._core * n + self._end, minlength=cores * n)
        threads = np.cumsum(change.reshape(cores, n), axis=1)[:, :-1]
        self._busy_cores = (threads > 0).sum(axis=0)
        self._threads = threads.reshape(-1)[self._core[self._row] * (n - 1) + self._interval]

    def _draw(self) -> None:
        """Own power of every thread, the package's power, and the energy charged to each cell."""
        m, act = self._machine, self._stretches.activity
        row, interval, threads = self._row, self._interval, self._threads
        ghz = self._frequency()
        both = threads > 1
        rate = 1 / (act.core_cpi[row] / ghz + act.stall_ns[row]) * np.where(both, m.sibling_rate, 1)
        misses = rate * act.misses[row] * np.where(both, m.sibling_misses, 1)
        volts2: F64 = m.voltage(ghz) ** 2
        core_w = (
            volts2 * act.intensity[row] * (m.cycle_nj * ghz / threads + m.instruction_nj * rate)
        )
        own_w = core_w + m.miss_nj * misses
        total_w = self._per_interval(own_w)
        drift = self._climate.dynamic[self._package][self._step]
        scale: F64 = drift / (1 + m.saturation * total_w / m.full_w)
        shared_w = self._maintenance(volts2 * ghz / threads)
        part_w = (shared_w / np.maximum(self._busy_cores, 1))[interval] / threads
        dram_w = m.dram_miss_nj * misses * (1 + m.dram_write_share * act.writes[row])
        self._rates = {
            "package": own_w * scale[interval] + part_w,
            "core": core_w * scale[interval] + m.core_maintenance_share * part_w,
            "dram": dram_w,
            "cycles": ghz,
            "instructions": rate,
            "misses": misses,
        }

    def _frequency(self) -> F64:
        """GHz of the core of every cell."""
        turbo: F64 = self._machine.turbo_ghz()[self._busy_cores][self._interval]
        if self._climate.limit_ghz is None:
            return turbo
        first = self._package * self._machine.topology.cores_per_package
        core = self._core[self._row] + first
        limited: F64 = np.minimum(turbo, self._climate.limit_ghz[core, self._step[self._interval]])
        return limited

    def _maintenance(self, pace: F64) -> F64:
        """Watts per interval, from V**2 f of each busy core, halved if two threads share
        the core.
        """
        m = self._machine
        mean = self._per_interval(pace) / np.maximum(self._busy_cores, 1) / m.max_ghz
        factor = 1 - m.maintenance_scaled + m.maintenance_scaled * mean
        watts: F64 = np.where(self._busy_cores > 0, m.maintenance_w * factor, 0.0)
        return watts

    def _per_interval(self, values: F64) -> F64:
        found = np.bincount(self._interval, values, minlength=len(self._dt_ns))
        return found.astype(np.float64, copy=False)

    def power(self) -> Power:
        """Energy over time, including P_idle."""
        m, p = self._machine, self._package
        rest_w = {
            "package": m.idle_w[p],
            "core": m.idle_w[p] * m.core_idle_share,
            "dram": m.dram_idle_w[p],
        }
        idle_nj = self._climate.idle[p][self._step] * self._dt_ns
        energy: dict[str, F64] = {}
        idle: dict[str, float] = {}
        for name in DOMAINS:
            run = self._per_interval(self._rates[name]) * self._dt_ns + rest_w[name] * idle_nj
            energy[name] = np.append(0.0, np.cumsum(run))
            idle[name] = float(rest_w[name] * idle_nj.sum())
        return Power(self._edges_ns, energy, idle)

    def cells(self, rows: I64, count: int) -> _Cells:
        """The energy charged to each owner; `rows` are this package's among all `count` slices."""
        first, interval0 = np.zeros(count, np.int64), np.zeros(count, np.int64)
        first[rows], interval0[rows] = self._first, self._begin
        dt_ns = self._dt_ns[self._interval]
        sums = {name: np.append(0.0, np.cumsum(r * dt_ns)) for name, r in self._rates.items()}
        return _Cells(self._edges_ns, first, interval0, sums)
