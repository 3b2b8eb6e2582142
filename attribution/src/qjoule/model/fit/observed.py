# SPDX-License-Identifier: Apache-2.0
"""The input of a fit: windows of one domain as the rows of a regression, and the noise of their
power by zone and frequency; what a model predicts.

Errors of a counter's update are those of window edges. Adjacent windows have them with opposite
signs, so they are a moving average whose spectrum falls to zero at low frequency. What a linear
model misses drifts slowly or lasts as long as a call. The discrete sine transform makes all of
these independent from one frequency to the next, so least squares can weigh each frequency by its
noise: Whittle, "The analysis of multiple stationary time series", JRSS B 15 (1953).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA, WEIGHT_TERMS
from qjoule.model.energy import I64, Bool
from qjoule.model.features import basis, basis_slopes
from qjoule.model.fit.evidence import Evidence

#: Correlation length in seconds of what a call or a burst leaves unexplained.
_RED_S = 0.15
_ROUNDS = 12


@dataclass(frozen=True)
class Rows:
    """n windows of one domain, zone after zone, each in order of time.

    `power_w` (n,); `known` (n,): whether it was measured; `zone` (n,); `active` (n,): share of the
    window with any core busy; `features` (n, g + 1, 10) per ns of window, by class, where the last
    class holds all others than `classes` (g,); `crowd` (n, g + 1): busy cores while each class ran;
    `effects` (n, 21) per ns of window, of all classes. `edge_w` (zones,): standard error of one
    window edge as power. `model_error`: error of the model, relative to the power above idle.
    `step_s`: mean length of a row. `spans`: each row's length over `step_s`, (n,), or (1,) if all
    are equal. `core_evidence`: maps values of all parameters (p,) to the evidence of single cores'
    counters; None: there are no such counters.
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
    model_error: float = 0.02
    spans: F64 = field(default_factory=lambda: np.ones(1))
    core_evidence: Callable[[F64], Evidence] | None = None

    @property
    def known_everywhere(self) -> bool:
        """Whether each zone has a row of measured power."""
        return all(self.known[self.zone == z].any() for z in range(len(self.edge_w)))

    @property
    def lengths_s(self) -> F64:
        """(n,) length of each row."""
        return self.step_s * np.broadcast_to(self.spans, self.power_w.shape)


_K = THETA.index("k")
_EFFECTS = slice(len(WEIGHT_TERMS), len(THETA))


def predict(rows: Rows, value: F64) -> tuple[F64, F64]:
    """Power (n,) and its derivative (n, p) by all parameters."""
    zones = len(rows.edge_w)
    theta, factor, saturation, class_weight = weights(rows, value)
    in_zone = rows.zone[:, None] == np.arange(zones)
    class_sum = np.einsum("ngf,ng->nf", rows.features, saturation * factor)
    slopes = class_sum @ basis_slopes(theta)
    slopes[:, _K] = -((rows.crowd * saturation * class_weight) @ factor)
    jacobian = np.hstack(
        [in_zone, in_zone * rows.active[:, None], slopes, rows.effects, class_weight[:, :-1]]
    )
    return total_power(rows, value, class_weight @ factor), jacobian * rows.known[:, None]


def weights(rows: Rows, value: F64) -> tuple[F64, F64, F64, F64]:
    """Theta, factors (g + 1,), saturation and weights (n, g + 1)."""
    fixed = 2 * len(rows.edge_w) + len(THETA)
    theta, factor = value[fixed - len(THETA) : fixed], np.append(value[fixed:], 1.0)
    saturation = 1.0 / (1.0 + theta[_K] * rows.crowd)
    unsaturated = rows.features.reshape(-1, rows.features.shape[2]) @ basis(theta)
    return theta, factor, saturation, unsaturated.reshape(saturation.shape) * saturation


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
    return np.array(
        [max(float(power_w.mean()), 1e-9) if len(power_w) else 1e-9 for power_w in means]
    )


def transform(rows: F64) -> F64:
    """Orthonormal discrete sine transform (type I) of rows (n, ...) along time.

    Importing `scipy.fft` for it would take as long as attributing a small trace.
    """
    half_period = len(rows) + 1
    odd_extension = np.zeros((2 * half_period, *rows.shape[1:]))
    odd_extension[1:half_period], odd_extension[half_period + 1 :] = rows, -rows[::-1]
    factor = float(1 / np.sqrt(np.longdouble(2 * half_period)))  # as exact as scipy's
    out: F64 = np.fft.rfft(odd_extension, axis=0).imag[1:half_period] * -factor
    return out


def components(rows: int, step_s: float) -> F64:
    """(n, 4): spectra of edge errors, white noise, calls, and slow drift; mean 1 except for edges.

    The spectrum of edge errors is in units of the variance of one edge.
    """
    omega = np.pi * np.arange(1, rows + 1) / (rows + 1)
    edges = 2.0 - 2.0 * np.cos(omega)
    corner = max(step_s / _RED_S, 1e-6) ** 2
    red = 1.0 / (1.0 + edges / corner)
    drift = 1.0 / edges
    return np.stack([edges, np.ones(rows), red / red.mean(), drift / drift.mean()], axis=1)


def fit_spectrum(spectra: F64, power: F64, level: F64, floor: F64) -> F64:
    """Levels (4,) >= `floor` of the components for squared residuals `power` (n,), from `level`.

    Multiplicative updates that raise Whittle's likelihood in every step (Fevotte, Bertin, Durrieu,
    "Nonnegative matrix factorization with the Itakura-Saito divergence", Neural Comp. 21, 2009).
    """
    for _ in range(_ROUNDS):
        spectrum = np.maximum(spectra @ level, 1e-300)
        numerator = spectra.T @ (power / spectrum**2)
        denominator = spectra.T @ (1.0 / spectrum)
        level = np.maximum(level * np.sqrt(numerator / np.maximum(denominator, 1e-300)), floor)
    return level


def slow_part(residual: F64, variance: F64, step_variance: float) -> F64:
    """(n,) the random walk in `residual` (n,), whose noise has `variance` (n,); inf: the residual
    is unknown.

    This is the mean of a Kalman smoother: least squares of residuals against the walk's steps.
    """
    if len(residual) < 2 or step_variance <= 0:
        return np.zeros(len(residual))
    information = np.where(np.isfinite(variance), 1.0 / np.maximum(variance, 1e-30), 0.0)
    stiffness = 1.0 / step_variance
    diagonal = information + 2.0 * stiffness
    diagonal[[0, -1]] -= stiffness
    diagonal += 1e-9 * (information.mean() + stiffness)
    return tridiagonal(diagonal, -stiffness, information * residual)


def tridiagonal(diagonal: F64, off_diagonal: float, right_side: F64) -> F64:
    """Solution (n,) of a positive definite system: `diagonal` (n,), and the constant `off_diagonal`
    on both sides of it.

    The steps are those of LAPACK's dptsv, and so is every bit. A block has some thousand rows at
    most, which takes less time than importing `scipy.linalg`.
    """
    d, x = diagonal.tolist(), right_side.tolist()
    ratio = [0.0] * len(d)
    for i in range(1, len(d)):
        ratio[i] = off_diagonal / d[i - 1]
        d[i] -= ratio[i] * off_diagonal
        x[i] -= x[i - 1] * ratio[i]
    x[-1] /= d[-1]
    for i in range(len(d) - 2, -1, -1):
        x[i] = x[i] / d[i] - x[i + 1] * ratio[i + 1]
    return np.array(x)


@dataclass(frozen=True)
class ZoneNoise:
    """The rows of each zone, and the spectra of their noise (`components`)."""

    rows: Rows
    zones: list[Bool]
    parts: list[F64]

    @staticmethod
    def of(rows: Rows) -> ZoneNoise:
        zones = [rows.zone == z for z in range(len(rows.edge_w))]
        return ZoneNoise(
            rows, zones, [components(int(in_zone.sum()), rows.step_s) for in_zone in zones]
        )

    def first_levels(self) -> F64:
        return np.stack(
            [_first_levels(self.rows, z, in_zone) for z, in_zone in enumerate(self.zones)]
        )

    def transformed(self, columns: F64) -> F64:
        return np.concatenate([transform(columns[in_zone]) for in_zone in self.zones])

    def spectrum(self, levels: F64) -> F64:
        """(n,) variance of each frequency of each zone."""
        return np.concatenate([p @ level for p, level in zip(self.parts, levels, strict=True)])

    def fit_levels(self, power2: F64, levels: F64, floors: F64) -> F64:
        fitted = [
            fit_spectrum(self.parts[z], power2[np.flatnonzero(in_zone)], levels[z], floors[z])
            for z, in_zone in enumerate(self.zones)
        ]
        return np.stack(fitted)

    def random_walk(self, residual: F64, scale: F64, levels: F64) -> F64:
        """(n,) the slow part of `residual`, from the levels of noise."""
        walk = np.zeros(len(residual))
        for in_zone, spectra, level in zip(self.zones, self.parts, levels, strict=True):
            measured = self.rows.known[in_zone]
            noise_variance = np.where(measured, scale[in_zone] ** 2 * level[1:3].sum(), np.inf)
            step_variance = level[3] * spectra[0, 0] * spectra[0, 3]
            walk[in_zone] = slow_part(residual[in_zone], noise_variance, float(step_variance))
        return walk

    def misfit(self, value: F64, scale: F64, spectrum: F64) -> float:
        """Squared error of a prediction, each frequency in units of its noise."""
        rows = self.rows
        _, factor, _, class_weight = weights(rows, value)
        power = total_power(rows, value, class_weight @ factor)
        error = np.where(rows.known, rows.power_w - power, 0.0) / scale
        return max(float((self.transformed(error) ** 2 / spectrum).sum()), 1e-300)


def _first_levels(rows: Rows, zone: int, in_zone: Bool) -> F64:
    """Start of the search for the noise: a few per cent of the power in every component."""
    mean_w = (
        float(np.abs(rows.power_w[in_zone & rows.known]).mean()) if rows.known[in_zone].any() else 1
    )
    edge = max(float(rows.edge_w[zone]) ** 2, (1e-4 * mean_w) ** 2, 1e-12)
    return np.array([edge, *(np.array([0.03, 0.03, 0.02]) * max(mean_w, 1e-6)) ** 2])
