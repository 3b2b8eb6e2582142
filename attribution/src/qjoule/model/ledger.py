"""The ledger: adds up windows, live or recorded, and says what every group drew."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import COUNTERS, F64, WindowBatch
from qjoule.model.coefficients import Coefficients, IdlePolicy
from qjoule.model.counters import I64, UPDATE_PERIOD_NS, Cause, Series, WindowEnergy
from qjoule.model.features import by_counters, crowd, entry_features
from qjoule.model.fit.rows import ClassOf, itself
from qjoule.model.interval import Z95, GroupErrors, edge_sigma_nj
from qjoule.model.pieces import real_sums
from qjoule.model.power_model import PowerModel
from qjoule.model.sensitivity import Portion, Sensitivity, add_portion
from qjoule.model.split import Split, split, unknown_static_nj
from qjoule.model.zones import Load, zones

#: The domain that rows are about: the first of these that the machine has.
MAIN_DOMAINS = ("package", "psys", "core")


def main_domain(names: Sequence[str]) -> str:
    """The domain that totals and rows are about; "none" without any."""
    return next((name for name in MAIN_DOMAINS if name in names), names[0] if names else "none")


@dataclass
class DomainSums:
    """Sums of one domain over its packages. `energy_nj` and `shared_nj` of it are per group."""

    energy_nj: I64
    shared_nj: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    errors: GroupErrors = field(default_factory=GroupErrors)
    measured_nj: int = 0
    idle_nj: int = 0
    residual_nj: int = 0
    idle_slack_nj: list[float] = field(default_factory=lambda: [0.0, 0.0])  #: 95 %, down and up


@dataclass
class Ledger:
    """Sums over window batches. `series` must be those of every batch.

    `period_ns`: how often the counters are updated, 0 if they are computed when read. `class_of`:
    the classes that the factors of `add`'s models are of, by group.
    """

    series: tuple[Series, ...]
    packages: tuple[int, ...]
    coefficients: Coefficients = field(default_factory=Coefficients)
    idle: IdlePolicy = "separate"
    period_ns: int = UPDATE_PERIOD_NS
    class_of: ClassOf = itself

    def __post_init__(self) -> None:
        self.domain_names = tuple(dict.fromkeys(s.domain for s in self.series))
        self.main = main_domain(self.domain_names)
        self.domains = {name: DomainSums(np.zeros(0, np.int64)) for name in self.domain_names}
        self.zones = {n: zones(self.series, self.packages, n) for n in self.domain_names}
        self.notes: dict[str, int] = {}  #: what happened while learning, in how many blocks
        self.models: dict[str, PowerModel] = {}  #: the last that windows were split by
        self.cpu_ns = np.zeros(0, np.int64)
        self.counters = np.zeros((0, COUNTERS))
        self.counted_ns = np.zeros((0, COUNTERS))
        self.idle_ns = self.lost_ns = self.windows = self.unattributed = 0
        self.window_ns_max = 0
        self.causes: Counter[str] = Counter()
        self.used_counters = False

    @property
    def groups(self) -> int:
        return len(self.cpu_ns)

    @property
    def errors(self) -> GroupErrors:
        """The main domain's."""
        return self.domains[self.main].errors if self.domains else GroupErrors()

    def add(
        self, batch: WindowBatch, models: Mapping[str, PowerModel] | None = None
    ) -> list[Split]:
        """Adds a batch; returns how each series was split, in the order of `series`."""
        return self.add_block([batch], models or {})[0]

    def add_block(
        self, batches: Sequence[WindowBatch], models: Mapping[str, PowerModel]
    ) -> list[list[Split]]:
        """Adds batches whose errors of the model are common; domains without one use the prior."""
        for batch in batches:
            self.grow(int(batch.entries.group.max(initial=-1)) + 1)
            self._add_time(batch)
            self._add_causes(batch.energy)
        none = np.zeros(0, np.int64)
        present = np.unique(np.concatenate([none, *(b.entries.group for b in batches)]))
        splits: list[dict[int, Split]] = [{} for _ in batches]
        for domain in self.domain_names:
            block = _Block(self, domain, batches, models.get(domain), present)
            for batch, found in zip(batches, splits, strict=True):
                found.update(block.add(batch))
            block.close()
        return [[found[s] for s in range(len(self.series))] for found in splits]

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
            sums.shared_nj = np.append(sums.shared_nj, np.zeros(missing, np.int64))
            sums.errors.grow(groups)

    def copy(self) -> Ledger:
        """A ledger with the same sums, which goes on by itself."""
        out = copy.copy(self)
        for name in ("cpu_ns", "counters", "counted_ns", "causes", "models", "notes"):
            setattr(out, name, copy.copy(getattr(self, name)))
        out.domains = copy.deepcopy(self.domains)
        return out

    def move(self, source: int, target: int) -> None:
        """What was one group's is another's from now on: its energy, time and errors."""
        self.grow(max(source, target) + 1)
        energies = (e for sums in self.domains.values() for e in (sums.energy_nj, sums.shared_nj))
        for sums in (self.cpu_ns, self.counters, self.counted_ns, *energies):
            sums[target] += sums[source]
            sums[source] = 0
        for domain in self.domains.values():
            domain.errors.move(source, target)

    def ci95(
        self, domain: str = "", *, total_error: float = 0.0, record_loss: float = 0.0
    ) -> tuple[F64, F64]:
        """95 % interval (low, high) in nJ of every group's energy in a domain, or in the main one.

        `total_error`: relative 95 % error of the total; `record_loss`: share of query records that
        were lost. Raises `KeyError` for a domain that was not measured.
        """
        sums = self.domains[domain or self.main]
        return sums.errors.ci95(sums.energy_nj, total_error=total_error, record_loss=record_loss)

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


class _Block:
    """One domain's part of a block: batches whose model errors are common."""

    def __init__(
        self,
        ledger: Ledger,
        domain: str,
        batches: Sequence[WindowBatch],
        model: PowerModel | None,
        groups: I64,
    ) -> None:
        self._ledger, self._domain, self._groups = ledger, domain, groups
        self._sums, self._zones = ledger.domains[domain], ledger.zones[domain]
        weights = ledger.coefficients.of(domain)
        counters = any(by_counters(batch.entries, weights) for batch in batches)
        packages = [zone.package for zone in self._zones]
        self._model = model or PowerModel.of(
            ledger.coefficients, domain, packages, counters=counters
        )
        if domain == ledger.main:
            ledger.used_counters |= counters
        ledger.models[domain] = self._model
        self._moves = Sensitivity.none(len(groups), self._model)
        self._static_ns = np.zeros(len(self._zones))

    def add(self, batch: WindowBatch) -> list[tuple[int, Split]]:
        """Splits the domain's counters; returns each with its number among the series."""
        out = []
        for z, zone in enumerate(self._zones):
            entries, load = zone.take(batch)
            n = len(load.dt_ns)
            features = entry_features(entries, n)
            column = self._model.column(self._ledger.class_of(entries.group))
            busy = crowd(entries)
            weight = self._model.weight(features, busy, column)
            row = np.searchsorted(self._groups, entries.group)
            part = 1.0 / len(zone.series)
            for s in zone.series:
                rest_w, trust = self._rest(s, z, batch, load, real_sums(entries.window, weight, n))
                found = split(
                    batch.energy.energy_nj[s],
                    batch.energy.known[s],
                    load,
                    entries,
                    weight,
                    idle_w=rest_w,
                    shared_w=float(self._model.shared_w[z]) * part,
                    policy=self._ledger.idle,
                )
                one = Portion(
                    z, entries, load, row, column, features, busy, weight, found, part, trust
                )
                apart = self._ledger.idle == "separate"
                add_portion(self._moves, self._model, one, rest_apart=apart)
                self._add_sums(s, batch, one)
                out.append((s, found))
        return out

    def _rest(self, s: int, z: int, batch: WindowBatch, load: Load, weight: F64) -> tuple[F64, F64]:
        """(n,) power at rest in each window, and how far a surprise in its energy is trusted.

        A window's energy is off by the errors of its edges. If all of that were dynamic, whoever
        ran in a nearly idle window would pay whenever it is too high, and get nothing back
        when it is too low. So a surprise is split by how likely it is the edges' or the owners'.
        """
        model, part = self._model, 1.0 / len(self._zones[z].series)
        rest_w = model.rest_w(z, batch.first, len(load.dt_ns)) * part
        if not model.learned or self._ledger.idle != "separate":
            return rest_w, np.ones(len(rest_w))
        series = self._ledger.series[s]
        dt_ns = np.maximum(load.dt_ns, 1).astype(np.float64)
        above = part * (model.shared_w[z] * load.active_ns + weight)
        expected = rest_w * dt_ns + above
        edge = edge_sigma_nj(
            expected,
            np.ones(len(dt_ns)),
            dt_ns,
            period_ns=float(self._ledger.period_ns),
            half_width_ns=batch.energy.half_width_ns[s].astype(np.float64),
            unit_nj=series.unit_j * 1e9 if series.has_unit else 0.0,
        )
        own = (model.spread * above) ** 2
        trust = own / np.maximum(own + 2.0 * edge**2, 1e-30)
        surprise = batch.energy.energy_nj[s] - expected
        # Nobody ran: all of it is at rest anyway.
        trust[above <= 0] = 1.0
        return np.maximum(rest_w + (1.0 - trust) * surprise / dt_ns, 0.0), trust

    def close(self) -> None:
        """Adds what is common to the block."""
        sigma_nj = self._moves.sigma_nj(self._model)
        self._sums.errors.add("model_nj", self._groups, sigma_nj)
        if self._ledger.idle == "separate":
            of_idle = self._model.covariance[: len(self._zones), : len(self._zones)]
            variance = float(self._static_ns @ of_idle @ self._static_ns)
            for side in (0, 1):
                self._sums.idle_slack_nj[side] += Z95 * max(variance, 0.0) ** 0.5

    def _add_sums(self, s: int, batch: WindowBatch, one: Portion) -> None:
        """The energies of one series, and what the interval needs beside the model's errors."""
        energy, sums, entries, out = batch.energy, self._sums, one.entries, one.out
        total = np.where(energy.known[s], energy.energy_nj[s], 0)
        np.add.at(sums.energy_nj, entries.group, out.entry_nj)
        sums.measured_nj += int(total.sum())
        sums.idle_nj += int(out.idle_nj.sum())
        sums.residual_nj += int(out.residual_nj.sum())
        w, count, weight = entries.window, len(total), one.weight
        e = out.entry_nj.astype(np.float64)
        active_nj = real_sums(w, e, count)
        among = e / np.maximum(active_nj[w], 1.0)
        # What was lost was split by weight, not by energies that rounding may have left at 0.
        weight_sum = real_sums(w, weight, count)[w]
        of_weight = weight / np.where(weight_sum > 0, weight_sum, 1.0)
        of_weight = np.where(weight_sum > 0, of_weight, among)
        series = self._ledger.series[s]
        x = edge_sigma_nj(
            e,
            e / np.maximum(total.astype(np.float64)[w], 1.0),
            np.diff(energy.boundaries_ns).astype(np.float64)[w],
            period_ns=float(self._ledger.period_ns),
            half_width_ns=energy.half_width_ns[s].astype(np.float64)[w],
            unit_nj=series.unit_j * 1e9 if series.has_unit else 0.0,
        )
        errors = sums.errors
        errors.add_random(s, w + batch.first, entries.group, x)
        uncounted = entries.scaled_ns / np.maximum(entries.cpu_ns, 1)
        # Time that was not counted is like the time that was, to within what counters leave open.
        unsure = self._model.spread * uncounted * e * (1.0 - among)
        errors.add("scaled_nj", entries.group, unsure)
        errors.add("loss_nj", entries.group, of_weight * out.residual_nj[w])
        busy_ns = real_sums(w, entries.cpu_ns, count)
        some = np.bincount(w, minlength=count) > 0
        self._static_ns[one.zone] += float(one.load.dt_ns[some].sum()) * one.part
        if np.isnan(self._model.idle_w[one.zone]) and self._ledger.idle == "separate":
            down = unknown_static_nj(total, one.load, busy_ns)
            errors.add("static_down_nj", entries.group, among * down[w])
            sums.idle_slack_nj[1] += float(down[some].sum())
