# SPDX-License-Identifier: Apache-2.0
"""Fits the power of one domain to the windows of one block.

    power = idle + shared * active + sum over classes of factor * weight / (1 + k*n) + noise

The model is linear in idle and shared power, and bilinear in the weights' coefficients and the
classes' factors. It is solved by Gauss-Newton steps, each a non-negative least squares under
Gaussian priors. The noise's spectrum and the spread of the factors are learned in the same loop
(empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA
from qjoule.model.energy import Bool
from qjoule.model.features import basis, basis_slopes
from qjoule.model.fit import noise
from qjoule.model.fit.discrepancy import discrepancy
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.power import optima, solve_nonnegative

_K = len(THETA) - 1
_STEPS = 5
#: Candidate spreads of the factors relative to the expected spread; their prior weights follow.
_SPREADS = 2.0 ** np.arange(-2.0, 2.0, 0.5)
_SPREAD_SIGMA = 0.7  #: of the logarithm
#: Leakage follows temperature: power at rest drifts by about a per cent within a block.
_WANDER, _WAVES, _BELIEVED = 0.01, 12, 4.0
_ORDER = np.arange(1, _WAVES + 1)
_SMOOTH = 5  #: windows over which errors of edges have cancelled
_DEGREES = 4.0  #: of freedom of Student's t


@dataclass(frozen=True)
class Belief:
    """Gaussian knowledge of (idle_w, shared_w, theta) and how far factors spread around 1."""

    mean: F64
    precision: F64
    spread: float


@dataclass(frozen=True)
class Evidence:
    """The windows' evidence on (idle_w, shared_w, theta, factor): precision (p, p), moment (p,)."""

    precision: F64
    moment: F64

    @staticmethod
    def none(size: int) -> Evidence:
        return Evidence(np.zeros((size, size)), np.zeros(size))


@dataclass(frozen=True)
class BlockFit:
    """`value` (p,) and `covariance` of all parameters, and the evidence of this block alone."""

    value: F64
    covariance: F64
    spread: float
    evidence: Evidence
    drift_w: F64  #: (n,) slow drift of power around the fit
    #: Squared error of the prediction before the block (with the evidence of earlier blocks, and
    #: without it), over that of the fit.
    misfit: float
    misfit_without: float


def predict(rows: Rows, value: F64) -> tuple[F64, F64]:
    """Power (n,) and its derivative (n, p) by all parameters."""
    zones = len(rows.edge_w)
    theta, factor, saturation, each = _weights(rows, value)
    here = rows.zone[:, None] == np.arange(zones)
    together = np.einsum("ngf,ng->nf", rows.features, saturation * factor)
    slopes = together @ basis_slopes(theta)
    slopes[:, _K] = -((rows.crowd * saturation * each) @ factor)
    jacobian = np.hstack([here, here * rows.active[:, None], slopes, each[:, :-1]])
    return _power(rows, value, each @ factor), jacobian * rows.known[:, None]


def _weights(rows: Rows, value: F64) -> tuple[F64, F64, F64, F64]:
    """Theta, factors (g + 1,), saturation and weights (n, g + 1)."""
    fixed = 2 * len(rows.edge_w) + len(THETA)
    theta, factor = value[fixed - len(THETA) : fixed], np.append(value[fixed:], 1.0)
    saturation = 1.0 / (1.0 + theta[_K] * rows.crowd)
    plain = rows.features.reshape(-1, rows.features.shape[2]) @ basis(theta)
    return theta, factor, saturation, plain.reshape(saturation.shape) * saturation


def _power(rows: Rows, value: F64, dynamic_w: F64) -> F64:
    zones = len(rows.edge_w)
    return np.asarray(
        value[:zones][rows.zone] + rows.active * value[zones : 2 * zones][rows.zone] + dynamic_w
    )


def fit_block(rows: Rows, belief: Belief, before: Evidence) -> BlockFit:
    """Fits a block under `belief` and the evidence of blocks `before`.

    Raises `LinAlgError` if the numbers are so far apart that they cannot be solved.
    """
    fixed, size = len(belief.mean), len(belief.mean) + len(rows.classes)
    value = np.append(belief.mean, np.ones(size - fixed))
    zones = [rows.zone == z for z in range(len(rows.edge_w))]
    parts = [noise.components(int(mine.sum()), rows.step_s) for mine in zones]
    levels = np.stack([_first_levels(rows, z, mine) for z, mine in enumerate(zones)])
    floors = levels * np.array([0.25, 1e-3, 1e-4, 1e-4])
    scale = np.ones(len(rows.power_w))
    wander_w = np.full(len(zones), _WANDER) * _mean_w(rows)
    waves = _waves(rows)
    for step in range(_STEPS):
        power, slopes = predict(rows, value)
        residual = np.where(rows.known, rows.power_w - power, 0.0)
        if step in (1, 2):
            scale = noise_scale(rows, residual, power, value)
        above_w = _above_idle(rows, power, value)
        curve, curve_mean, curve_sigma = discrepancy(rows, above_w, value)
        residual -= curve @ curve_mean
        wave_sigma = (wander_w[:, None] / _ORDER).ravel()
        whole = np.hstack([slopes, curve, waves]) / scale[:, None]
        target = (residual + slopes @ value) / scale
        x = np.vstack([noise.transform(whole[mine]) for mine in zones])
        y = np.concatenate([noise.transform(target[mine]) for mine in zones])
        spectrum = np.concatenate([p @ level for p, level in zip(parts, levels, strict=True)])
        everything = Evidence((x / spectrum[:, None]).T @ x, x.T @ (y / spectrum))
        mine_told, bend = _without_curve(everything, size, np.append(curve_sigma, wave_sigma))
        told = Evidence(before.precision + mine_told.precision, before.moment + mine_told.moment)
        value, spread_cov, spread = _solve(told, belief, fixed, size)
        rest = bend(value)
        error = y - x @ np.append(value, rest)
        wander_w = _wandered(rest[curve.shape[1] :].reshape(len(zones), -1), wander_w)
        if step < _STEPS - 1:
            x = x[:, :size]
            power2 = error**2 + np.maximum(((x @ spread_cov) * x).sum(axis=1), 0.0)
            for z, mine in enumerate(zones):
                at = np.flatnonzero(mine)
                levels[z] = noise.fit_spectrum(parts[z], power2[at], levels[z], floors[z])
    power, _ = predict(rows, value)
    drift = waves @ bend(value)[curve.shape[1] :]
    residual = np.where(rows.known, rows.power_w - power, 0.0) - drift
    residual -= curve @ (curve_mean + bend(value)[: curve.shape[1]])
    for z, mine in enumerate(zones):
        noisy = np.where(rows.known[mine], scale[mine] ** 2 * levels[z, 1:3].sum(), np.inf)
        step = levels[z, 3] * parts[z][0, 0] * parts[z][0, 3]
        drift[mine] += noise.slow_part(residual[mine], noisy, float(step))
    plain = np.append(belief.mean, np.ones(size - fixed))
    fitted, without = (_misfit(rows, guess, scale, zones, spectrum) for guess in (value, plain))
    remembered = without
    if before.precision.any():
        guess = _solve(before, belief, fixed, size)[0]
        remembered = _misfit(rows, guess, scale, zones, spectrum)
    return BlockFit(
        value, spread_cov, spread, mine_told, drift, remembered / fitted, without / fitted
    )


def _misfit(rows: Rows, value: F64, scale: F64, zones: list[Bool], spectrum: F64) -> float:
    """Squared error of a prediction, each frequency in units of its noise."""
    _, factor, _, each = _weights(rows, value)
    power = _power(rows, value, each @ factor)
    error = np.where(rows.known, rows.power_w - power, 0.0) / scale
    each = np.concatenate([noise.transform(error[mine]) for mine in zones])
    return max(float((each**2 / spectrum).sum()), 1e-300)


def noise_scale(rows: Rows, residual: F64, power: F64, value: F64) -> F64:
    """(n,) relative noise of each window: higher for busy windows and for outliers.

    Squared residuals, smoothed over the edges' errors, are explained by a constant and the square
    of the power above idle. What remains beyond that is treated as a draw of Student's t.
    """
    above = _above_idle(rows, power, value)
    scale = np.ones(len(residual))
    for z in range(len(rows.edge_w)):
        mine = np.flatnonzero((rows.zone == z) & rows.known)
        if len(mine) < _SMOOTH:
            continue
        smooth = np.convolve(residual[mine], np.full(_SMOOTH, 1.0 / _SMOOTH), "same") ** 2
        terms = np.column_stack([np.ones(len(mine)), above[mine] ** 2])
        terms[:, 1] /= max(float(terms[:, 1].mean()), 1e-12)
        level = solve_nonnegative(terms.T @ terms, terms.T @ smooth)
        variance = terms @ level + 1e-3 * smooth.mean() + 1e-18
        odd = np.maximum((_DEGREES + smooth / variance) / (_DEGREES + 1.0), 1.0)
        root = np.sqrt(variance * odd)
        scale[mine] = root / max(float(np.sqrt(np.mean(root**2))), 1e-12)
    return np.maximum(scale, 1e-3)


def _above_idle(rows: Rows, power: F64, value: F64) -> F64:
    return np.maximum(power - value[: len(rows.edge_w)][rows.zone], 0.0) * rows.known


def _mean_w(rows: Rows) -> F64:
    """(zones,) mean power."""
    zones = range(len(rows.edge_w))
    means = [rows.power_w[(rows.zone == z) & rows.known] for z in zones]
    return np.array([max(float(mine.mean()), 1e-9) if len(mine) else 1e-9 for mine in means])


def _waves(rows: Rows) -> F64:
    """Slow waves of power at rest, (n, zones * 12); a random walk has 1 / `_ORDER` of each."""
    zones = len(rows.edge_w)
    out = np.zeros((len(rows.power_w), zones, _WAVES))
    for z in range(zones):
        mine = np.flatnonzero(rows.zone == z)
        phase = np.pi * np.arange(1, len(mine) + 1) / (len(mine) + 1)
        out[mine, z] = np.sin(np.outer(phase, _ORDER)) * rows.known[mine, None]
    return out.reshape(len(out), -1)


def _wandered(coefficients: F64, before_w: F64) -> F64:
    """How far power drifts, from the waves (zones, 12) found and the drift expected before."""
    seen = (coefficients * _ORDER) ** 2
    variance = (_BELIEVED * before_w**2 + seen.sum(axis=1)) / (_BELIEVED + _WAVES)
    return np.asarray(np.sqrt(variance))


def _without_curve(told: Evidence, size: int, sigma: F64) -> tuple[Evidence, Callable[[F64], F64]]:
    """Evidence of the first `size` parameters, and a function from their values to the curve."""
    own = told.precision[size:, size:] + np.diag(sigma**-2.0)
    cross = told.precision[:size, size:]
    solved = np.linalg.solve(own, np.column_stack([cross.T, told.moment[size:]]))
    left = Evidence(
        told.precision[:size, :size] - cross @ solved[:, :-1],
        told.moment[:size] - cross @ solved[:, -1],
    )

    def bend(value: F64) -> F64:
        return np.asarray(solved[:, -1] - solved[:, :-1] @ value)

    return left, bend


def _first_levels(rows: Rows, zone: int, mine: Bool) -> F64:
    """Start of the search for the noise: a few per cent of the power in every component."""
    mean_w = float(np.abs(rows.power_w[mine & rows.known]).mean()) if rows.known[mine].any() else 1
    edge = max(float(rows.edge_w[zone]) ** 2, (1e-4 * mean_w) ** 2, 1e-12)
    return np.array([edge, *(np.array([0.03, 0.03, 0.02]) * max(mean_w, 1e-6)) ** 2])


def _solve(told: Evidence, belief: Belief, fixed: int, size: int) -> tuple[F64, F64, float]:
    """Values, covariance, and spread of the factors, averaged over how far factors may spread."""
    mean = np.append(belief.mean, np.ones(size - fixed))
    spreads = belief.spread * (_SPREADS if size > fixed else np.ones(1))
    precision = np.zeros((len(spreads), size, size))
    precision[:, :fixed, :fixed] = belief.precision
    index = np.arange(fixed, size)
    precision[:, index, index] = spreads[:, None] ** -2.0
    grams = told.precision + precision
    found = optima(grams, told.moment + precision @ mean)
    logs = np.einsum("sp,spq,sq->s", found.free, grams, found.free)
    logs -= precision @ mean @ mean + found.log_determinant
    logs = 0.5 * logs - (size - fixed) * np.log(spreads)
    logs -= 0.5 * (np.log(spreads / belief.spread) / _SPREAD_SIGMA) ** 2
    share = np.exp(logs - logs.max())
    share /= share.sum()
    value = share @ found.value
    apart = found.value - value
    total = np.tensordot(share, found.covariance, 1) + (apart.T * share) @ apart
    return value, total, float(np.sqrt(share @ spreads**2))
