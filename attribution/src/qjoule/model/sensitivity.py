"""How far a wrong model would move each group's energy: derivatives, added up over windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64, Entries
from qjoule.model.counters import I64
from qjoule.model.features import basis_slopes
from qjoule.model.pieces import real_sums
from qjoule.model.power_model import PowerModel
from qjoule.model.split import Split
from qjoule.model.zones import Load


@dataclass
class Sensitivity:
    """Sums of derivatives of the groups' energy (nJ) by the parameters of one model.

    `slopes` (groups, p), in the order of `PowerModel.covariance`; `own_nj` (groups,): by a factor
    of its own, for groups whose class has none in the model.
    """

    slopes: F64
    own_nj: F64

    @staticmethod
    def none(groups: int, model: PowerModel) -> Sensitivity:
        return Sensitivity(np.zeros((groups, len(model.covariance))), np.zeros(groups))

    def sigma_nj(self, model: PowerModel) -> F64:
        """(groups,) standard error of each group's energy."""
        variance = ((self.slopes @ model.covariance) * self.slopes).sum(axis=1)
        own = model.spread * self.own_nj
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + own**2))


@dataclass(frozen=True)
class Portion:
    """One counter's energy as it was split over the m entries of its zone.

    `row` (m,): number of each entry's group in `Sensitivity`; `column` (m,): of its class in the
    model, -1 without. `features` (m, 8), `crowd` (m,), `weight` (m,). `part`: share of the
    zone's idle and shared power that this counter measures, where a package has several. `trust`
    (n,): what of a surprise in a window's energy was taken for dynamic.
    """

    zone: int
    entries: Entries
    load: Load
    row: I64
    column: I64
    features: F64
    crowd: F64
    weight: F64
    out: Split
    part: float
    trust: F64


def add_portion(sums: Sensitivity, model: PowerModel, one: Portion, *, rest_apart: bool) -> None:
    """Adds one counter's split. `rest_apart`: power at rest is in no group's energy."""
    entries, load, count = one.entries, one.load, len(one.load.dt_ns)
    w, size = entries.window, len(sums.own_nj)
    dynamic = one.out.dynamic_nj.astype(np.float64)
    whole = real_sums(w, one.weight, count)
    per_weight = 1.0 / np.where(whole > 0, whole, np.inf)
    share = one.weight * per_weight[w]
    # Lost time takes its part of the dynamic energy by the window's mean weight.
    busy_ns = real_sums(w, entries.cpu_ns, count)
    kept = dynamic * busy_ns / np.maximum(busy_ns + load.lost_ns, 1.0)
    each = kept[w] * share

    def total(values: F64) -> F64:
        return real_sums(one.row, values, size)

    some = one.part * (one.trust * (dynamic > 0))[w]
    if rest_apart and not np.isnan(model.idle_w[one.zone]):
        sums.slopes[:, one.zone] -= total(some * load.dt_ns.astype(np.float64)[w] * share)
    active = np.minimum(load.dt_ns, load.active_ns).astype(np.float64)
    sums.slopes[:, model.zones + one.zone] += total(
        one.part * (dynamic > 0)[w] * (entries.shared_ns - (one.trust * active)[w] * share)
    )
    for i, mine in enumerate(_weight_slopes(model, one)):
        others = share * real_sums(w, mine, count)[w]
        moved = (kept * per_weight)[w] * (mine - others) + (1.0 - one.trust)[w] * others
        sums.slopes[:, 2 * model.zones + i] += total(moved)
    sums.own_nj += total(np.where(one.column >= 0, 0.0, each * (1.0 - share)))
    if len(model.classes):
        _add_factors(sums, model, one, share, each)


def _weight_slopes(model: PowerModel, one: Portion) -> F64:
    """(7, m): derivative of the entries' weights by each of `THETA`."""
    saturation = model.saturation(one.crowd)
    scale = saturation * model.factors(one.column)
    slopes = (one.features @ basis_slopes(model.theta)).T * scale
    slopes[-1] = -one.crowd * saturation * one.weight
    return np.asarray(slopes)


def _add_factors(sums: Sensitivity, model: PowerModel, one: Portion, share: F64, each: F64) -> None:
    """Derivatives by the classes' factors: a class that draws more takes it from all others."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    classes, count, window = len(model.classes), len(one.load.dt_ns), one.entries.window
    known = one.column >= 0
    of_class = np.bincount(
        window[known] * classes + one.column[known], share[known], minlength=count * classes
    ).reshape(count, classes)
    taken = each - (1.0 - one.trust)[window] * one.weight
    per_group = csr_array((taken, (one.row, window)), shape=(len(sums.own_nj), count))
    slopes = -np.asarray(per_group @ of_class)
    np.add.at(slopes, (one.row[known], one.column[known]), each[known])
    sums.slopes[:, model.fixed :] += slopes / np.maximum(model.factor, 1e-3)
