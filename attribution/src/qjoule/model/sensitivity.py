# SPDX-License-Identifier: Apache-2.0
"""How far an error of the model would move each group's energy: derivatives, summed over
windows."""

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
_WHOSE = 0.4


@dataclass
class Sensitivity:
    """Sums of derivatives of the groups' energy (nJ) by the parameters of one model.

    `slopes` (groups, p), in the order of `PowerModel.covariance`; `own_nj` (groups,): by the
    group's own factor, for groups whose class has none in the model. `energy_nj` (groups,): what
    they were given.
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
        own = np.hypot(model.spread * self.own_nj, model.unexplained * self.energy_nj)
        return np.asarray(np.sqrt(variance_of(self.slopes, model) + own**2))

    def one_sided_nj(self, model: PowerModel) -> F64:
        """(groups,) by how much each group's energy may be more (or less, where negative) than its
        interval of `sigma_nj` says, at 95 %: see `PowerModel.one_sided`."""
        if model.one_sided is None:
            return np.zeros(len(self.slopes))
        moved, half = self.slopes @ model.one_sided, Z95 * self.sigma_nj(model)
        return np.asarray(np.sign(moved) * (np.hypot(moved, half) - half))

    def of_shares(self, model: PowerModel) -> ShareSigma:
        """Of each group's share of what all groups were given.

        A parameter's slopes of all groups' energy add up to that of the total, so what moves all
        alike moves no share (quotient rule).
        """
        energy = np.maximum(self.energy_nj, 0.0)
        share = energy / max(float(energy.sum()), 1.0)
        of_total = self.slopes.sum(axis=0)
        # What one group's own factor adds is taken from the others, by their shares.
        others = np.maximum(1.0 - share, 1e-3)
        moved2 = (model.spread * self.own_nj / others) ** 2
        own2 = (model.spread * self.own_nj) ** 2 + share**2 * (moved2.sum() - moved2)
        beyond2 = (others * energy) ** 2 + share**2 * ((energy**2).sum() - energy**2)
        of_shares = self.slopes - share[:, None] * of_total
        variance = variance_of(of_shares, model)
        if model.one_sided is not None:
            variance += np.square(of_shares @ model.one_sided / Z95)
        total = float(variance_of(of_total[None, :], model)[0])
        total += model.unexplained**2 * float((energy**2).sum())
        sigma_nj = np.sqrt(variance + own2 + model.unexplained**2 * beyond2)
        return ShareSigma(share, np.asarray(sigma_nj), total**0.5)


def variance_of(slopes: F64, model: PowerModel) -> F64:
    """(n,) variance of energies with `slopes` (n, p)."""
    variance = ((slopes @ model.covariance) * slopes).sum(axis=1)
    # A factor that is not 1 shows that the counters miss something of a class. Whether its
    # cores draw that or what all share (an uncore's clock, a tail) no window can tell.
    factors = slice(model.fixed, len(model.covariance))
    expected2 = np.square(model.factor - 1.0) + np.diag(model.covariance)[factors]
    variance += np.square(slopes[:, factors]) @ (_WHOSE**2 * expected2)
    return np.asarray(np.maximum(variance, 0.0))


@dataclass(frozen=True)
class Portion:
    """One counter's energy as it was split over the m entries of its zone.

    `row` (m,): number of each entry's group in `Sensitivity`; `column` (m,): of its class in the
    model, -1 without. `weight` (m,), and `window_weight` (n,) its sums. `part`: share of the zone's
    idle and shared power that this counter measures, where a package has several. `trust` (n,):
    share of an unexpected energy in a window that was treated as dynamic.
    """

    zone: int
    taken: Part
    row: I64
    column: I64
    weight: F64
    window_weight: F64
    out: Split
    part: float
    trust: F64


def add_portion(sums: Sensitivity, model: PowerModel, one: Portion, *, rest_apart: bool) -> None:
    """Adds one counter's split. `rest_apart`: no group's energy contains power at rest.

    A change of a window's dynamic energy moves every entry in proportion to its share of the
    weight. These derivatives are products of one sparse matrix of shares with a column per
    parameter. (Importing `scipy.sparse` for it would take as long as attributing a small trace.)
    """
    entries, load = one.taken.entries, one.taken.load
    w, size, count = entries.window, len(sums.own_nj), len(load.dt_ns)
    dynamic, busy_ns = one.out.dynamic_nj.astype(np.float64), one.taken.busy_ns
    per_weight = 1.0 / np.where(one.window_weight > 0, one.window_weight, np.inf)
    share = one.weight * per_weight[w]
    # Lost time takes its part of the dynamic energy by the window's mean weight.
    kept = dynamic * busy_ns / np.maximum(busy_ns + load.lost_ns, 1.0)
    sums.energy_nj += real_sums(one.row, one.out.entry_nj, size)
    some, left = one.part * (dynamic > 0), 1.0 - one.trust
    # If shared power takes all that rest leaves of a window, a change of it comes from rest.
    shared_nj = one.out.entry_nj - one.out.entry_dynamic_nj - one.out.entry_static_nj
    awake = one.part * ((dynamic > 0) | (real_sums(w, shared_nj, count) > 0))
    first = 2 * model.zones

    def total(values: F64) -> F64:
        return real_sums(one.row, values, size)

    common = np.zeros((count, len(model.covariance)))
    if rest_apart and not np.isnan(model.idle_w[one.zone]):
        common[:, one.zone] = -some * one.trust * load.dt_ns
    at = model.zones + one.zone
    common[:, at] = -some * one.trust * np.minimum(load.dt_ns, load.active_ns)
    sums.slopes[:, at] += total(awake[w] * entries.shared_ns)
    moved = (kept * per_weight)[w]
    for i, mine in enumerate(_weight_slopes(model, one), first):
        common[:, i] = (left - kept * per_weight) * real_sums(w, mine, count)
        sums.slopes[:, i] += total(moved * mine)
    for i, mine in enumerate(entries.effects.T, first + len(WEIGHT_TERMS)):
        if mine.any():
            common[:, i] = -some * one.trust * real_sums(w, mine, count)
            sums.slopes[:, i] += total(awake[w] * mine)
    each = kept[w] * share
    if (alone := one.column < 0).any():
        sums.own_nj += total(np.where(alone, each * (1.0 - share), 0.0))
    if len(model.classes):
        # A class that draws more takes the energy from all others.
        factor = np.maximum(model.factor, 1e-3)
        taken = (left * one.window_weight - kept)[:, None] / factor
        common[:, model.fixed :] = taken * _by_class(w, one.column, share, taken.shape)
        own = _by_class(one.row, one.column, each, (size, len(factor)))
        sums.slopes[:, model.fixed :] += own / factor
    moved_by = np.zeros_like(sums.slopes)
    row, window = np.ascontiguousarray(one.row), np.ascontiguousarray(w)
    add_products(moved_by, share, row, window, common, common.shape[1])
    sums.slopes += moved_by


def _weight_slopes(model: PowerModel, one: Portion) -> F64:
    """(9, m): derivative of the entries' weights by each of `WEIGHT_TERMS`."""
    crowd = one.taken.crowd
    saturation = model.saturation(crowd)
    slopes = basis_slopes(model.theta).T @ one.taken.features.T
    slopes *= saturation * model.factors(one.column)
    slopes[_K] = -crowd * saturation * one.weight
    return np.asarray(slopes)


def _by_class(row: I64, column: I64, values: F64, shape: tuple[int, ...]) -> F64:
    """Sums of values by row and column; values in column -1 are left out."""
    out = np.zeros(shape)
    if (known := column >= 0).all():
        np.add.at(out.reshape(-1), row * shape[1] + column, values)
    else:
        np.add.at(out.reshape(-1), row[known] * shape[1] + column[known], values[known])
    return out
