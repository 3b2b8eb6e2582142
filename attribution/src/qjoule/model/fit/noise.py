# SPDX-License-Identifier: Apache-2.0
"""The noise of window power, by zone and frequency.

Errors of a counter's update are those of window edges. Adjacent windows have them with opposite
signs, so they are a moving average whose spectrum falls to zero at low frequency. What a linear
model misses drifts slowly or lasts as long as a call. The discrete sine transform makes all of
these independent from one frequency to the next, so least squares can weigh each frequency by its
noise: Whittle, "The analysis of multiple stationary time series", JRSS B 15 (1953).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import Bool
from qjoule.model.fit.observed import Rows, total_power, weights

#: Correlation length in seconds of what a call or a burst leaves unexplained.
_RED_S = 0.15
_ROUNDS = 12


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
    """The rows of each zone, and the spectra of their noise (`noise.components`)."""

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
