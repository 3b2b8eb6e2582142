# SPDX-License-Identifier: Apache-2.0
"""The power that a model predicts for the windows of a block."""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA, WEIGHT_TERMS
from qjoule.model.features import basis, basis_slopes
from qjoule.model.fit.observed import Rows

_K = THETA.index("k")
_EFFECTS = slice(len(WEIGHT_TERMS), len(THETA))


def predict(rows: Rows, value: F64) -> tuple[F64, F64]:
    """Power (n,) and its derivative (n, p) by all parameters."""
    zones = len(rows.edge_w)
    theta, factor, saturation, each = weights(rows, value)
    here = rows.zone[:, None] == np.arange(zones)
    together = np.einsum("ngf,ng->nf", rows.features, saturation * factor)
    slopes = together @ basis_slopes(theta)
    slopes[:, _K] = -((rows.crowd * saturation * each) @ factor)
    jacobian = np.hstack([here, here * rows.active[:, None], slopes, rows.effects, each[:, :-1]])
    return total_power(rows, value, each @ factor), jacobian * rows.known[:, None]


def weights(rows: Rows, value: F64) -> tuple[F64, F64, F64, F64]:
    """Theta, factors (g + 1,), saturation and weights (n, g + 1)."""
    fixed = 2 * len(rows.edge_w) + len(THETA)
    theta, factor = value[fixed - len(THETA) : fixed], np.append(value[fixed:], 1.0)
    saturation = 1.0 / (1.0 + theta[_K] * rows.crowd)
    plain = rows.features.reshape(-1, rows.features.shape[2]) @ basis(theta)
    return theta, factor, saturation, plain.reshape(saturation.shape) * saturation


def total_power(rows: Rows, value: F64, dynamic_w: F64) -> F64:
    zones = len(rows.edge_w)
    theta = value[2 * zones : 2 * zones + len(THETA)]
    shared_w = rows.active * value[zones : 2 * zones][rows.zone] + rows.effects @ theta[_EFFECTS]
    return np.asarray(value[:zones][rows.zone] + shared_w + dynamic_w)


def above_idle(rows: Rows, power: F64, value: F64) -> F64:
    return np.maximum(power - value[: len(rows.edge_w)][rows.zone], 0.0) * rows.known


def mean_w(rows: Rows) -> F64:
    """(zones,) mean power."""
    zones = range(len(rows.edge_w))
    means = [rows.power_w[(rows.zone == z) & rows.known] for z in zones]
    return np.array([max(float(mine.mean()), 1e-9) if len(mine) else 1e-9 for mine in means])
