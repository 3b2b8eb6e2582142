# SPDX-License-Identifier: Apache-2.0
"""Energy counters of single cores: their windows, until a block takes them, and whether they agree
with the package.

Their joules are part of the package's, so ledgers do not add them. They are read less often, so
they have windows of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64, Machine, Renumbering, WindowBatch
from qjoule.model.batches import cut, joined, windows
from qjoule.model.energy import I64, Cause, Series

#: Blocks with fewer windows of cores are not used.
LEAST_WINDOWS = 5
#: In one window, cores may exceed their package by the first, because readings are not
#: simultaneous. If more than the second, a share of the windows, exceed that, the counters are
#: wrong.
_TOLERANCE, _MOST_WRONG = 1.05, 0.05
#: A core that was busy for this long must have drawn energy.
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
        """The windows `cores`, and an empty text; or None and the reason if their counters
        contradict the packages'.

        `block`: windows of packages in the same time; `series`: their counters.
        """
        package_series = [s for s, counter in enumerate(series) if counter.domain == "package"]
        if not package_series or any(series[s].is_slow for s in package_series):
            return None, ""
        reason = self._wrong_core(cores) or self._more_than_package(
            cores, joined(block), package_series
        )
        return (None if reason else cores), reason

    def _wrong_core(self, cores: WindowBatch) -> str:
        energy = cores.energy
        invalid_share = np.isin(energy.cause, (Cause.RESET, Cause.IMPLAUSIBLE)).mean(axis=1)
        dt_ns = np.diff(energy.boundaries_ns)[:, None]
        for s, counter in enumerate(self.series):
            if invalid_share[s] > _MOST_WRONG:
                return f"that of core {counter.package} jumps"
            if counter.package in cores.packages:
                slot, measured = cores.packages.index(counter.package), energy.known[s]
                busy_ns = int((np.minimum(cores.active_ns, dt_ns)[:, slot])[measured].sum())
                if busy_ns >= _BUSY_NS and not energy.energy_nj[s].any():
                    return f"that of core {counter.package} stands still while the core is busy"
        return ""

    def _more_than_package(
        self, cores: WindowBatch, block: WindowBatch, package: Sequence[int]
    ) -> str:
        for number in sorted(set(self.packages)):
            core_series = [
                s for s, core_package in enumerate(self.packages) if core_package == number
            ]
            own_package = [s for s in package if block.energy.series[s].package == number]
            comparable = cores.energy.known[core_series].all(axis=0)
            sum_nj = cores.energy.energy_nj[core_series].sum(axis=0).astype(np.float64)
            package_nj = _between(block, own_package, cores.energy.boundaries_ns)
            comparable &= np.isfinite(package_nj)
            if (
                comparable.any()
                and (sum_nj[comparable] > _TOLERANCE * package_nj[comparable]).mean() > _MOST_WRONG
            ):
                return f"cores of package {number} show more than the package"
        return ""


def _between(block: WindowBatch, series: Sequence[int], bounds_ns: I64) -> F64:
    """(n,) energy in nJ of `series` between `bounds_ns` (n + 1,); NaN where one of their windows is
    unknown."""
    energy = block.energy
    measured = energy.known[list(series)].all(axis=0)
    edges_ns = (energy.boundaries_ns - energy.boundaries_ns[0]).astype(np.float64)
    at_ns = (bounds_ns - energy.boundaries_ns[0]).astype(np.float64)
    nj = np.where(measured, energy.energy_nj[list(series)].sum(axis=0), 0).astype(np.float64)
    cumulative_nj = np.interp(at_ns, edges_ns, np.append(0.0, np.cumsum(nj)))
    unmeasured_ns = np.interp(
        at_ns, edges_ns, np.append(0.0, np.cumsum(~measured * np.diff(edges_ns)))
    )
    is_measured = (np.diff(unmeasured_ns) <= 0) & (at_ns[:-1] >= 0) & (at_ns[1:] <= edges_ns[-1])
    return np.where(is_measured, np.diff(cumulative_nj), np.nan)


class CoreWindows:
    """Windows of cores that no block has taken yet."""

    def __init__(self) -> None:
        self._waiting: list[WindowBatch] = []

    def add(self, batch: WindowBatch) -> None:
        """Adds the windows that follow."""
        if windows(batch):
            self._waiting.append(batch)

    def until(self, end_ns: int) -> WindowBatch | None:
        """The windows that end by `end_ns`; None if there are too few."""
        if not self._waiting:
            return None
        self._waiting = [joined(self._waiting)]
        waiting = self._waiting[0]
        count = int(np.searchsorted(waiting.energy.boundaries_ns[1:], end_ns, "right"))
        return cut(waiting, 0, count) if count >= LEAST_WINDOWS else None

    def drop(self, end_ns: int) -> None:
        """Drops the windows that end by `end_ns`."""
        if self._waiting:
            waiting = joined(self._waiting)
            count = int(np.searchsorted(waiting.energy.boundaries_ns[1:], end_ns, "right"))
            self._waiting = (
                [cut(waiting, count, windows(waiting))] if count < windows(waiting) else []
            )

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups."""
        self._waiting = [renumbering.batch(batch) for batch in self._waiting]
