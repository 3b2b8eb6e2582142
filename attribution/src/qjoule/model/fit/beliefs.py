# SPDX-License-Identifier: Apache-2.0
"""What is assumed about a machine's power before the windows of a trace are seen (priors)."""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import DEFAULT_ALPHA, THETA, Weights
from qjoule.model.fit.block import Belief
from qjoule.model.fit.observed import Rows
from qjoule.model.power_model import PowerModel

#: Without a calibration: the share of the mean power that a term may explain, and its sigma. Clock
#: and issue come first, then instructions and misses (Bellosa 2000; Isci and Martonosi, MICRO 2003,
#: find most of a core's dynamic power in what its clock drives).
_BY_COUNTERS = {
    "a": (0.4, 0.4),
    "v": (0.2, 0.3),
    "b": (0.15, 0.2),
    "c": (0.1, 0.15),
    "t": (0.05, 0.1),
}
_BY_TIME = {"t": (0.9, 0.9)}
_DRAM = {"c": (0.6, 0.4), "t": (0.1, 0.15)}
_FEATURE = {"a": (0, 1), "b": (2,), "c": (3,), "t": (4, 5), "v": (6, 7)}
_ALPHA_SIGMA = 0.1  #: HaPPy finds 0.5 to 0.6 over workloads and frequencies
_SHARED = (0.1, 0.15)  #: of the mean power: the power drawn once by a package that is awake
#: Memory leaves self-refresh while any core is awake: 8 W of 46 were measured without a miss.
_SHARED_DRAM = (0.05, 0.1)
_IDLE = (0.5, 0.3)  #: of the least power seen: power at rest is between zero and all of it
_SATURATION_SIGMA = 0.3  #: all cores together may draw this much less than the sum of each alone
_LEAST = 0.02  #: quantile that is used as the least power


def belief_of(prior: PowerModel, rows: Rows, weights: Weights, *, dram: bool) -> Belief:
    """Means and precisions for `fit_block`: from the calibration if there is one, otherwise
    wide."""
    mean_w, least_w = _levels(rows, prior.zones)
    idle, idle_var = _idle(prior, least_w)
    shared, shared_var = _shared(prior, mean_w, weak=not weights.calibrated, dram=dram)
    theta, theta_cov = _theta(prior, rows, weights, float(mean_w.mean()), dram=dram)
    covariance = np.zeros((prior.fixed, prior.fixed))
    at = np.arange(2 * prior.zones)
    covariance[at, at] = np.concatenate([idle_var, shared_var])
    covariance[2 * prior.zones :, 2 * prior.zones :] = theta_cov
    scale = np.sqrt(np.diag(covariance))
    inverse = np.linalg.inv(covariance / np.outer(scale, scale) + 1e-9 * np.eye(len(scale)))
    precision = inverse / np.outer(scale, scale)
    return Belief(np.concatenate([idle, shared, theta]), precision, prior.spread)


def _levels(rows: Rows, zones: int) -> tuple[F64, F64]:
    """Mean and least power of each zone."""
    mean, least = np.full(zones, 1e-3), np.full(zones, 1e-3)
    for z in range(zones):
        mine = rows.power_w[(rows.zone == z) & rows.known]
        if len(mine):
            mean[z] = max(float(mine.mean()), 1e-3)
            least[z] = max(float(np.quantile(mine, _LEAST)), 1e-3)
    return mean, least


def _idle(prior: PowerModel, least_w: F64) -> tuple[F64, F64]:
    unknown = np.isnan(prior.idle_w)
    value = np.where(unknown, _IDLE[0] * least_w, prior.idle_w)
    variance = np.diag(prior.covariance)[: prior.zones]
    return value, np.where(unknown, (_IDLE[1] * least_w) ** 2, np.maximum(variance, 1e-12))


def _shared(prior: PowerModel, mean_w: F64, *, weak: bool, dram: bool) -> tuple[F64, F64]:
    value = prior.shared_w
    variance = np.diag(prior.covariance)[prior.zones : 2 * prior.zones]
    if weak and not value.any():
        part = _SHARED_DRAM if dram else _SHARED
        return part[0] * mean_w, (part[1] * mean_w) ** 2
    return value, variance + (1e-4 * mean_w) ** 2


def _theta(
    prior: PowerModel, rows: Rows, weights: Weights, mean_w: float, *, dram: bool
) -> tuple[F64, F64]:
    if weights.calibrated:
        least = np.diag((1e-3 * np.abs(prior.theta) + 1e-9) ** 2)
        theta_cov = prior.covariance[2 * prior.zones :, 2 * prior.zones :]
        return prior.theta, theta_cov + least
    by_time = not (prior.theta[[0, 1, 2, 4]] > 0).any()
    terms = _BY_TIME if by_time else _DRAM if dram else _BY_COUNTERS
    mean_features = rows.features[rows.known].sum(axis=1).mean(axis=0)
    value, sigma = np.zeros(len(THETA)), np.full(len(THETA), 1e-6)
    for i, name in enumerate(THETA[:5]):
        seen = float(mean_features[list(_FEATURE[name])].sum())
        if name in terms and seen > 0:
            value[i], sigma[i] = (part * mean_w / seen for part in terms[name])
    value[5], sigma[5] = (DEFAULT_ALPHA if not weights.alpha else weights.alpha), _ALPHA_SIGMA
    most = max(float(rows.crowd.max(initial=0.0)), 1.0)
    value[6], sigma[6] = 0.0, _SATURATION_SIGMA / most
    return value, np.diag(sigma**2)
