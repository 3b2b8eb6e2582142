"""How far a wrong model would move each group's energy: derivatives, added up over windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64, Entries
from qjoule.model.coefficients import THETA
from qjoule.model.counters import I64
from qjoule.model.features import basis_slopes
from qjoule.model.pieces import real_sums
from qjoule.model.power_model import PowerModel
from qjoule.model.split import Split
from qjoule.model.zones import Load

_CHUNK = 1 << 22  #: elements of a dense block of derivatives


@dataclass
class Sensitivity:
    """Sums of derivatives of `groups` groups' energy (nJ) by the parameters of one model.

    `slopes` (groups, p), in the order of `PowerModel.covariance`; `own` (groups,): by a factor of
    its own, for groups whose class has none in the model.
    """

    slopes: F64
    own: F64

    @staticmethod
    def none(groups: int, model: PowerModel) -> Sensitivity:
        return Sensitivity(np.zeros((groups, len(model.covariance))), np.zeros(groups))

    def sigma_nj(self, model: PowerModel) -> F64:
        """(groups,) standard error of each group's energy."""
        variance = np.einsum(
            "gp,pq,gq->g", self.slopes, model.covariance, self.slopes, optimize=True
        )
        return np.sqrt(np.maximum(variance, 0.0) + (model.spread * self.own) ** 2)


def add_series(
    sums: Sensitivity,
    model: PowerModel,
    zone: int,
    rows: tuple[I64, I64],
    entries: Entries,
    features: F64,
    weight: F64,
    load: Load,
    out: Split,
    part: float,
) -> None:
    """Adds one counter's split. `rows`: number of each entry's group in `sums`, and its class.

    `part`: share of the zone's power that this counter measures, where a package has several.
    """
    row, column = rows
    count, size = len(load.dt_ns), len(sums.own)
    w = entries.window
    dynamic = out.dynamic_nj.astype(np.float64)
    whole = real_sums(w, weight, count)
    # Lost time takes its part of the dynamic energy by the window's mean weight.
    busy_ns = real_sums(w, entries.cpu_ns, count)
    kept = busy_ns / np.maximum(busy_ns + load.lost_ns, 1.0)
    share = weight / np.where(whole > 0, whole, 1.0)[w]
    each = (dynamic * kept)[w] * share

    def total(values: F64) -> F64:
        return real_sums(row, values, size)

    full = (dynamic > 0)[w]
    dt_ns = load.dt_ns.astype(np.float64)
    if not np.isnan(model.idle_w[zone]):
        sums.slopes[:, zone] -= total(part * dt_ns[w] * share * full)
    active = np.minimum(load.dt_ns, load.active_ns).astype(np.float64)
    of_shared = entries.shared_ns - active[w] * share
    sums.slopes[:, model.zones + zone] += total(part * of_shared * full)
    factor = np.ones(len(w))
    known = column >= 0
    factor[known] = model.factor[column[known]]
    per = np.where(weight > 0, each / np.where(weight > 0, weight, 1.0), 0.0)
    slopes = basis_slopes(model.theta)
    for i in range(len(THETA)):
        if not slopes[:, i].any():
            continue
        mine = (features @ slopes[:, i]) * factor
        mean = real_sums(w, mine, count)[w]
        sums.slopes[:, 2 * model.zones + i] += total(
            per * mine - each * mean / np.where(whole > 0, whole, 1.0)[w]
        )
    sums.own += total(np.where(known, 0.0, each * (1.0 - share)))
    if len(model.classes):
        _add_factors(sums, model, row, column, w, share, each, count)


def _add_factors(
    sums: Sensitivity,
    model: PowerModel,
    row: I64,
    column: I64,
    window: I64,
    share: F64,
    each: F64,
    count: int,
) -> None:
    """Derivatives by the classes' factors: a class that draws more takes it from all others."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    classes, size = len(model.classes), len(sums.own)
    known = column >= 0
    of_class = np.bincount(
        window[known] * classes + column[known], share[known], minlength=count * classes
    ).reshape(count, classes)
    per_group = csr_array((each, (row, window)), shape=(size, count))
    slopes = -np.asarray(per_group @ of_class)
    np.add.at(slopes, (row[known], column[known]), each[known])
    sums.slopes[:, model.fixed :] += slopes / np.maximum(model.factor, 1e-3)
