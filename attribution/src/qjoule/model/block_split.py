# SPDX-License-Identifier: Apache-2.0
"""Splits one domain of a block of windows among its groups and adds to the ledger's sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import F64, WindowBatch, real_sums
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.energy import I64, Series
from qjoule.model.explain import RowWatch
from qjoule.model.fit.rows import ClassOf
from qjoule.model.group_errors import GroupErrors
from qjoule.model.interval import Z95, edge_sigma_nj
from qjoule.model.power_model import PowerModel
from qjoule.model.sensitivity import Portion, Sensitivity, add_portion
from qjoule.model.span_sums import SpanSums
from qjoule.model.split import Effects, Split, split, unknown_static_nj
from qjoule.model.zones import Load, Zone


@dataclass
class DomainSums:
    """Sums of one domain over its packages. Its `energy_nj` and `shared_nj` are per group."""

    energy_nj: I64
    shared_nj: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    errors: GroupErrors = field(default_factory=GroupErrors)
    measured_nj: int = 0
    idle_nj: int = 0
    residual_nj: int = 0
    idle_slack_nj: list[float] = field(default_factory=lambda: [0.0, 0.0])  #: 95 %, down and up

    def merge(self, later: DomainSums) -> None:
        """Adds the sums of windows that follow; there must be room for all of its groups."""
        count = len(later.energy_nj)
        self.energy_nj[:count] += later.energy_nj
        self.shared_nj[:count] += later.shared_nj
        self.errors.merge(later.errors)
        self.measured_nj += later.measured_nj
        self.idle_nj += later.idle_nj
        self.residual_nj += later.residual_nj
        for side in (0, 1):
            self.idle_slack_nj[side] += later.idle_slack_nj[side]


@dataclass(frozen=True)
class DomainTerms:
    """How one domain is split. `series` are all counters; `zones` refer to theirs by number.

    `period_ns`: how often the counters are updated. `class_of`: maps groups to the model's
    classes.
    """

    domain: str
    series: tuple[Series, ...]
    zones: tuple[Zone, ...]
    idle: IdlePolicy
    period_ns: int
    class_of: ClassOf


class BlockSplit:
    """One domain's part of a block: batches that share the model's errors.

    `groups`: all groups that ran in the block, sorted. Adds to `sums`, `spans` and `watch`.
    """

    def __init__(
        self,
        terms: DomainTerms,
        sums: DomainSums,
        model: PowerModel,
        groups: I64,
        spans: SpanSums | None,
        *,
        watch: RowWatch | None = None,
    ) -> None:
        self._terms, self._sums, self._model = terms, sums, model
        self._groups, self._spans, self._zones = groups, spans, terms.zones
        self._watch = watch
        self._moves = Sensitivity.none(len(groups), model)
        self._static_ns = np.zeros(len(terms.zones))

    def add(self, batch_of_all: WindowBatch) -> list[tuple[int, Split]]:
        """Splits the domain's counters; returns each split with its number among the series.

        The windows of a split are those of the zone's `view` of the batch.
        """
        splits = []
        for z, zone in enumerate(self._zones):
            batch = zone.view(batch_of_all)
            part_of_zone = zone.take(batch)
            entries, load = part_of_zone.entries, part_of_zone.load
            column = self._model.column(self._terms.class_of(entries.group))
            weight = self._model.weight(part_of_zone.features, part_of_zone.crowd, column)
            window_weight = real_sums(entries.window, weight, len(load.dt_ns))
            effects_nj = self._model.effects_nj(entries.effects)
            once_nj = self._model.once_nj(entries.effects)
            window_effects_nj = real_sums(entries.window, effects_nj, len(load.dt_ns))
            row = np.searchsorted(self._groups, entries.group)
            share = 1.0 / len(zone.series)
            for s in zone.series:
                rest_w, trust = self._power_at_rest(
                    s, z, batch, load, (part_of_zone.busy_ns, window_weight, window_effects_nj)
                )
                result = split(
                    batch.energy.energy_nj[s],
                    batch.energy.known[s],
                    load,
                    entries,
                    weight,
                    idle_w=rest_w,
                    shared_w=float(self._model.shared_w[z]) * share,
                    policy=self._terms.idle,
                    effects=Effects(effects_nj * share, once_nj * share)
                    if effects_nj.any()
                    else None,
                )
                portion = Portion(
                    z, part_of_zone, row, column, weight, window_weight, result, share, trust
                )
                rest_apart = self._terms.idle == "separate"
                add_portion(self._moves, self._model, portion, rest_apart=rest_apart)
                self._add_sums(s, batch, portion)
                if self._watch:
                    self._watch.add(self._model, portion, batch.first)
                splits.append((s, result))
        return splits

    def _power_at_rest(
        self, s: int, z: int, batch: WindowBatch, load: Load, window_sums: tuple[F64, F64, F64]
    ) -> tuple[F64, F64]:
        """Power at rest in each window (n,), and the share of an unexpected energy that counts as
        dynamic (n,).

        A window's energy is wrong by the errors of its two edges. If all of that error were treated
        as dynamic, whoever ran in a nearly idle window would pay when the energy is too high, but
        get nothing back when it is too low. So an unexpected energy is divided by the variances of
        edge errors and of the owners' power. `window_sums`: busy time, weight and effects of each
        window.
        """
        model, share = self._model, 1.0 / len(self._zones[z].series)
        rest_w = model.rest_w(z, batch.first, len(load.dt_ns)) * share
        if not model.learned or self._terms.idle != "separate":
            return rest_w, np.ones(len(rest_w))
        series = self._terms.series[s]
        dt_ns = np.maximum(load.dt_ns, 1).astype(np.float64)
        lost_nj, lost_sigma_nj = _lost_nj(load, *window_sums[:2])
        active = np.minimum(load.active_ns + load.lost_ns, load.dt_ns)
        above_nj = share * (model.shared_w[z] * active + window_sums[1] + window_sums[2] + lost_nj)
        expected = rest_w * dt_ns + above_nj
        edge_nj = edge_sigma_nj(
            expected,
            np.ones(len(dt_ns)),
            dt_ns,
            period_ns=float(self._terms.period_ns),
            half_width_ns=batch.energy.half_width_ns[s].astype(np.float64),
            unit_nj=series.unit_j * 1e9 if series.has_unit else 0.0,
        )
        model2 = (model.spread * above_nj) ** 2 + (share * lost_sigma_nj) ** 2
        trust = model2 / np.maximum(model2 + 2.0 * edge_nj**2, 1e-30)
        surprise = batch.energy.energy_nj[s] - expected
        # Nothing ran, so all energy is power at rest.
        trust[above_nj <= 0] = 1.0
        return np.maximum(rest_w + (1.0 - trust) * surprise / dt_ns, 0.0), trust

    def close(self) -> None:
        """Adds the errors that the whole block has in common."""
        sigma_nj = self._moves.sigma_nj(self._model)
        of_shares = self._moves.of_shares(self._model)
        self._sums.errors.add_model(self._groups, sigma_nj, of_shares)
        self._sums.errors.add("tails_nj", self._groups, self._moves.one_sided_nj(self._model))
        if self._watch:
            self._watch.close(self._model, self._moves, self._groups, self._terms.class_of)
        if self._terms.idle == "separate":
            idle_covariance = self._model.covariance[: len(self._zones), : len(self._zones)]
            variance = float(self._static_ns @ idle_covariance @ self._static_ns)
            for side in (0, 1):
                self._sums.idle_slack_nj[side] += Z95 * max(variance, 0.0) ** 0.5
            if self._model.one_sided is not None:
                moved = float(self._static_ns @ self._model.one_sided[: len(self._zones)])
                self._sums.idle_slack_nj[int(moved > 0)] += abs(moved)

    def _add_sums(self, s: int, batch: WindowBatch, portion: Portion) -> None:
        """Adds one series' energies, and the errors that its interval needs besides the model's."""
        energy, sums, result = batch.energy, self._sums, portion.split
        entries, load = portion.zone_part.entries, portion.zone_part.load
        total = np.where(energy.known[s], energy.energy_nj[s], 0)
        np.add.at(sums.energy_nj, entries.group, result.entry_nj)
        np.add.at(sums.shared_nj, entries.group, result.entry_shared_nj)
        if self._spans:
            begin_ns = energy.boundaries_ns[entries.window]
            self._spans.add_used(self._terms.domain, begin_ns, entries.group, result.entry_nj)
        sums.measured_nj += int(total.sum())
        sums.idle_nj += int(result.idle_nj.sum())
        sums.residual_nj += int(result.residual_nj.sum())
        w, e = entries.window, result.entry_nj.astype(np.float64)
        energy_share = e / np.maximum(real_sums(w, e, len(total)), 1.0)[w]
        series = self._terms.series[s]
        # An edge error changes all entries of a window in proportion.
        edge_share = edge_sigma_nj(
            np.ones(len(total)),
            1.0 / np.maximum(total, 1),
            load.dt_ns.astype(np.float64),
            period_ns=float(self._terms.period_ns),
            half_width_ns=energy.half_width_ns[s].astype(np.float64),
            unit_nj=series.unit_j * 1e9 if series.has_unit else 0.0,
        )
        errors = sums.errors
        errors.add_random(s, w + batch.first, entries.group, e * edge_share[w])
        if entries.scaled_ns.any():
            uncounted = entries.scaled_ns / np.maximum(entries.cpu_ns, 1)
            # Time without counters is assumed to be like counted time, within the model's spread.
            uncounted_nj = self._model.spread * uncounted * e * (1.0 - energy_share)
            errors.add("scaled_nj", entries.group, uncounted_nj)
        if result.residual_nj.any():
            # Lost energy was split by weight; energies may have been rounded to 0.
            window_weight = portion.window_weight[w]
            weight_share = np.where(
                window_weight > 0,
                portion.weight / np.where(window_weight > 0, window_weight, 1.0),
                energy_share,
            )
            errors.add("loss_nj", entries.group, weight_share * result.residual_nj[w])
        is_busy = portion.zone_part.busy_ns > 0
        self._static_ns[portion.zone] += float(load.dt_ns[is_busy].sum()) * portion.share
        if np.isnan(self._model.idle_w[portion.zone]) and self._terms.idle == "separate":
            down = unknown_static_nj(total, load, portion.zone_part.busy_ns)
            errors.add("rest_nj", entries.group, energy_share * down[w])
            sums.idle_slack_nj[1] += float(down[is_busy].sum())


def _lost_nj(load: Load, busy_ns: F64, weight: F64) -> tuple[F64, F64]:
    """Weight of the time that each window lost (n,), and its standard error (n,).

    A loss is reported after the fact and spread over the time since the report before. In reality,
    a CPU's records of one moment are either all present or all lost, so the variance is that of a
    Bernoulli variable.
    """
    busy, dt_ns = busy_ns > 0, load.dt_ns.astype(np.float64)
    mean = float(weight[busy].sum()) / max(float(busy_ns[busy].sum()), 1.0)
    per_ns = np.where(busy, weight / np.where(busy, busy_ns, 1.0), mean)
    lost_ns = load.lost_ns.astype(np.float64)
    return per_ns * lost_ns, per_ns * np.sqrt(lost_ns * np.maximum(dt_ns, lost_ns))
