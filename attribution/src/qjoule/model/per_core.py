# SPDX-License-Identifier: Apache-2.0
"""Energy counters of single cores: their windows, until a block takes them, and whether they agree
with the package.

Their joules are part of the package's, so no ledger has them. They are read less often, and have
windows of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64, Machine, Renumbering, WindowBatch
from qjoule.model.batches import cut, joined, windows
from qjoule.model.energy import I64, Cause, Series

#: Fewer windows of a block tell nothing.
LEAST_WINDOWS = 5
#: Cores may show this much more than their package in one window, as readings are not of the same
#: instant. More windows than this share of all may be wrong.
_TOLERANCE, _MOST_WRONG = 1.05, 0.05
#: A core that was busy for as long has drawn something.
_BUSY_NS = 500_000_000


def of_cores(machine: Machine) -> Machine:
    """The machine with each core as a package; its number is that of its lowest CPU."""
    core = machine.cpu_ids if machine.cpu_core is None else machine.cpu_core
    return replace(machine, cpu_package=core, cpu_core=core)


@dataclass(frozen=True)
class CoreCounters:
    """Counters of cores: `series`, whose package is the number of a core, and the package that each
    core is in, (cores,)."""

    series: tuple[Series, ...]
    packages: tuple[int, ...]

    def usable(
        self, cores: WindowBatch, block: Sequence[WindowBatch], series: Sequence[Series]
    ) -> tuple[WindowBatch | None, str]:
        """The windows if their counters agree with the packages', else None, and why.

        `block`: windows of packages in the same time; `series`: their counters.
        """
        package = [s for s, one in enumerate(series) if one.domain == "package"]
        if not package or any(series[s].is_slow for s in package):
            return None, ""
        why = self._wrong_core(cores) or self._more_than_package(cores, joined(block), package)
        return (None if why else cores), why

    def _wrong_core(self, cores: WindowBatch) -> str:
        energy = cores.energy
        bad = np.isin(energy.cause, (Cause.RESET, Cause.IMPLAUSIBLE)).mean(axis=1)
        dt_ns = np.diff(energy.boundaries_ns)[:, None]
        for s, one in enumerate(self.series):
            if bad[s] > _MOST_WRONG:
                return f"that of core {one.package} jumps"
            if one.package in cores.packages:
                slot, known = cores.packages.index(one.package), energy.known[s]
                busy_ns = int((np.minimum(cores.active_ns, dt_ns)[:, slot])[known].sum())
                if busy_ns >= _BUSY_NS and not energy.energy_nj[s].any():
                    return f"that of core {one.package} stands still while the core is busy"
        return ""

    def _more_than_package(
        self, cores: WindowBatch, block: WindowBatch, package: Sequence[int]
    ) -> str:
        for number in sorted(set(self.packages)):
            mine = [s for s, one in enumerate(self.packages) if one == number]
            whole = [s for s in package if block.energy.series[s].package == number]
            known = cores.energy.known[mine].all(axis=0)
            sum_nj = cores.energy.energy_nj[mine].sum(axis=0).astype(np.float64)
            whole_nj = _between(block, whole, cores.energy.boundaries_ns)
            known &= np.isfinite(whole_nj)
            if known.any() and (sum_nj[known] > _TOLERANCE * whole_nj[known]).mean() > _MOST_WRONG:
                return f"cores of package {number} show more than the package"
        return ""


def _between(block: WindowBatch, series: Sequence[int], bounds_ns: I64) -> F64:
    """(n,) energy of `series` between `bounds_ns` (n + 1,); NaN where a window of theirs is not
    known."""
    energy = block.energy
    known = energy.known[list(series)].all(axis=0)
    edges_ns = (energy.boundaries_ns - energy.boundaries_ns[0]).astype(np.float64)
    at_ns = (bounds_ns - energy.boundaries_ns[0]).astype(np.float64)
    nj = np.where(known, energy.energy_nj[list(series)].sum(axis=0), 0).astype(np.float64)
    whole = np.interp(at_ns, edges_ns, np.append(0.0, np.cumsum(nj)))
    unknown = np.interp(at_ns, edges_ns, np.append(0.0, np.cumsum(~known * np.diff(edges_ns))))
    good = (np.diff(unknown) <= 0) & (at_ns[:-1] >= 0) & (at_ns[1:] <= edges_ns[-1])
    return np.where(good, np.diff(whole), np.nan)


class CoreWindows:
    """Windows of cores that no block has taken yet."""

    def __init__(self) -> None:
        self._waiting: list[WindowBatch] = []

    def add(self, batch: WindowBatch) -> None:
        """Adds the windows that follow."""
        if windows(batch):
            self._waiting.append(batch)

    def until(self, end_ns: int) -> WindowBatch | None:
        """Those that end by then; None if there are too few."""
        if not self._waiting:
            return None
        self._waiting = [joined(self._waiting)]
        whole = self._waiting[0]
        count = int(np.searchsorted(whole.energy.boundaries_ns[1:], end_ns, "right"))
        return cut(whole, 0, count) if count >= LEAST_WINDOWS else None

    def drop(self, end_ns: int) -> None:
        """Forgets those that end by then."""
        if self._waiting:
            whole = joined(self._waiting)
            count = int(np.searchsorted(whole.energy.boundaries_ns[1:], end_ns, "right"))
            self._waiting = [cut(whole, count, windows(whole))] if count < windows(whole) else []

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups."""
        self._waiting = [renumbering.batch(batch) for batch in self._waiting]
