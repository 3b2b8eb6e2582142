# SPDX-License-Identifier: Apache-2.0
"""Zones: the part of a machine that one energy counter covers, and the load there. Also checks
whether the counter of DRAM can be right, by comparing its power with that of other counters.

The unit of Intel's DRAM counter differs by CPU model (15.3 or 61 uJ: `dram_domain_energy_unit` in
the kernel's drivers/powercap/intel_rapl_common.c, and its commit 4c081324df56). Where the driver or
the firmware has another one, all of the domain's joules are wrong, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qjoule.model.arrays import F64, Entries, WindowBatch, real_sums
from qjoule.model.energy import I64, WALL, Series
from qjoule.model.features import crowd, entry_features
from qjoule.model.slow import coarse

#: Memory of servers draws less than three times what their packages do, at any load.
_MOST_OF_PACKAGE = 3.0
#: Sockets have like memory. On Granite Rapids, one showed more DRAM power than package power, and
#: many times that of the other socket: 200 W, and 6 W (PAPI's pull request 635).
_MOST_OF_OTHERS = 20.0
_LEAST_NS = 500_000_000  #: less known time gives no mean power
_ADVICE = (
    "its unit differs by CPU model, and another one is in use: update kernel and firmware, or "
    "measure memory at the wall (record --meter)"
)


@dataclass(frozen=True)
class Load:
    """The load of the n windows of one zone.

    `active_ns`: time with any core busy, `core_ns`: busy cores added up; both may be unknown (0)
    for lost time.
    """

    dt_ns: I64
    idle_ns: I64
    lost_ns: I64
    active_ns: I64
    core_ns: I64


@dataclass(frozen=True)
class Part:
    """A zone's part of a batch: m entries, and the load of its n windows."""

    entries: Entries
    load: Load

    @cached_property
    def features(self) -> F64:
        """(m, 14): `entry_features`."""
        return entry_features(self.entries, len(self.load.dt_ns))

    @cached_property
    def crowd(self) -> F64:
        """(m,): `crowd`."""
        return crowd(self.entries)

    @cached_property
    def busy_ns(self) -> F64:
        """(n,) CPU time of all entries."""
        return real_sums(self.entries.window, self.entries.cpu_ns, len(self.load.dt_ns))


@dataclass(frozen=True)
class Zone:
    """Counters `series` (several if a package has several dies) over package slots."""

    package: int
    series: tuple[int, ...]
    slots: tuple[int, ...]

    def view(self, batch: WindowBatch) -> WindowBatch:
        """The batch in windows that are as long as the zone's counters need."""
        key = (-1, *self.series)
        if key not in batch.by_slots:
            view = coarse(batch, self.series)
            batch.by_slots[key] = None if view is batch else view
        return batch.by_slots[key] or batch

    def take(self, batch: WindowBatch) -> Part:
        """The zone's part of a batch (of a `view`), cached in the batch."""
        if self.slots not in batch.by_slots:
            batch.by_slots[self.slots] = Part(*self._take(batch))
        part: Part = batch.by_slots[self.slots]
        return part

    def _take(self, batch: WindowBatch) -> tuple[Entries, Load]:
        dt_ns = np.diff(batch.energy.boundaries_ns)
        if not self.slots:
            zeros = np.zeros(len(dt_ns), np.int64)
            empty = batch.entries.take(np.zeros(0, np.int64))
            return empty, Load(dt_ns, zeros, zeros, zeros, zeros)
        slots = list(self.slots)
        idle, lost, active, cores = (
            values[:, slots].sum(axis=1)
            for values in (batch.idle_ns, batch.lost_ns, batch.active_ns, batch.core_ns)
        )
        load = Load(dt_ns, idle, lost, active, cores)
        if len(slots) == len(batch.packages) == 1:
            return batch.entries, load
        if len(slots) > 1:
            return _merge(batch.entries), load
        return batch.entries.take(np.flatnonzero(batch.entries.package == slots[0])), load


def zones(series: Sequence[Series], packages: tuple[int, ...], domain: str) -> tuple[Zone, ...]:
    """Zones of a domain, by package.

    A single platform counter covers all packages. A counter of a package without any CPU is a zone
    in which nothing runs.
    """
    series_by_package: dict[int, list[int]] = {}
    for s, counter in enumerate(series):
        if counter.domain == domain:
            series_by_package.setdefault(counter.package, []).append(s)
    covers_all = domain in ("psys", WALL) and sum(map(len, series_by_package.values())) == 1
    found_zones = []
    for package, numbers in sorted(series_by_package.items()):
        slots = (packages.index(package),) if package in packages else ()
        found_zones.append(
            Zone(package, tuple(numbers), tuple(range(len(packages))) if covers_all else slots)
        )
    return tuple(found_zones)


def _merge(entries: Entries) -> Entries:
    """Entries summed over packages."""
    groups = int(entries.group.max(initial=0)) + 1
    key, index = np.unique(entries.window * groups + entries.group, return_inverse=True)

    def total(values: F64 | I64) -> F64:
        return real_sums(index, values, len(key))

    def whole(values: I64) -> I64:
        return total(values).astype(np.int64)

    def columns(values: F64) -> F64:
        return np.stack([total(column) for column in values.T], axis=1)

    return Entries(
        window=key // groups,
        package=np.zeros(len(key), np.int64),
        group=key % groups,
        cpu_ns=whole(entries.cpu_ns),
        overlap_ns=whole(entries.overlap_ns),
        shared_ns=total(entries.shared_ns),
        counters=columns(entries.counters),
        counted_ns=columns(entries.counted_ns),
        overlap_counters=columns(entries.overlap_counters),
        scaled_ns=total(entries.scaled_ns),
        stolen_ns=total(entries.stolen_ns),
        small=columns(entries.small),
        effects=columns(entries.effects),
    )


def left_out(batches: Sequence[WindowBatch], series: Sequence[Series]) -> dict[str, str]:
    """Domains whose counters cannot be right in these windows, each with the reason for people."""
    dram_w = _by_package(batches, series, "dram")
    package_w = _by_package(batches, series, "package") if dram_w else {}
    for package, watts in sorted(dram_w.items()):
        package_power_w = package_w.get(package, np.inf)
        least_w = min(dram_w.values())
        reading = f"shows {watts:.1f} W beside {package_power_w:.1f} W of its package {package}"
        if watts > _MOST_OF_PACKAGE * package_power_w:
            return {"dram": f"it {reading}: {_ADVICE}"}
        if watts > max(package_power_w, _MOST_OF_OTHERS * least_w):
            return {"dram": f"it {reading}, and {least_w:.1f} W of another package: {_ADVICE}"}
    return {}


def _by_package(
    batches: Sequence[WindowBatch], series: Sequence[Series], domain: str
) -> dict[int, float]:
    """Mean power in W of a domain, by package; without packages of which it is not known."""
    watts: dict[int, float] = {}
    for s, counter in enumerate(series):
        if counter.domain == domain:
            watts[counter.package] = watts.get(counter.package, 0.0) + _mean_w(batches, s)
    return {package: value for package, value in watts.items() if not np.isnan(value)}


def _mean_w(batches: Sequence[WindowBatch], s: int) -> float:
    """Mean power in W of a counter over its known windows; NaN if these are too short."""
    nj = ns = 0
    for batch in batches:
        energy = coarse(batch, (s,)).energy
        measured = energy.known[s]
        nj += int(energy.energy_nj[s][measured].sum())
        ns += int(np.diff(energy.boundaries_ns)[measured].sum())
    return nj / ns if ns >= _LEAST_NS else np.nan
