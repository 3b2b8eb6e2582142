"""The regression that every fit uses: non-negative least squares with Gaussian priors.

Minimises sum_k w_k (y_k - x_k theta)^2 + (theta - mean)' P (theta - mean) over theta >= 0, solved
by the active-set method of Lawson and Hanson ("Solving Least Squares Problems", 1974, chapter 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64


@dataclass(frozen=True)
class Prior:
    """Gaussian knowledge before the data: mean (p,) and precision (p, p)."""

    mean: F64
    precision: F64


@dataclass(frozen=True)
class PowerFit:
    """`coef` (p,) power per unit of feature, `cov` (p, p) of it, `sigma` of residuals."""

    names: tuple[str, ...]
    coef: F64
    cov: F64
    sigma: float
    effective: float  #: number of independent windows, autocorrelation of residuals counted

    def predict(self, features: F64) -> F64:
        """Power (n,) of features (n, p)."""
        return np.asarray(features, np.float64) @ self.coef


def solve_nonnegative(gram: F64, moment: F64) -> F64:
    """argmin theta' gram theta - 2 moment' theta over theta >= 0; `gram` positive definite."""
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to import, and not every command fits

    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    scaled = gram / np.outer(scale, scale)
    root = np.linalg.cholesky(scaled + 1e-12 * np.eye(len(scaled)))
    target = np.linalg.solve(root, moment / scale)
    found: F64 = nnls(root.T, target)[0] / scale
    return found


def fit_power(
    features: F64,
    power: F64,
    names: Sequence[str] = (),
    *,
    weight: F64 | None = None,
    prior: Prior | None = None,
) -> PowerFit:
    """Fits `power` (n,) by non-negative multiples of `features` (n, p)."""
    x, y = np.asarray(features, np.float64), np.asarray(power, np.float64)
    n, p = x.shape
    w = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    gram, moment = (x * w[:, None]).T @ x, x.T @ (w * y)
    if prior is not None:
        gram, moment = gram + prior.precision, moment + prior.precision @ prior.mean
    diagonal = np.diag(gram)
    gram = gram + np.diag(np.where(diagonal > 0, 1e-10 * diagonal, 1.0))
    coef = solve_nonnegative(gram, moment)
    residual = y - x @ coef
    sigma2 = float((w * residual**2).sum() / max(w.sum() * (1 - p / max(n, p + 1)), 1e-300))
    cov = np.linalg.inv(gram) * sigma2
    return PowerFit(tuple(names) or tuple(map(str, range(p))), coef, cov, sigma2**0.5, float(n))
