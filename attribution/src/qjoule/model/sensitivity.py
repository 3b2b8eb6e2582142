# SPDX-License-Identifier: Apache-2.0
"""Derivatives of each group's energy by the parameters of the model, summed over windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model._sweep import add_products
from qjoule.model.arrays import F64, real_sums
from qjoule.model.coefficients import WEIGHT_TERMS
from qjoule.model.energy import I64
from qjoule.model.features import basis_slopes
from qjoule.model.group_errors import ShareSigma
from qjoule.model.interval import Z95
from qjoule.model.power_model import PowerModel
from qjoule.model.split import Split
from qjoule.model.zones import Part

_K = WEIGHT_TERMS.index("k")
#: Standard error of the share of a factor's deviation that belongs to its class.
_SHARED_DEVIATION = 0.4


@dataclass
class Sensitivity:
    """Sums of derivatives of the groups' energy (nJ) by the parameters of one model.

    `slopes` (groups, p), in the order of `PowerModel.covariance`. `own_nj` (groups,): by the
    group's own factor, for groups whose class has none in the model. `energy_nj` (groups,): their
    energy.
    """

    slopes: F64
    own_nj: F64
    energy_nj: F64

    @staticmethod
    def none(groups: int, model: PowerModel) -> Sensitivity:
        none = np.zeros(groups)
        return Sensitivity(np.zeros((groups, len(model.covariance))), none, none.copy())

    def sigma_nj(self, model: PowerModel) -> F64:
        """(groups,) standard error of each group's energy."""
        own_sigma_nj = np.hypot(model.spread * self.own_nj, model.unexplained * self.energy_nj)
        return np.asarray(np.sqrt(variance_of(self.slopes, model) + own_sigma_nj**2))

    def one_sided_nj(self, model: PowerModel) -> F64:
        """(groups,) by how much each group's energy may exceed its interval of `sigma_nj` (or fall
        below it, where negative), at 95 %: see `PowerModel.one_sided`."""
        if model.one_sided is None:
            return np.zeros(len(self.slopes))
        moved, half_width_nj = self.slopes @ model.one_sided, Z95 * self.sigma_nj(model)
        return np.asarray(np.sign(moved) * (np.hypot(moved, half_width_nj) - half_width_nj))

    def of_shares(self, model: PowerModel) -> ShareSigma:
        """The model's error of each group's share of all groups' energy.

        A parameter's slopes of all groups' energy add up to that of the total, so what moves all
        alike moves no share (quotient rule).
        """
        energy = np.maximum(self.energy_nj, 0.0)
        share = energy / max(float(energy.sum()), 1.0)
        total_slopes = self.slopes.sum(axis=0)
        # What one group's own factor adds is taken from the others, by their shares.
        others_share = np.maximum(1.0 - share, 1e-3)
        moved2 = (model.spread * self.own_nj / others_share) ** 2
        own2 = (model.spread * self.own_nj) ** 2 + share**2 * (moved2.sum() - moved2)
        unexplained2 = (others_share * energy) ** 2 + share**2 * ((energy**2).sum() - energy**2)
        share_slopes = self.slopes - share[:, None] * total_slopes
        variance = variance_of(share_slopes, model)
        if model.one_sided is not None:
            variance += np.square(share_slopes @ model.one_sided / Z95)
        total = float(variance_of(total_slopes[None, :], model)[0])
        total += model.unexplained**2 * float((energy**2).sum())
        sigma_nj = np.sqrt(variance + own2 + model.unexplained**2 * unexplained2)
        return ShareSigma(share, np.asarray(sigma_nj), total**0.5)


def variance_of(slopes: F64, model: PowerModel) -> F64:
    """(n,) variance of energies with `slopes` (n, p)."""
    variance = ((slopes @ model.covariance) * slopes).sum(axis=1)
    # A factor that is not 1 shows that the counters miss something of a class. No window can show
    # whether its cores draw that or a shared part does (an uncore's clock, a tail).
    factors = slice(model.fixed, len(model.covariance))
    expected2 = np.square(model.factor - 1.0) + np.diag(model.covariance)[factors]
    variance += np.square(slopes[:, factors]) @ (_SHARED_DEVIATION**2 * expected2)
    return np.asarray(np.maximum(variance, 0.0))


@dataclass(frozen=True)
class Portion:
    """One counter's energy as it was split over the m entries of its zone.

    `row` (m,): number of each entry's group in `Sensitivity`; `column` (m,): of its class in the
    model, -1 without. `weight` (m,), and `window_weight` (n,) its sums. `share`: part of the zone's
    idle and shared power that this counter measures, where a package has several. `trust` (n,):
    share of an unexpected energy in a window that was treated as dynamic.
    """

    zone: int
    zone_part: Part
    row: I64
    column: I64
    weight: F64
    window_weight: F64
    split: Split
    share: float
    trust: F64


def add_portion(
    sums: Sensitivity, model: PowerModel, portion: Portion, *, rest_apart: bool
) -> None:
    """Adds one counter's split. `rest_apart`: no group's energy contains power at rest.

    A change of a window's dynamic energy moves every entry in proportion to its share of the
    weight. These derivatives are products of one sparse matrix of shares with a column per
    parameter. (Importing `scipy.sparse` for it would take as long as attributing a small trace.)
    """
    entries, load = portion.zone_part.entries, portion.zone_part.load
    w, size, count = entries.window, len(sums.own_nj), len(load.dt_ns)
    dynamic, busy_ns = portion.split.dynamic_nj.astype(np.float64), portion.zone_part.busy_ns
    per_weight = 1.0 / np.where(portion.window_weight > 0, portion.window_weight, np.inf)
    share = portion.weight * per_weight[w]
    # Lost time takes its part of the dynamic energy by the window's mean weight.
    owned_nj = dynamic * busy_ns / np.maximum(busy_ns + load.lost_ns, 1.0)
    sums.energy_nj += real_sums(portion.row, portion.split.entry_nj, size)
    dynamic_share, untrusted = portion.share * (dynamic > 0), 1.0 - portion.trust
    # If shared power takes all that rest leaves of a window, a change of it comes from rest.
    shared_nj = (
        portion.split.entry_nj - portion.split.entry_dynamic_nj - portion.split.entry_static_nj
    )
    awake = portion.share * ((dynamic > 0) | (real_sums(w, shared_nj, count) > 0))
    first = 2 * model.zones

    def total(values: F64) -> F64:
        return real_sums(portion.row, values, size)

    common = np.zeros((count, len(model.covariance)))
    if rest_apart and not np.isnan(model.idle_w[portion.zone]):
        common[:, portion.zone] = -dynamic_share * portion.trust * load.dt_ns
    shared_column = model.zones + portion.zone
    common[:, shared_column] = (
        -dynamic_share * portion.trust * np.minimum(load.dt_ns, load.active_ns)
    )
    sums.slopes[:, shared_column] += total(awake[w] * entries.shared_ns)
    moved = (owned_nj * per_weight)[w]
    for i, entry_slopes in enumerate(_weight_slopes(model, portion), first):
        common[:, i] = (untrusted - owned_nj * per_weight) * real_sums(w, entry_slopes, count)
        sums.slopes[:, i] += total(moved * entry_slopes)
    for i, entry_slopes in enumerate(entries.effects.T, first + len(WEIGHT_TERMS)):
        if entry_slopes.any():
            common[:, i] = -dynamic_share * portion.trust * real_sums(w, entry_slopes, count)
            sums.slopes[:, i] += total(awake[w] * entry_slopes)
    entry_nj = owned_nj[w] * share
    if (no_class := portion.column < 0).any():
        sums.own_nj += total(np.where(no_class, entry_nj * (1.0 - share), 0.0))
    if len(model.classes):
        # A class that draws more takes the energy from all others.
        factor = np.maximum(model.factor, 1e-3)
        class_nj = (untrusted * portion.window_weight - owned_nj)[:, None] / factor
        common[:, model.fixed :] = class_nj * _by_class(w, portion.column, share, class_nj.shape)
        own_slopes = _by_class(portion.row, portion.column, entry_nj, (size, len(factor)))
        sums.slopes[:, model.fixed :] += own_slopes / factor
    moved_by = np.zeros_like(sums.slopes)
    row, window = np.ascontiguousarray(portion.row), np.ascontiguousarray(w)
    add_products(moved_by, share, row, window, common, common.shape[1])
    sums.slopes += moved_by


def _weight_slopes(model: PowerModel, portion: Portion) -> F64:
    """(9, m): derivative of the entries' weights by each of `WEIGHT_TERMS`."""
    crowd = portion.zone_part.crowd
    saturation = model.saturation(crowd)
    slopes = basis_slopes(model.theta).T @ portion.zone_part.features.T
    slopes *= saturation * model.factors(portion.column)
    slopes[_K] = -crowd * saturation * portion.weight
    return np.asarray(slopes)


def _by_class(row: I64, column: I64, values: F64, shape: tuple[int, ...]) -> F64:
    """Sums of values by row and column; values in column -1 are left out."""
    sums = np.zeros(shape)
    if (has_column := column >= 0).all():
        np.add.at(sums.reshape(-1), row * shape[1] + column, values)
    else:
        np.add.at(
            sums.reshape(-1), row[has_column] * shape[1] + column[has_column], values[has_column]
        )
    return sums
