# SPDX-License-Identifier: Apache-2.0
"""The energy of a simulated machine and its owners; the equations are in `PHYSICS.md`.

`simulate` takes who ran when (`Stretches`), a machine with its `Effects` and a `Climate`, and
returns the energy of every package at any instant and what of it every slice caused. A slice may
cause energy while it does not run: the tail after it went to sleep, or its own wake-up.

Everything is constant between two events (a thread comes or goes, a tail ends, temperature or
frequency moves a step), so energy is exact: sums over the intervals between events, linear inside
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from studies.bench.accuracy.activity import Activity, Setting
from studies.bench.accuracy.effects import Effects
from studies.bench.accuracy.hidden_kinds import Hidden
from studies.bench.accuracy.kept_awake import Kept, kept_power
from studies.bench.accuracy.machine import Climate, PhysicalMachine
from studies.bench.accuracy.recording import F64, I64
from studies.bench.accuracy.sweep import Sweep

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
    hidden: Hidden | None = None

    def seen(self) -> Power:
        """The same as the energy counter shows it."""
        if self.hidden is None:
            return self
        observed_nj = {n: self.hidden.seen_nj(self.edges_ns, e) for n, e in self.energy_nj.items()}
        return replace(self, energy_nj=observed_nj)

    def beside(self, kept: Kept) -> Power:
        """With the power of a package that is kept awake."""
        edges_ns = np.union1d(self.edges_ns, kept.edges_ns)
        at = edges_ns - edges_ns[0]
        nj = {
            name: np.interp(at, self.edges_ns - edges_ns[0], sums)
            for name, sums in self.energy_nj.items()
        }
        nj["package"] = nj["package"] + np.interp(at, kept.edges_ns - edges_ns[0], kept.nj)
        return replace(self, edges_ns=edges_ns, energy_nj=nj)

    def at(self, domain: str, t_ns: npt.ArrayLike) -> F64:
        """Energy of `domain` up to each time."""
        since = np.asarray(t_ns, np.float64) - self.edges_ns[0]
        energy: F64 = np.interp(since, self.edges_ns - self.edges_ns[0], self.energy_nj[domain])
        return energy


@dataclass(frozen=True)
class Simulation:
    """What all threads of a machine caused: `power` by package, and amounts per slice."""

    power: tuple[Power, ...]
    _stretches: Stretches
    _package: I64
    _cells: tuple[_Cells, ...]
    _late_nj: dict[str, F64]

    def amounts(
        self, parent: I64, t0_ns: I64, t1_ns: I64, names: Sequence[str] = QUANTITIES
    ) -> dict[str, F64]:
        """What the part of each slice `parent` from `t0_ns` to `t1_ns` caused while it ran.

        The part must lie inside its slice. The parts of a slice add up to the slice.
        """
        energies = {name: np.zeros(len(parent)) for name in names}
        for package, cells in enumerate(self._cells):
            of_package = np.flatnonzero(self._package[parent] == package)
            ends = (
                cells.place(parent[of_package], t0_ns[of_package]),
                cells.place(parent[of_package], t1_ns[of_package]),
            )
            for name in names:
                energies[name][of_package] = cells.between(name, ends)
        return energies

    def whole(self, names: Sequence[str] = QUANTITIES) -> dict[str, F64]:
        """What each slice caused: while it ran, and what it is charged for after or before."""
        every = np.arange(len(self._stretches.cpu))
        energies = self.amounts(every, self._stretches.t0_ns, self._stretches.t1_ns, names)
        return {name: energies[name] + self._late_nj.get(name, 0.0) for name in names}


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
        full_cells = sums[cell1] - sums[cell0]
        inside1 = part1 * (sums[np.minimum(cell1 + 1, len(sums) - 1)] - sums[cell1])
        inside0 = part0 * (sums[np.minimum(cell0 + 1, len(sums) - 1)] - sums[cell0])
        between: F64 = full_cells + (inside1 - inside0)
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
    machine: PhysicalMachine,
    stretches: Stretches,
    climate: Climate,
    span_ns: tuple[int, int],
    effects: Effects | None = None,
) -> Simulation:
    """Energy and events of slices, all inside `span_ns` (begin, end), on `machine`.

    Raises:
        ValueError: slices are empty, overlap on a CPU, or reach beyond the span.
    """
    _check(stretches, span_ns)
    topology, effects = machine.topology, effects or Effects()
    core = stretches.cpu % topology.cores
    package = core // topology.cores_per_package
    power, cells = [], []
    late = {name: np.zeros(len(core)) for name in DOMAINS}
    for p in range(topology.packages):
        of_package = np.flatnonzero(package == p)
        of_package = of_package[
            np.lexsort((stretches.t0_ns[of_package], stretches.cpu[of_package]))
        ]
        some = stretches.take(of_package)
        setting = Setting(machine, p, some.activity, some.t0_ns, some.t1_ns, span_ns)
        sweep = Sweep(setting, core[of_package] - p * topology.cores_per_package, climate, effects)
        power.append(_power(sweep, effects))
        cells.append(_cells(sweep, of_package, len(core)))
        for name in DOMAINS:
            late[name][of_package] = sweep.late_nj(name)
    if effects.kept:
        times_ns = stretches.t0_ns, stretches.t1_ns
        kept_powers = kept_power(machine, effects.kept, times_ns, stretches.cpu, np.array(span_ns))
        power = [part.beside(more) for part, more in zip(power, kept_powers, strict=True)]
        late["package"] += sum(kept.of_slice_nj for kept in kept_powers)
    return Simulation(tuple(power), stretches, package, tuple(cells), late)


def _power(sweep: Sweep, effects: Effects) -> Power:
    """Energy over time, including P_idle."""
    rest = {name: sweep.rest(name) for name in DOMAINS}
    return Power(
        sweep.edges_ns,
        {name: sweep.energy_nj(name) for name in DOMAINS},
        {name: float(watts * time_ns.sum()) for name, (watts, time_ns) in rest.items()},
        effects.hidden,
    )


def _cells(sweep: Sweep, rows: I64, count: int) -> _Cells:
    """What is charged to each owner; `rows` are this package's among all `count` slices."""
    first, interval0 = np.zeros(count, np.int64), np.zeros(count, np.int64)
    run = sweep.cells.end - sweep.cells.begin
    first[rows], interval0[rows] = np.cumsum(run) - run, sweep.cells.begin
    return _Cells(sweep.edges_ns, first, interval0, sweep.cell_sums)


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
