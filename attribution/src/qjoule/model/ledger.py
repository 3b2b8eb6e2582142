"""The ledger: adds up windows, live or recorded, and says what every group drew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import COUNTERS, F64, Entries, WindowBatch
from qjoule.model.coefficients import Coefficients, IdlePolicy
from qjoule.model.counters import I64, UPDATE_PERIOD_NS, Cause, Series, WindowEnergy
from qjoule.model.interval import GroupErrors, edge_sigma_nj
from qjoule.model.pieces import real_sums
from qjoule.model.split import Load, Split, split, weights

#: The domain that rows are about: the first of these that the machine has.
MAIN_DOMAINS = ("package", "psys", "core")


def main_domain(names: Sequence[str]) -> str:
    """The domain that totals and rows are about; "none" without any."""
    return next((name for name in MAIN_DOMAINS if name in names), names[0] if names else "none")


@dataclass
class DomainSums:
    """Sums of one domain over its packages. `energy_nj` is per group."""

    energy_nj: I64
    measured_nj: int = 0
    idle_nj: int = 0
    residual_nj: int = 0


@dataclass
class Ledger:
    """Sums over window batches. `series` must be those of every batch.

    `period_ns`: how often the counters are updated, 0 if they are computed when read.
    """

    series: tuple[Series, ...]
    packages: tuple[int, ...]
    coefficients: Coefficients = field(default_factory=Coefficients)
    idle: IdlePolicy = "separate"
    period_ns: int = UPDATE_PERIOD_NS

    def __post_init__(self) -> None:
        self.domain_names = tuple(dict.fromkeys(s.domain for s in self.series))
        self.main = main_domain(self.domain_names)
        self.domains = {name: DomainSums(np.zeros(0, np.int64)) for name in self.domain_names}
        self.errors = GroupErrors()
        self.cpu_ns = np.zeros(0, np.int64)
        self.counters = np.zeros((0, COUNTERS))
        self.counted_ns = np.zeros((0, COUNTERS))
        self.idle_ns = self.lost_ns = self.windows = self.unattributed = 0
        self.window_ns_max = 0
        self.idle_slack_nj = [0.0, 0.0]  #: idle energy could be lower, higher by
        self.causes: Counter[str] = Counter()
        self.used_counters = False

    @property
    def groups(self) -> int:
        return len(self.cpu_ns)

    def add(self, batch: WindowBatch) -> list[Split]:
        """Adds a batch; returns how each series was split, in the order of `series`."""
        entries, energy = batch.entries, batch.energy
        self.grow(int(entries.group.max(initial=-1)) + 1)
        self._add_time(batch)
        splits = []
        for s in range(len(self.series)):
            mine, load = self._share_of(self.series[s], batch)
            splits.append(self._add_series(s, batch.first, energy, mine, load))
        self._add_causes(energy)
        return splits

    def grow(self, groups: int) -> None:
        """Makes room for `groups` groups."""
        missing = groups - self.groups
        if missing <= 0:
            return
        self.cpu_ns = np.append(self.cpu_ns, np.zeros(missing, np.int64))
        self.counters = np.vstack([self.counters, np.zeros((missing, COUNTERS))])
        self.counted_ns = np.vstack([self.counted_ns, np.zeros((missing, COUNTERS))])
        for sums in self.domains.values():
            sums.energy_nj = np.append(sums.energy_nj, np.zeros(missing, np.int64))
        self.errors.grow(groups)

    def move(self, source: int, target: int) -> None:
        """What was one group's is another's from now on: its energy, time and errors."""
        self.grow(max(source, target) + 1)
        energies = (sums.energy_nj for sums in self.domains.values())
        for sums in (self.cpu_ns, self.counters, self.counted_ns, *energies):
            sums[target] += sums[source]
            sums[source] = 0
        self.errors.move(source, target)

    def _add_time(self, batch: WindowBatch) -> None:
        entries = batch.entries
        np.add.at(self.cpu_ns, entries.group, entries.cpu_ns)
        np.add.at(self.counters, entries.group, entries.counters)
        np.add.at(self.counted_ns, entries.group, entries.counted_ns)
        self.idle_ns += int(batch.idle_ns.sum())
        self.lost_ns += int(batch.lost_ns.sum())
        dt_ns = np.diff(batch.energy.boundaries_ns)
        self.windows += len(dt_ns)
        usable = batch.energy.known.any(axis=0)
        self.window_ns_max = max(self.window_ns_max, int(dt_ns[usable].max(initial=0)))

    def _share_of(self, series: Series, batch: WindowBatch) -> tuple[Entries, Load]:
        """The entries and the load that a series' energy is split over."""
        dt_ns = np.diff(batch.energy.boundaries_ns)
        alone = sum(s.domain == "psys" for s in self.series) == 1
        if series.domain == "psys" and alone and len(self.packages) > 1:
            # One counter for the whole platform: every package's owners share it.
            total = Load(dt_ns, batch.idle_ns.sum(axis=1), batch.lost_ns.sum(axis=1))
            return _merge_packages(batch.entries), total
        if series.package not in self.packages:
            nothing = np.zeros(len(dt_ns), np.int64)
            return _take(batch.entries, np.zeros(0, np.int64)), Load(dt_ns, nothing, nothing)
        p = self.packages.index(series.package)
        mine = _take(batch.entries, np.flatnonzero(batch.entries.package == p))
        return mine, Load(dt_ns, batch.idle_ns[:, p], batch.lost_ns[:, p])

    def _add_series(
        self, s: int, first: int, energy: WindowEnergy, entries: Entries, load: Load
    ) -> Split:
        series, coefficients = self.series[s], self.coefficients
        key = (series.package, series.domain)
        weight, by_counters = weights(entries, len(load.dt_ns), coefficients, series.domain)
        self.used_counters |= by_counters and series.domain == self.main
        known = energy.known[s]
        out = split(
            energy.energy_nj[s],
            known,
            load,
            entries,
            weight,
            idle_w=coefficients.idle_w.get(key),
            shared_w=coefficients.shared_w.get(key, 0.0),
            policy=self.idle,
        )
        sums = self.domains[series.domain]
        np.add.at(sums.energy_nj, entries.group, out.entry_nj)
        sums.measured_nj += int(energy.energy_nj[s][known].sum())
        sums.idle_nj += int(out.idle_nj.sum())
        sums.residual_nj += int(out.residual_nj.sum())
        if series.domain == self.main:
            self._add_errors(s, first, energy, entries, out, weight=weight)
        return out

    def _add_errors(
        self,
        s: int,
        first: int,
        energy: WindowEnergy,
        entries: Entries,
        out: Split,
        *,
        weight: F64,
    ) -> None:
        """What the interval needs, from one series of the main domain."""
        w = entries.window
        total_nj = np.where(energy.known[s], energy.energy_nj[s], 0).astype(np.float64)
        e = out.entry_nj.astype(np.float64)
        active_nj = real_sums(w, e, len(total_nj))
        share = e / np.maximum(total_nj[w], 1.0)
        among = e / np.maximum(active_nj[w], 1.0)
        # What was lost was split by weight, not by energies that rounding may have left at 0.
        weight_sum = real_sums(w, weight, len(total_nj))[w]
        of_weight = weight / np.where(weight_sum > 0, weight_sum, 1.0)
        of_weight = np.where(weight_sum > 0, of_weight, among)
        x = edge_sigma_nj(
            e,
            share,
            np.diff(energy.boundaries_ns).astype(np.float64)[w],
            period_ns=float(self.period_ns),
            half_width_ns=energy.half_width_ns[s].astype(np.float64)[w],
            unit_nj=self.series[s].unit_j * 1e9 if self.series[s].has_unit else 0.0,
        )
        self.errors.add_random(s, w + first, entries.group, x)
        self.errors.add("weight_nj", entries.group, e * (1.0 - among))
        self.errors.add("loss_nj", entries.group, of_weight * out.residual_nj[w])
        self.errors.add("static_down_nj", entries.group, among * out.static_down_nj[w])
        self.errors.add("static_up_nj", entries.group, among * out.static_up_nj[w])
        some = np.bincount(w, minlength=len(total_nj)) > 0
        self.idle_slack_nj[0] += float(out.static_up_nj[some].sum())
        self.idle_slack_nj[1] += float(out.static_down_nj[some].sum())

    def _add_causes(self, energy: WindowEnergy) -> None:
        unknown = np.zeros(energy.cause.shape[1], bool)
        for s, series in enumerate(self.series):
            prefix = "" if series.domain == self.main else f"{series.domain} "
            for cause, count in zip(*np.unique(energy.cause[s], return_counts=True), strict=True):
                if cause != Cause.NONE:
                    self.causes[prefix + Cause(int(cause)).name.lower()] += int(count)
            if series.domain == self.main:
                unknown |= (energy.cause[s] > Cause.EDGE) & ~energy.known[s]
        self.unattributed += int(unknown.sum())


def _take(entries: Entries, rows: I64) -> Entries:
    if len(rows) == len(entries.window):
        return entries
    return entries.take(rows)


def _merge_packages(entries: Entries) -> Entries:
    """Entries summed over packages."""
    groups = int(entries.group.max(initial=0)) + 1
    key, index = np.unique(entries.window * groups + entries.group, return_inverse=True)

    def total(values: F64) -> F64:
        return real_sums(index, values, len(key))

    def columns(values: F64) -> F64:
        return np.stack([total(values[:, i]) for i in range(COUNTERS)], axis=1)

    return Entries(
        key // groups,
        np.zeros(len(key), np.int64),
        key % groups,
        total(entries.cpu_ns.astype(np.float64)).astype(np.int64),
        total(entries.overlap_ns.astype(np.float64)).astype(np.int64),
        total(entries.shared_ns),
        columns(entries.counters),
        columns(entries.counted_ns),
        columns(entries.overlap_counters),
        total(entries.scaled_ns),
    )
