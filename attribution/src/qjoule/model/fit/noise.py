# SPDX-License-Identifier: Apache-2.0
"""The noise of window power, by frequency.

Errors of a counter's update are those of window edges. Adjacent windows have them with opposite
signs, so they are a moving average whose spectrum falls to zero at low frequency. What a linear
model misses drifts slowly or lasts as long as a call. The discrete sine transform makes all of
these independent from one frequency to the next, so least squares can weigh each frequency by its
noise: Whittle, "The analysis of multiple stationary time series", JRSS B 15 (1953).
"""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import F64

#: Correlation length in seconds of what a call or a burst leaves unexplained.
_RED_S = 0.15
_ROUNDS = 12


def transform(rows: F64) -> F64:
    """Orthonormal sine transform (type I) of rows (n, ...) along time."""
    from scipy.fft import dst  # noqa: PLC0415 - slow to import, and not every command fits

    out: F64 = dst(rows, type=1, axis=0, norm="ortho")
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
    from scipy.linalg import solveh_banded  # noqa: PLC0415 - slow to import

    if len(residual) < 2 or step_variance <= 0:
        return np.zeros(len(residual))
    information = np.where(np.isfinite(variance), 1.0 / np.maximum(variance, 1e-30), 0.0)
    stiffness = 1.0 / step_variance
    bands = np.full((2, len(residual)), -stiffness)
    bands[1] = information + 2.0 * stiffness
    bands[1, [0, -1]] -= stiffness
    bands[1] += 1e-9 * (information.mean() + stiffness)
    out: F64 = solveh_banded(bands, information * residual)
    return out
