# SPDX-License-Identifier: Apache-2.0
"""The ledger: adds up windows, live or recorded, and gives the energy of every group."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qjoule.model.arrays import COUNTERS, F64, Renumbering, WindowBatch, distinct
from qjoule.model.block_split import BlockSplit, DomainSums, DomainTerms
from qjoule.model.coefficients import Coefficients, IdlePolicy
from qjoule.model.energy import I64, UPDATE_PERIOD_NS, WALL, Cause, Series, WindowEnergy
from qjoule.model.explain import RowWatch
from qjoule.model.features import by_counters
from qjoule.model.fit.rows import ClassOf, itself
from qjoule.model.group_errors import GroupErrors
from qjoule.model.interval import EnergyErrors
from qjoule.model.power_model import PowerModel
from qjoule.model.slow import slow_of
from qjoule.model.span_sums import CPU_TIME, SpanSums
from qjoule.model.split import Split
from qjoule.model.zones import zones

#: Rows are about the first of these domains that the machine has.
MAIN_DOMAINS = ("package", "psys", "core", WALL)

#: Sums per group, besides energies.
_OF_GROUPS = ("cpu_ns", "stolen_ns", "counters", "counted_ns", "windows_run")


def main_domain(names: Sequence[str]) -> str:
    """The domain that totals and rows are about; "none" without any."""
    return next((name for name in MAIN_DOMAINS if name in names), names[0] if names else "none")


@dataclass
class Ledger:
    """Sums over window batches. `series` must be those of every batch.

    `period_ns`: update period of the counters; 0 if they are computed when read. `class_of`: maps
    groups to the classes of the factors in the models.
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
        self.left_out: Mapping[str, str] = {}  #: domains whose counters are wrong, and why
        self.notes: dict[str, int] = {}  #: learning events, and in how many blocks
        self.core_blocks = 0  #: blocks in which counters of single cores were used
        self.models: dict[str, PowerModel] = {}  #: the models that split the last windows
        self.cpu_ns = np.zeros(0, np.int64)
        self.windows_run = np.zeros(0, np.int64)  #: by package, so that it counts in each
        self.stolen_ns = np.zeros(0)
        self.counters = np.zeros((0, COUNTERS))
        self.counted_ns = np.zeros((0, COUNTERS))
        self.idle_ns = self.lost_ns = self.windows = self.unattributed = 0
        self.window_ns_max = 0
        self.causes: Counter[str] = Counter()
        self.used_counters = False
        self.spans: SpanSums | None = None  #: for servers whose requests own no CPU time, if needed
        self.watch: RowWatch | None = None  #: notes where one row's joules come from, if asked
        self.flags: dict[int, tuple[str, ...]] = {}  #: by group, in addition to those of its label
        self.remarks: tuple[str, ...] = ()

    @property
    def shown_names(self) -> tuple[str, ...]:
        """The domains that results contain, the main one first."""
        names = dict.fromkeys((self.main, *self.domain_names) if self.domain_names else ())
        return tuple(name for name in names if name not in self.left_out)

    @property
    def groups(self) -> int:
        return len(self.cpu_ns)

    @property
    def errors(self) -> GroupErrors:
        """The main domain's."""
        return self.domains[self.main].errors if self.domains else GroupErrors()

    def add_block(
        self, batches: Sequence[WindowBatch], models: Mapping[str, PowerModel]
    ) -> list[list[Split]]:
        """Adds batches that share the model's errors: a block is summed up apart and then merged.
        Returns how each batch's series were split."""
        part, splits = self.part(batches, models)
        self.merge(part)
        return splits

    def part(
        self, batches: Sequence[WindowBatch], models: Mapping[str, PowerModel]
    ) -> tuple[Ledger, list[list[Split]]]:
        """Splits batches that share the model's errors; domains without a model use the prior.

        Returns a ledger of them alone that can be merged into this one, and how each batch's series
        were split. The two share `spans`.
        """
        part = self.empty()
        part.spans, part.watch = self.spans, self.watch
        return part, part._fill(batches, models)

    def empty(self) -> Ledger:
        """A ledger of no windows, under the same terms; it has no sums over spans."""
        return Ledger(
            self.series, self.packages, self.coefficients, self.idle, self.period_ns, self.class_of
        )

    def merge(self, later: Ledger) -> None:
        """Adds a ledger of windows that follow, made under the same terms; not its `spans`.

        The result depends, to the bit, only on how windows were divided into such ledgers and on
        their order.
        """
        self.grow(later.groups)
        count = later.groups
        for name in _OF_GROUPS:
            getattr(self, name)[:count] += getattr(later, name)
        for name in ("idle_ns", "lost_ns", "windows", "unattributed"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.window_ns_max = max(self.window_ns_max, later.window_ns_max)
        self.causes.update(later.causes)
        self.used_counters |= later.used_counters
        self.models |= later.models
        for name, sums in self.domains.items():
            sums.merge(later.domains[name])

    def _fill(
        self, batches: Sequence[WindowBatch], models: Mapping[str, PowerModel]
    ) -> list[list[Split]]:
        for batch in batches:
            self.grow(int(batch.entries.group.max(initial=-1)) + 1)
            self._add_time(batch)
            self._add_causes(batch.energy)
        no_groups = np.zeros(0, np.int64)
        present = distinct(np.concatenate([no_groups, *(b.entries.group for b in batches)]))
        splits: list[dict[int, Split]] = [{} for _ in batches]
        for domain in self.domain_names:
            block = self._block_split(domain, batches, models.get(domain), present)
            for batch, batch_splits in zip(batches, splits, strict=True):
                batch_splits.update(block.add(batch))
            block.close()
        return [[batch_splits[s] for s in range(len(self.series))] for batch_splits in splits]

    def _block_split(
        self,
        domain: str,
        batches: Sequence[WindowBatch],
        model: PowerModel | None,
        groups: I64,
    ) -> BlockSplit:
        weights, domain_zones = self.coefficients.of(domain), self.zones[domain]
        counters = any(by_counters(batch.entries, weights) for batch in batches)
        packages = [zone.package for zone in domain_zones]
        model = model or PowerModel.of(self.coefficients, domain, packages, counters=counters)
        if domain == self.main:
            self.used_counters |= counters
        self.models[domain] = model
        slow = slow_of([self.series[s] for zone in domain_zones for s in zone.series])
        period_ns = 0 if slow else self.period_ns  # a slow counter's half widths suffice
        terms = DomainTerms(
            domain, self.series, tuple(domain_zones), self.idle, period_ns, self.class_of
        )
        watch = self.watch if domain == self.main else None
        return BlockSplit(terms, self.domains[domain], model, groups, self.spans, watch=watch)

    def grow(self, groups: int) -> None:
        """Makes room for `groups` groups."""
        missing = groups - self.groups
        if missing <= 0:
            return
        self.cpu_ns = np.append(self.cpu_ns, np.zeros(missing, np.int64))
        self.windows_run = np.append(self.windows_run, np.zeros(missing, np.int64))
        self.stolen_ns = np.append(self.stolen_ns, np.zeros(missing))
        self.counters = np.vstack([self.counters, np.zeros((missing, COUNTERS))])
        self.counted_ns = np.vstack([self.counted_ns, np.zeros((missing, COUNTERS))])
        for sums in self.domains.values():
            sums.energy_nj = np.append(sums.energy_nj, np.zeros(missing, np.int64))
            sums.shared_nj = np.append(sums.shared_nj, np.zeros(missing, np.int64))
            sums.errors.grow(groups)

    def copy(self) -> Ledger:
        """An independent copy with the same sums."""
        duplicate = copy.copy(self)
        for name in (*_OF_GROUPS, "causes", "models", "notes", "flags"):
            setattr(duplicate, name, copy.copy(getattr(self, name)))
        duplicate.domains = copy.deepcopy(self.domains)
        duplicate.spans = self.spans.copy() if self.spans else None
        return duplicate

    def move(self, source: int, target: int) -> None:
        """Moves the energy, time and errors of group `source` to group `target`."""
        self.grow(max(source, target) + 1)
        energies = (e for sums in self.domains.values() for e in (sums.energy_nj, sums.shared_nj))
        for sums in (*(getattr(self, name) for name in _OF_GROUPS), *energies):
            sums[target] += sums[source]
            sums[source] = 0
        for domain in self.domains.values():
            domain.errors.move(source, target)
        if self.spans:
            self.spans.move(source, target)

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups; the sums of groups that are merged are added up."""
        self.grow(len(renumbering.group))
        for name in _OF_GROUPS:
            setattr(self, name, renumbering.sums(getattr(self, name)))
        for domain in self.domains.values():
            domain.energy_nj = renumbering.sums(domain.energy_nj)
            domain.shared_nj = renumbering.sums(domain.shared_nj)
            domain.errors.renumber(renumbering)
        self.models = {name: model.renumbered(renumbering) for name, model in self.models.items()}
        if self.spans:
            self.spans.renumber(renumbering)

    def ci95(self, domain: str = "", *, record_loss: float = 0.0) -> tuple[F64, F64]:
        """95 % interval (low, high) in nJ of every group's energy in a domain, or in the main one.

        It is of the groups' shares, without the error of the total. `record_loss`: share of query
        records that were lost. Raises `KeyError` for a domain that was not measured.
        """
        sums = self.domains[domain or self.main]
        return sums.errors.ci95(sums.energy_nj, record_loss=record_loss)

    def error_parts(
        self, domain: str, *, total_error: float, record_loss: float, estimated: bool
    ) -> EnergyErrors[F64]:
        """The errors that make up those intervals, and that of the total, (groups,).

        `total_error`: its relative 95 % error. `estimated`: the total is estimated from the load
        alone, so times of a group alone add no information beyond its weight.
        """
        sums = self.domains[domain]
        parts = sums.errors.parts(sums.energy_nj, total_error=total_error, record_loss=record_loss)
        if not estimated or domain not in self.models:
            return parts
        of_weight_nj = self.models[domain].spread * sums.energy_nj
        return replace(parts, model_nj=np.maximum(parts.model_nj, of_weight_nj))

    def share_errors(self, *, record_loss: float, estimated: bool) -> EnergyErrors[F64]:
        """The errors that make up the intervals of the groups' shares of the main domain's energy,
        in nJ, (groups,); the arguments are those of `error_parts`."""
        sums = self.domains[self.main]
        parts = sums.errors.of_shares(sums.energy_nj, record_loss=record_loss)
        if not estimated or self.main not in self.models:
            return parts
        energy = sums.energy_nj.astype(np.float64)
        share = energy / max(float(energy.sum()), 1.0)
        others_energy2 = (energy**2).sum() - energy**2
        of_weight_nj = np.sqrt(((1.0 - share) * energy) ** 2 + share**2 * others_energy2)
        of_weight_nj *= self.models[self.main].spread
        return replace(parts, model_nj=np.maximum(parts.model_nj, of_weight_nj))

    def _add_time(self, batch: WindowBatch) -> None:
        entries, bounds_ns = batch.entries, batch.energy.boundaries_ns
        np.add.at(self.cpu_ns, entries.group, entries.cpu_ns)
        np.add.at(self.windows_run, entries.group, entries.cpu_ns > 0)
        if entries.stolen_ns.any():
            np.add.at(self.stolen_ns, entries.group, entries.stolen_ns)
        if self.spans:
            self.spans.add_time(bounds_ns)
            self.spans.add_used(CPU_TIME, bounds_ns[entries.window], entries.group, entries.cpu_ns)
            if batch.requests:
                self.spans.add_requests(bounds_ns, batch.requests)
        for i in range(COUNTERS):
            np.add.at(self.counters[:, i], entries.group, entries.counters[:, i])
            np.add.at(self.counted_ns[:, i], entries.group, entries.counted_ns[:, i])
        self.idle_ns += int(batch.idle_ns.sum())
        self.lost_ns += int(batch.lost_ns.sum())
        self.windows += len(bounds_ns) - 1
        views = [zone.view(batch).energy for zone in self.zones.get(self.main, ())]
        for energy in views:
            usable = energy.known.any(axis=0)
            longest_ns = int(np.diff(energy.boundaries_ns)[usable].max(initial=0))
            self.window_ns_max = max(self.window_ns_max, longest_ns)

    def _add_causes(self, energy: WindowEnergy) -> None:
        unattributed = np.zeros(energy.cause.shape[1], bool)
        for s, series in enumerate(self.series):
            prefix = "" if series.domain == self.main else f"{series.domain} "
            for cause, count in zip(*np.unique(energy.cause[s], return_counts=True), strict=True):
                if cause not in (Cause.NONE, Cause.PART):
                    self.causes[prefix + Cause(int(cause)).name.lower()] += int(count)
            if series.domain == self.main:
                cause = energy.cause[s]
                unattributed |= (cause > Cause.EDGE) & (cause != Cause.PART)
        self.unattributed += int(unattributed.sum())
