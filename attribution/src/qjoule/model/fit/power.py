"""The regression that every fit uses: non-negative least squares with Gaussian priors.

Minimises sum_k w_k (y_k - x_k theta)^2 + (theta - mean)' P (theta - mean) over theta >= 0, solved
by the active-set method of Lawson and Hanson ("Solving Least Squares Problems", 1974, chapter 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64

#: Ridge on the scaled normal equations: what makes them solvable where features are collinear.
_RIDGE = 1e-10


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

    def predict(self, features: F64) -> F64:
        """Power (n,) of features (n, p)."""
        return np.asarray(features, np.float64) @ self.coef


def scaled(gram: F64) -> tuple[F64, F64]:
    """`gram` with a unit diagonal and a small ridge, and the scale (p,) that was taken out."""
    diagonal = np.diag(gram)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return gram / np.outer(scale, scale) + _RIDGE * np.eye(len(gram)), scale


def solve_nonnegative(gram: F64, moment: F64) -> F64:
    """argmin theta' gram theta - 2 moment' theta over theta >= 0, of a symmetric `gram` >= 0."""
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to import, and not every command fits

    plain, scale = scaled(gram)
    free = np.linalg.solve(plain, moment / scale)
    if (free >= 0).all():
        return np.asarray(free / scale)
    root = _root(plain)
    target = np.linalg.lstsq(root, moment / scale, rcond=None)[0]
    found: F64 = nnls(root.T, target)[0] / scale
    return found


def _root(gram: F64) -> F64:
    """A matrix whose product with its own transpose is `gram`, or next to it."""
    try:
        return np.asarray(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        # Rounding made it indefinite: what is below nothing is nothing.
        values, vectors = np.linalg.eigh(gram)
        return np.asarray(vectors * np.sqrt(np.maximum(values, _RIDGE * values[-1])))


def covariance(gram: F64) -> F64:
    """Inverse of `gram`."""
    plain, scale = scaled(gram)
    out: F64 = np.linalg.inv(plain) / np.outer(scale, scale)
    return (out + out.T) / 2


def log_determinant(gram: F64) -> float:
    """Logarithm of the determinant of `gram`."""
    plain, scale = scaled(gram)
    return float(np.linalg.slogdet(plain)[1] + 2.0 * np.log(scale).sum())


def fit_power(
    features: F64,
    power: F64,
    names: Sequence[str] = (),
    *,
    weight: F64 | None = None,
    prior: Prior | None = None,
) -> PowerFit:
    """Fits `power` (n,) by non-negative multiples of `features` (n, p).

    `weight` (n,): inverse variance of each power, up to a factor. `prior`: in units of that factor.
    Raises `ValueError` if the shapes do not fit or a value is not finite.
    """
    x, y = np.asarray(features, np.float64), np.asarray(power, np.float64)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ValueError(f"features {x.shape} and power {y.shape} do not fit")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("features or power that are no numbers")
    n, p = x.shape
    w = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    gram, moment = (x * w[:, None]).T @ x, x.T @ (w * y)
    if prior is not None:
        gram, moment = gram + prior.precision, moment + prior.precision @ prior.mean
    coef = solve_nonnegative(gram, moment)
    residual = y - x @ coef
    free = max(n - int((coef > 0).sum()), 1)
    variance = float((w * residual**2).sum() / free)
    sigma = float(np.sqrt((residual**2).sum() / free))
    return PowerFit(
        tuple(names) or tuple(map(str, range(p))), coef, covariance(gram) * variance, sigma
    )
