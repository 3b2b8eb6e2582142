# SPDX-License-Identifier: Apache-2.0
"""Errors of the power model's form, as columns of a regression with Gaussian priors.

The model has an explicit discrepancy term (Kennedy and O'Hagan, JRSS B 63, 2001). Without it, many
windows would make a simple model certain of values that are only approximately right.
"""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA
from qjoule.model.features import basis
from qjoule.model.fit.observed import Rows

_K = THETA.index("k")
_KNOTS = np.array([0.0, 0.15, 0.35, 0.65, 1.0])  #: of the highest power above idle
#: Saturation by the cores' power: from none of it to all.
_BY_POWER = (0.5, 0.5)
#: Shared power by the cores' frequency: independent of it, as in an uncore with its own clock, or
#: fully dependent, as where it shares the cores' voltage (V**2 f goes with about the square of f).
_BY_PACE = (0.5, 0.5)
#: Voltage has a floor and steps; coefficients of f and f**3 follow its slope, not its curvature.
_OVER_FREQUENCY = 0.5


def discrepancy(rows: Rows, above_w: F64, value: F64, k_sigma: float) -> tuple[F64, F64, F64]:
    """Columns (n, 7), mean (7,) and standard error (7,) of their coefficients.

    `above_w` (n,): fitted power above idle. `k_sigma`: standard error of the belief about k. Power
    may be nonlinear in load and in frequency. It may saturate by the cores' power as well as by
    their number. Shared power may follow the cores' frequency.
    """
    some = rows.known.any()
    top = max(float(np.quantile(above_w[rows.known], 0.98)), 1e-9) if some else 1.0
    hats = np.stack([np.interp(above_w / top, _KNOTS, row) for row in np.eye(len(_KNOTS))[1:]], 1)
    faster = _faster(rows)
    squared = faster**2
    bent = above_w * (squared - (float(squared[rows.known].mean()) if some else 0.0))
    zones = len(rows.edge_w)
    paced = rows.active * value[zones : 2 * zones][rows.zone] * faster
    columns = (
        np.column_stack([hats, bent, _by_power(rows, value, k_sigma), paced]) * rows.known[:, None]
    )
    mean = np.append(np.zeros(len(_KNOTS)), (_BY_POWER[0], _BY_PACE[0]))
    sigma = (_OVER_FREQUENCY, _BY_POWER[1], _BY_PACE[1])
    return columns, mean, np.append(rows.bend * top * _KNOTS[1:], sigma)


def _faster(rows: Rows) -> F64:
    """(n,) frequency of those who ran, over its mean, minus 1; 0 where no cycles were counted."""
    cycles, cpu_ns = (rows.features[:, :, i : i + 2].sum(axis=(1, 2)) for i in (0, 4))
    counted = rows.known & (cycles > 0) & (cpu_ns > 0)
    if not counted.any():
        return np.zeros(len(cycles))
    mean = cycles[counted].sum() / cpu_ns[counted].sum()
    return np.where(counted, cycles / np.where(counted, cpu_ns, 1.0) / mean - 1.0, 0.0)


def _by_power(rows: Rows, value: F64, k_sigma: float) -> F64:
    """(n,) extra power if it saturated by the cores' power instead of by their number.

    Cores share voltage, which falls with their current (a regulator's load line), and frequency,
    which falls with their number. Loads of one kind cannot separate the two, but the difference
    decides how much less a window draws while some cores wait for memory.
    """
    fixed = 2 * len(rows.edge_w) + len(THETA)
    theta, factor = value[fixed - len(THETA) : fixed], np.append(value[fixed:], 1.0)
    each = (rows.features @ basis(theta)) * factor
    # Where the fit finds no saturation by number, a load line by power may still be there.
    dense = (
        np.hypot(theta[_K], k_sigma)
        * (each * rows.crowd).sum(axis=1)
        / np.maximum(each.sum(axis=1), 1e-30)
    )
    power = (each / (1.0 + theta[_K] * rows.crowd)).sum(axis=1)
    cores = rows.features[:, :, 4].sum(axis=1) + 0.5 * rows.features[:, :, 5].sum(axis=1)
    mean = float(power[rows.known].sum()) / max(float(cores[rows.known].sum()), 1e-30)
    ratio = power / np.maximum(cores, 1e-9) / max(mean, 1e-30)
    return np.asarray(-power * dense / (1.0 + dense) * (ratio - 1.0))
