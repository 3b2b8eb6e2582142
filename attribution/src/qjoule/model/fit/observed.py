# SPDX-License-Identifier: Apache-2.0
"""The input of a fit: windows of one domain as the rows of a regression; what a model predicts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA, WEIGHT_TERMS
from qjoule.model.energy import I64, Bool
from qjoule.model.features import basis, basis_slopes


@dataclass(frozen=True)
class Rows:
    """n windows of one domain, zone after zone, each in order of time.

    `power_w` (n,); `known` (n,): whether it was measured; `zone` (n,); `active` (n,): share of the
    window with any core busy; `features` (n, g + 1, 10) per ns of window, by class, where the last
    class holds all that are not in `classes` (g,); `crowd` (n, g + 1): busy cores while each class
    ran; `effects` (n, 15) per ns of window, of all classes. `edge_w` (zones,): standard error of
    one window edge as power. `bend`: how far the model may be wrong, relative to the power above
    idle. `step_s`: mean length of a row. `spans`: each row's length over `step_s`, (n,), or (1,) if
    all are alike.
    """

    power_w: F64
    known: Bool
    zone: I64
    active: F64
    crowd: F64
    features: F64
    classes: I64
    effects: F64
    edge_w: F64
    step_s: float
    bend: float = 0.02
    spans: F64 = field(default_factory=lambda: np.ones(1))

    @property
    def lengths_s(self) -> F64:
        """(n,) length of each row."""
        return self.step_s * np.broadcast_to(self.spans, self.power_w.shape)


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
