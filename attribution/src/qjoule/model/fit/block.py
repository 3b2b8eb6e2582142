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
from qjoule.model.fit.averaged import Average, Prior, averaged
from qjoule.model.fit.discrepancy import NO_MISFIT, Misfit, discrepancy, misfit_of
from qjoule.model.fit.observed import Rows, ZoneNoise, above_idle, mean_w, predict
from qjoule.model.nonnegative import solve_nonnegative

#: Time constants; any other lies between two of them and is a mixture of both.
TAU_S = (4.0, 12.0, 36.0)
#: Standard error of the power's change while the low-passed power changes by its own mean.
_WARMTH_SIGMA = 0.02


def _warmth(rows: Rows) -> F64:
    """(n, 3) low-passed power of each zone, over its mean, minus 1; 0 where it begins.

    A warm chip leaks more, so all power rises by one to a few per cent within seconds to a minute
    of load. Without these columns the fit takes warming for dynamic power.
    """
    out = np.zeros((len(rows.power_w), len(TAU_S)))
    for z in range(len(rows.edge_w)):
        mine = np.flatnonzero(rows.zone == z)
        known = rows.known[mine]
        mean_w = float(rows.power_w[mine][known].mean()) if known.any() else 0.0
        if mean_w <= 0:
            continue
        above = np.where(known, rows.power_w[mine] / mean_w - 1.0, 0.0)
        for i, tau_s in enumerate(TAU_S):
            out[mine, i] = low_passed(above, np.exp(-rows.lengths_s[mine] / tau_s))
    return out


def low_passed(values: F64, keep: F64) -> F64:
    """(n,): each is the one before times `keep` (n,), plus 1 - `keep` of the value; from 0.

    A block has some thousand rows at most. Importing `scipy.signal` for `lfilter` takes 0.5 s.
    """
    level, out = 0.0, []
    for inflow, kept in zip(((1.0 - keep) * values).tolist(), keep.tolist(), strict=True):
        level = inflow + kept * level
        out.append(level)
    return np.array(out, np.float64)


_K = THETA.index("k")
_STEPS = 5
#: Leakage follows temperature: power at rest drifts by about a per cent within a block.
_WANDER, _WAVES, _BELIEVED = 0.01, 12, 4.0
_ORDER = np.arange(1, _WAVES + 1)
_SMOOTH = 5  #: windows over which errors of edges have cancelled
_DEGREES = 4.0  #: of freedom of Student's t


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
    """All parameters, and the evidence of this block alone."""

    found: Average
    evidence: Evidence
    drift_w: F64  #: (n,) slow drift of power around the fit
    #: Squared error of the prediction before the block (with the evidence of earlier blocks, and
    #: without it), over that of the fit.
    misfit: float
    misfit_without: float
    #: What windows show beyond the model: power that goes with something it has no term for.
    beyond: Misfit = NO_MISFIT

    @property
    def value(self) -> F64:
        return self.found.value

    @property
    def covariance(self) -> F64:
        return self.found.covariance

    @property
    def spread(self) -> float:
        return self.found.spread


def fit_block(rows: Rows, belief: Prior, before: Evidence) -> BlockFit:
    """Fits a block under `belief` and the evidence of blocks `before`.

    Raises `LinAlgError` if the numbers are so far apart that they cannot be solved.
    """
    size = len(belief.mean) + len(rows.classes)
    value = plain = np.append(belief.mean, np.ones(len(rows.classes)))
    places = ZoneNoise.of(rows)
    levels = places.first_levels()
    floors = levels * np.array([0.25, 1e-3, 1e-4, 1e-4])
    scale, k_sigma = expected_scale(rows), _k_sigma(belief)
    wander_w = _WANDER * mean_w(rows)
    waves, warmth = _waves(rows), _warmth(rows)
    warm_sigma = np.full(warmth.shape[1], _WARMTH_SIGMA)
    for step in range(_STEPS):
        power, slopes = predict(rows, value)
        residual = np.where(rows.known, rows.power_w - power, 0.0)
        if step in (1, 2):
            scale = noise_scale(rows, residual, power, value)
        curve, curve_mean, curve_sigma = discrepancy(
            rows, above_idle(rows, power, value), value, k_sigma
        )
        residual -= curve @ curve_mean
        warm = warmth * (power * rows.known)[:, None]
        whole = np.hstack([slopes, curve, warm, waves]) / scale[:, None]
        target = (residual + slopes @ value) / scale
        x, y = places.transformed(whole), places.transformed(target)
        spectrum = places.spectrum(levels)
        everything = Evidence((x / spectrum[:, None]).T @ x, x.T @ (y / spectrum))
        nuisance = np.concatenate([curve_sigma, warm_sigma, (wander_w[:, None] / _ORDER).ravel()])
        mine_told, bend = _without_curve(everything, size, nuisance)
        told = _joined(before, mine_told, rows, value)
        found = averaged(told.precision, told.moment, belief)
        value = found.value
        rest = bend(value)
        error = y - x @ np.append(value, rest)
        wander_w = _wandered(rest[-waves.shape[1] :].reshape(len(wander_w), -1), wander_w)
        if step < _STEPS - 1:
            x = x[:, :size]
            power2 = error**2 + np.maximum(((x @ found.covariance) * x).sum(axis=1), 0.0)
            levels = places.fit_levels(power2, levels, floors)
    power, _ = predict(rows, value)
    bends = bend(value)
    warm_by = bends[curve.shape[1] : -waves.shape[1]]
    drift = waves @ bends[-waves.shape[1] :]
    curved = curve @ (curve_mean + bends[: curve.shape[1]])
    residual = np.where(rows.known, rows.power_w - power, 0.0) - drift - warm @ warm_by - curved
    # The part of it that is power at rest is found later, from its share of the mean power.
    drift += warmth @ warm_by * mean_w(rows)[rows.zone]
    walk = places.random_walk(residual, scale, levels)
    beyond = misfit_of(rows, residual - walk, above_idle(rows, power, value))
    drift += walk
    guesses = [value, plain]
    if before.precision.any():
        guesses.append(averaged(before.precision, before.moment, belief).value)
    fitted, without, *old = (places.misfit(one, scale, spectrum) for one in guesses)
    remembered = old[0] if old else without
    ratios = remembered / fitted, without / fitted
    return BlockFit(found, mine_told, drift, *ratios, beyond)


def _joined(before: Evidence, told: Evidence, rows: Rows, value: F64) -> Evidence:
    """The evidence of earlier blocks, of this one and of single cores, these at `value`."""
    total = Evidence(before.precision + told.precision, before.moment + told.moment)
    if rows.beside is None:
        return total
    precision, moment = rows.beside(value)
    return Evidence(total.precision + precision, total.moment + moment)


def _k_sigma(belief: Prior) -> float:
    """Standard error of the belief about k, all else unknown."""
    at = len(belief.mean) - len(THETA) + _K
    return float(np.sqrt(max(np.linalg.inv(belief.precision)[at, at], 0.0)))


def expected_scale(rows: Rows) -> F64:
    """(n,) relative noise of a row's power by its length.

    Errors at a row's ends are errors of its energy, and cancel between neighbours: so all that
    counts is energy.
    """
    return np.asarray(rows.step_s / rows.lengths_s)


def noise_scale(rows: Rows, residual: F64, power: F64, value: F64) -> F64:
    """(n,) relative noise of each window: higher for busy windows and for outliers.

    Squared residuals, smoothed over the edges' errors, are explained by a constant and the square
    of the power above idle. What remains beyond that is treated as a draw of Student's t.
    """
    above = above_idle(rows, power, value)
    scale, expected = np.ones(len(residual)), expected_scale(rows)
    residual = residual / expected
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
    return np.maximum(scale, 1e-3) * expected


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
