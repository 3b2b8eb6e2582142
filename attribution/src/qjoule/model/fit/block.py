# SPDX-License-Identifier: Apache-2.0
"""Fits the power of one domain to the windows of one block.

    power = idle + shared * active + sum over classes of factor * weight / (1 + k*n) + noise

The model is linear in idle and shared power, and bilinear in the weights' coefficients and the
classes' factors. It is solved by Gauss-Newton steps, each a non-negative least squares under
Gaussian priors. The noise's spectrum and the spread of the factors are learned in the same loop
(empirical Bayes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA
from qjoule.model.fit.averaged import Average, Prior, averaged
from qjoule.model.fit.discrepancy import NO_MISFIT, Misfit, discrepancy, misfit_of
from qjoule.model.fit.evidence import Evidence, Nuisance
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
    columns = np.zeros((len(rows.power_w), len(TAU_S)))
    for z in range(len(rows.edge_w)):
        in_zone = np.flatnonzero(rows.zone == z)
        measured = rows.known[in_zone]
        mean_w = float(rows.power_w[in_zone][measured].mean()) if measured.any() else 0.0
        if mean_w <= 0:
            continue
        excess = np.where(measured, rows.power_w[in_zone] / mean_w - 1.0, 0.0)
        for i, tau_s in enumerate(TAU_S):
            columns[in_zone, i] = low_passed(excess, np.exp(-rows.lengths_s[in_zone] / tau_s))
    return columns


def low_passed(values: F64, decays: F64) -> F64:
    """(n,) exponential moving average of `values` (n,), starting at 0; `decays` (n,): weight of the
    previous average.

    A block has some thousand rows at most. Importing `scipy.signal` for `lfilter` takes 0.5 s.
    """
    level, levels = 0.0, []
    for inflow, decay in zip(((1.0 - decays) * values).tolist(), decays.tolist(), strict=True):
        level = inflow + decay * level
        levels.append(level)
    return np.array(levels, np.float64)


_K = THETA.index("k")
_STEPS = 5
#: Leakage follows temperature, so power at rest drifts by about one per cent within a block. The
#: last number is the weight of this prior, in squared harmonics.
_DRIFT_SHARE, _WAVES, _DRIFT_PRIOR_WEIGHT = 0.01, 12, 4.0
_HARMONICS = np.arange(1, _WAVES + 1)
_SMOOTHING_WINDOWS = 5  #: windows over which edge errors cancel
_DEGREES = 4.0  #: of freedom of Student's t


@dataclass(frozen=True)
class BlockFit:
    """Estimates of all parameters (idle_w, shared_w, theta, factor), and the evidence of this block
    alone."""

    estimate: Average
    evidence: Evidence
    #: The sum that the estimate is from, with earlier blocks' and single cores' counters' evidence.
    all_evidence: Evidence
    drift_w: F64  #: (n,) slow drift of power around the fit
    #: Squared error of predictions made before the block, over that of the fit: with the evidence
    #: of earlier blocks, and (`misfit_without`) without it.
    misfit: float
    misfit_without: float
    #: Power that the model has no term for, and what it correlates with.
    unexplained: Misfit = NO_MISFIT

    @property
    def value(self) -> F64:
        return self.estimate.value

    @property
    def covariance(self) -> F64:
        return self.estimate.covariance

    @property
    def spread(self) -> float:
        return self.estimate.spread


def fit_block(rows: Rows, belief: Prior, before: Evidence) -> BlockFit:
    """Fits a block under the prior `belief` and the evidence of earlier blocks, `before`.

    Raises `LinAlgError` if the numbers are so far apart that they cannot be solved.
    """
    size = len(belief.mean) + len(rows.classes)
    value = prior_value = np.append(belief.mean, np.ones(len(rows.classes)))
    zone_noise = ZoneNoise.of(rows)
    levels = zone_noise.first_levels()
    floors = levels * np.array([0.25, 1e-3, 1e-4, 1e-4])
    scale, k_sigma = expected_scale(rows), _k_sigma(belief)
    drift_sigma_w = _DRIFT_SHARE * mean_w(rows)
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
        warm_w = warmth * (power * rows.known)[:, None]
        design = np.hstack([slopes, curve, warm_w, waves]) / scale[:, None]
        target = (residual + slopes @ value) / scale
        x, y = zone_noise.transformed(design), zone_noise.transformed(target)
        spectrum = zone_noise.spectrum(levels)
        joint = Evidence((x / spectrum[:, None]).T @ x, x.T @ (y / spectrum))
        nuisance_sigma = np.concatenate(
            [curve_sigma, warm_sigma, (drift_sigma_w[:, None] / _HARMONICS).ravel()]
        )
        block_evidence, nuisance_at = joint.marginal(
            np.arange(size), Nuisance(np.arange(size, x.shape[1]), nuisance_sigma**-2.0, 0.0)
        )
        evidence = _all_evidence(before, block_evidence, rows, value)
        estimate = averaged(evidence.precision, evidence.moment, belief)
        value = estimate.value
        nuisance = nuisance_at(value)
        error = y - x @ np.append(value, nuisance)
        drift_sigma_w = _drift_sigma_w(
            nuisance[-waves.shape[1] :].reshape(len(drift_sigma_w), -1), drift_sigma_w
        )
        if step < _STEPS - 1:
            x = x[:, :size]
            power2 = error**2 + np.maximum(((x @ estimate.covariance) * x).sum(axis=1), 0.0)
            levels = zone_noise.fit_levels(power2, levels, floors)
    power, _ = predict(rows, value)
    nuisance_fit = nuisance_at(value)
    warm_coefficients = nuisance_fit[curve.shape[1] : -waves.shape[1]]
    drift = waves @ nuisance_fit[-waves.shape[1] :]
    curve_w = curve @ (curve_mean + nuisance_fit[: curve.shape[1]])
    residual = (
        np.where(rows.known, rows.power_w - power, 0.0)
        - drift
        - warm_w @ warm_coefficients
        - curve_w
    )
    # The caller takes the part of the drift that is power at rest, by its share of the mean power.
    drift += warmth @ warm_coefficients * mean_w(rows)[rows.zone]
    walk = zone_noise.random_walk(residual, scale, levels)
    unexplained = misfit_of(rows, residual - walk, above_idle(rows, power, value))
    drift += walk
    predictions = [value, prior_value]
    if before.precision.any():
        predictions.append(averaged(before.precision, before.moment, belief).value)
    fitted_misfit, prior_misfit, *earlier_misfits = (
        zone_noise.misfit(prediction, scale, spectrum) for prediction in predictions
    )
    earlier_misfit = earlier_misfits[0] if earlier_misfits else prior_misfit
    ratios = earlier_misfit / fitted_misfit, prior_misfit / fitted_misfit
    return BlockFit(estimate, block_evidence, evidence, drift, *ratios, unexplained)


def with_unaided_error(fit: BlockFit, belief: Prior) -> BlockFit:
    """The fit, whose error is that under `belief.unaided`, if there is such a prior.

    Its values stay, and so does what later blocks and traces learn from it: where windows hardly
    tell two powers apart, the values of a wider prior are no better (model/README.md).
    """
    if belief.unaided is None:
        return fit
    wide = averaged(fit.all_evidence.precision, fit.all_evidence.moment, belief.unaided)
    moved = wide.value - fit.value
    covariance = wide.covariance + np.outer(moved, moved)
    estimate = replace(fit.estimate, covariance=covariance, one_sided=wide.one_sided)
    return replace(fit, estimate=estimate)


def _all_evidence(before: Evidence, block: Evidence, rows: Rows, value: F64) -> Evidence:
    """The sum of the evidence of earlier blocks, of this block, and of single cores' counters at
    `value`."""
    total = before.plus(block)
    return total if rows.core_evidence is None else total.plus(rows.core_evidence(value))


def _k_sigma(belief: Prior) -> float:
    """Standard error of k under the prior, with all other parameters unknown."""
    k_index = len(belief.mean) - len(THETA) + _K
    return float(np.sqrt(max(np.linalg.inv(belief.precision)[k_index, k_index], 0.0)))


def expected_scale(rows: Rows) -> F64:
    """(n,) relative noise of a row's power by its length.

    Errors at a row's ends are errors of its energy, which cancel between neighbours. So the noise
    of a row's energy is constant, and that of its power falls with its length.
    """
    return np.asarray(rows.step_s / rows.lengths_s)


def noise_scale(rows: Rows, residual: F64, power: F64, value: F64) -> F64:
    """(n,) relative noise of each window: higher for busy windows and for outliers.

    Squared residuals are smoothed so that edge errors cancel, then regressed on a constant and the
    squared power above idle. Larger residuals are weighted down as draws of Student's t.
    """
    above_idle_w = above_idle(rows, power, value)
    scale, expected = np.ones(len(residual)), expected_scale(rows)
    residual = residual / expected
    for z in range(len(rows.edge_w)):
        in_zone = np.flatnonzero((rows.zone == z) & rows.known)
        if len(in_zone) < _SMOOTHING_WINDOWS:
            continue
        smoothed2 = (
            np.convolve(
                residual[in_zone], np.full(_SMOOTHING_WINDOWS, 1.0 / _SMOOTHING_WINDOWS), "same"
            )
            ** 2
        )
        terms = np.column_stack([np.ones(len(in_zone)), above_idle_w[in_zone] ** 2])
        terms[:, 1] /= max(float(terms[:, 1].mean()), 1e-12)
        level = solve_nonnegative(terms.T @ terms, terms.T @ smoothed2)
        variance = terms @ level + 1e-3 * smoothed2.mean() + 1e-18
        outlier_factor = np.maximum((_DEGREES + smoothed2 / variance) / (_DEGREES + 1.0), 1.0)
        root = np.sqrt(variance * outlier_factor)
        scale[in_zone] = root / max(float(np.sqrt(np.mean(root**2))), 1e-12)
    return np.maximum(scale, 1e-3) * expected


def _waves(rows: Rows) -> F64:
    """Slow waves of power at rest, (n, zones * 12); a random walk has 1 / `_HARMONICS` of each."""
    zones = len(rows.edge_w)
    columns = np.zeros((len(rows.power_w), zones, _WAVES))
    for z in range(zones):
        in_zone = np.flatnonzero(rows.zone == z)
        phase = np.pi * np.arange(1, len(in_zone) + 1) / (len(in_zone) + 1)
        columns[in_zone, z] = np.sin(np.outer(phase, _HARMONICS)) * rows.known[in_zone, None]
    return columns.reshape(len(columns), -1)


def _drift_sigma_w(coefficients: F64, expected_w: F64) -> F64:
    """(zones,) standard deviation of the drift in W, from the fitted waves (zones, 12) and the
    drift expected before."""
    drift2_w2 = (coefficients * _HARMONICS) ** 2
    variance = (_DRIFT_PRIOR_WEIGHT * expected_w**2 + drift2_w2.sum(axis=1)) / (
        _DRIFT_PRIOR_WEIGHT + _WAVES
    )
    return np.asarray(np.sqrt(variance))


@dataclass(frozen=True)
class RestDrift:
    """Slow drift of a block's power; `rest_w` (zones, n) is the part that is power at rest.

    That part is the share of power at rest in the mean power. The true owner of the drift is not
    known: `variance_w2` (zones,) is the variance of its mean, as if all of it belonged to either
    side.
    """

    rest_w: F64
    variance_w2: F64


def rest_drift(rows: Rows, drift_w: F64, fit: BlockFit) -> RestDrift:
    """Divides the drift `drift_w` (n,) of all rows, of which `fit` has the power at rest."""
    count = len(rows.edge_w)
    longest = int(np.bincount(rows.zone, minlength=1).max())
    rest_w = np.zeros((count, longest))
    variance = np.zeros(count)
    for z in range(count):
        in_zone = rows.zone == z
        measured = in_zone & rows.known
        if not measured.any():
            continue
        mean_w = float(rows.power_w[measured].mean())
        share = float(np.clip(fit.value[z] / mean_w, 0.0, 1.0)) if mean_w > 0 else 0.0
        rest_w[z, : int(in_zone.sum())] = share * drift_w[in_zone]
        variance[z] = share * (1.0 - share) * float(drift_w[measured].mean()) ** 2
    return RestDrift(rest_w.astype(np.float32).astype(np.float64), variance)
