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

#: Correlation length in seconds of what a call or a burst leaves unexplained.
_RED_S = 0.15
_ROUNDS = 12


@dataclass(frozen=True)
class Rows:
    """n windows of one domain, zone after zone, each in order of time.

    `power_w` (n,); `known` (n,): whether it was measured; `zone` (n,); `active` (n,): share of the
    window with any core busy; `features` (n, g + 1, 10) per ns of window, by class, where the last
    class holds all that are not in `classes` (g,); `crowd` (n, g + 1): busy cores while each class
    ran; `effects` (n, 21) per ns of window, of all classes. `edge_w` (zones,): standard error of
    one window edge as power. `bend`: how far the model may be wrong, relative to the power above
    idle. `step_s`: mean length of a row. `spans`: each row's length over `step_s`, (n,), or (1,) if
    all are alike. `beside`: maps values of all parameters (p,) to what counters of single cores
    tell of these: precision (p, p) and moment (p,); None: there are no such counters.
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
    beside: Callable[[F64], tuple[F64, F64]] | None = None

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


def transform(rows: F64) -> F64:
    """Orthonormal sine transform (type I) of rows (n, ...) along time.

    Importing `scipy.fft` for it would take as long as attributing a small trace.
    """
    half = len(rows) + 1
    odd = np.zeros((2 * half, *rows.shape[1:]))
    odd[1:half], odd[half + 1 :] = rows, -rows[::-1]
    factor = float(1 / np.sqrt(np.longdouble(2 * half)))  # as exact as scipy's
    out: F64 = np.fft.rfft(odd, axis=0).imag[1:half] * -factor
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


def fit_spectrum(parts: F64, power: F64, level: F64, floor: F64) -> F64:
    """Levels (4,) >= `floor` of the components for squared residuals `power` (n,), from `level`.

    Multiplicative updates that raise Whittle's likelihood in every step (Fevotte, Bertin, Durrieu,
    "Nonnegative matrix factorization with the Itakura-Saito divergence", Neural Comp. 21, 2009).
    """
    for _ in range(_ROUNDS):
        spectrum = np.maximum(parts @ level, 1e-300)
        up = parts.T @ (power / spectrum**2)
        down = parts.T @ (1.0 / spectrum)
        level = np.maximum(level * np.sqrt(up / np.maximum(down, 1e-300)), floor)
    return level


def slow_part(residual: F64, variance: F64, step_variance: float) -> F64:
    """(n,) the random walk in `residual` (n,), whose own noise has `variance` (n,), inf: unknown.

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


def tridiagonal(diagonal: F64, beside: float, right: F64) -> F64:
    """Solution (n,) of a positive definite system: `diagonal` (n,), and `beside` left and right
    of it.

    The steps are those of LAPACK's dptsv, and so is every bit. A block has some thousand rows at
    most, which takes less time than importing `scipy.linalg`.
    """
    d, x = diagonal.tolist(), right.tolist()
    ratio = [0.0] * len(d)
    for i in range(1, len(d)):
        ratio[i] = beside / d[i - 1]
        d[i] -= ratio[i] * beside
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
        return ZoneNoise(rows, zones, [components(int(mine.sum()), rows.step_s) for mine in zones])

    def first_levels(self) -> F64:
        return np.stack([_first_levels(self.rows, z, mine) for z, mine in enumerate(self.zones)])

    def transformed(self, columns: F64) -> F64:
        return np.concatenate([transform(columns[mine]) for mine in self.zones])

    def spectrum(self, levels: F64) -> F64:
        """(n,) variance of each frequency of each zone."""
        return np.concatenate([p @ level for p, level in zip(self.parts, levels, strict=True)])

    def fit_levels(self, power2: F64, levels: F64, floors: F64) -> F64:
        made = [
            fit_spectrum(self.parts[z], power2[np.flatnonzero(mine)], levels[z], floors[z])
            for z, mine in enumerate(self.zones)
        ]
        return np.stack(made)

    def random_walk(self, residual: F64, scale: F64, levels: F64) -> F64:
        """(n,) the slow part of `residual`, from the levels of noise."""
        out = np.zeros(len(residual))
        for mine, parts, level in zip(self.zones, self.parts, levels, strict=True):
            known = self.rows.known[mine]
            noisy = np.where(known, scale[mine] ** 2 * level[1:3].sum(), np.inf)
            step = level[3] * parts[0, 0] * parts[0, 3]
            out[mine] = slow_part(residual[mine], noisy, float(step))
        return out

    def misfit(self, value: F64, scale: F64, spectrum: F64) -> float:
        """Squared error of a prediction, each frequency in units of its noise."""
        rows = self.rows
        _, factor, _, each = weights(rows, value)
        power = total_power(rows, value, each @ factor)
        error = np.where(rows.known, rows.power_w - power, 0.0) / scale
        return max(float((self.transformed(error) ** 2 / spectrum).sum()), 1e-300)


def _first_levels(rows: Rows, zone: int, mine: Bool) -> F64:
    """Start of the search for the noise: a few per cent of the power in every component."""
    mean_w = float(np.abs(rows.power_w[mine & rows.known]).mean()) if rows.known[mine].any() else 1
    edge = max(float(rows.edge_w[zone]) ** 2, (1e-4 * mean_w) ** 2, 1e-12)
    return np.array([edge, *(np.array([0.03, 0.03, 0.02]) * max(mean_w, 1e-6)) ** 2])
