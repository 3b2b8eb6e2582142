# SPDX-License-Identifier: Apache-2.0
"""Non-negative least squares: values by normal equations, and intervals.

Weights of the data and Gaussian priors are in the equations. Most optima need no bounds, or few.
Where pivoting does not converge, the active-set method of Lawson and Hanson is used ("Solving Least
Squares Problems", 1974, chapter 23).

Least squares alone gives x = centre with `covariance`. Where that includes negative values, or
where two quantities are known only as a sum, x >= 0 adds information: neither can exceed the sum.
An interval is the range of one quantity, with the others free (>= 0), whose misfit is at most a
given amount above the least (profile likelihood; Rolke, Lopez and Conrad, NIM A 551, 2005). An
interval keeps that width even where the least misfit is at 0: it contains all that the data cannot
exclude.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import Bool

#: Ridge on the scaled normal equations; makes them solvable where features are collinear.
_RIDGE = 1e-10
_PIVOTS = 20
PARTNERS_MAX = 12  #: quantities whose sign is considered per end; fewer only widen it
_STEPS_MAX = 12  #: each step ends outside of the interval's end, but closer to it
_TOLERANCE = 1e-3  #: of a standard error


@dataclass(frozen=True)
class Optimum:
    """The result of `optima` for each of s problems of p parameters.

    `free` (s, p) is the unconstrained minimum, `value` (s, p) the non-negative one. `covariance`
    (s, p, p) is the inverse of each gram, `log_determinant` (s,) the logarithm of its determinant.
    """

    free: F64
    value: F64
    covariance: F64
    log_determinant: F64


def optima(grams: F64, moments: F64) -> Optimum:
    """argmin theta' gram theta - 2 moment' theta of symmetric `grams` (s, p, p), moments (s, p).

    Raises `LinAlgError` if a gram is not positive definite because rounding destroyed its
    information.
    """
    scaled, scale = _scaled(grams)
    if not np.isfinite(scaled).all():
        raise np.linalg.LinAlgError("not finite")
    np.linalg.cholesky(scaled)  # raises
    target = moments / scale
    size = scaled.shape[1]
    identity = np.broadcast_to(np.eye(size), scaled.shape)
    right_side = np.concatenate([target[:, :, None], identity], axis=2)
    solved = np.asarray(np.linalg.solve(scaled, right_side), np.float64)
    free, inverse = solved[:, :, 0], solved[:, :, 1:]
    value, zero = np.empty_like(free), free[0] < 0
    for i, problem in enumerate(zip(scaled, target, free, inverse, strict=True)):
        # In similar problems, usually the same parameters are 0.
        value[i] = _nonnegative(*problem, zero)
        zero = value[i] == 0
    covariances = inverse / (scale[:, :, None] * scale[:, None, :])
    return Optimum(
        free / scale,
        value / scale,
        (covariances + covariances.transpose(0, 2, 1)) / 2,
        np.linalg.slogdet(scaled)[1] + 2.0 * np.log(scale).sum(axis=1),
    )


def solve_nonnegative(gram: F64, moment: F64) -> F64:
    """argmin theta' gram theta - 2 moment' theta over theta >= 0, of a symmetric `gram` >= 0."""
    scaled, scale = _scaled(gram)
    target = moment / scale
    free: F64 = np.linalg.solve(scaled, target).astype(np.float64, copy=False)
    if (free < 0).any():
        inverse: F64 = np.linalg.inv(scaled).astype(np.float64, copy=False)
        free = _nonnegative(scaled, target, free, inverse, free < 0)
    return np.asarray(free / scale)


def covariance(gram: F64) -> F64:
    """Inverse of `gram`."""
    scaled, scale = _scaled(gram)
    inverse: F64 = np.linalg.inv(scaled) / np.outer(scale, scale)
    return (inverse + inverse.T) / 2


def _scaled(gram: F64) -> tuple[F64, F64]:
    """Grams (..., p, p) with a unit diagonal and a small ridge, and the scale (..., p) of each."""
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = gram / (scale[..., :, None] * scale[..., None, :])
    index = np.arange(gram.shape[-1])
    scaled[..., index, index] += _RIDGE
    return scaled, scale


def _nonnegative(gram: F64, moment: F64, free: F64, inverse: F64, zero: Bool) -> F64:
    """The optimum (p,) >= 0, from the unconstrained one, the inverse of `gram`, a guess of zeros.

    Block principal pivoting (Kim and Park, SIAM J. Sci. Comput. 33, 2011): all parameters that
    violate the conditions of an optimum change sides at once. It may rarely cycle; nnls never does.
    """
    if not (free < 0).any():
        return free
    rounds = _PIVOTS if (np.diagonal(inverse) > 0).all() else 0
    for _ in range(rounds):
        pull = np.zeros(len(free))
        pull[zero] = np.linalg.solve(inverse[zero][:, zero], free[zero])
        below = (free - inverse @ pull < 0) & ~zero
        if not below.any() and (pull <= 0).all():
            value = np.zeros(len(free))
            value[~zero] = np.linalg.solve(gram[~zero][:, ~zero], moment[~zero])
            return np.maximum(value, 0.0)
        zero = (zero | below) & ~(pull > 0)
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to import, and seldom needed

    root = _root(gram)
    target = np.linalg.lstsq(root, moment, rcond=None)[0]
    value_of: F64 = nnls(root.T, target)[0]
    return value_of


def _root(gram: F64) -> F64:
    """A matrix whose product with its own transpose is `gram`, up to rounding."""
    try:
        return np.asarray(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        # Rounding made it indefinite: negative eigenvalues are set to zero.
        values, vectors = np.linalg.eigh(gram)
        return np.asarray(vectors * np.sqrt(np.maximum(values, _RIDGE * values[-1])))


def least(centre: F64, covariance: F64) -> tuple[F64, float]:
    """x >= 0 with the least misfit (x - centre)' covariance^-1 (x - centre), and that misfit."""
    # Slow to import, and few servers need it.
    from scipy.optimize import nnls  # noqa: PLC0415

    whitening = _whitening(covariance)
    value, distance = nnls(whitening, whitening @ centre)
    return value.astype(np.float64), float(distance) ** 2


def interval(centre: F64, covariance: F64, reach: float) -> tuple[F64, F64]:
    """Least and greatest value of each x >= 0 whose misfit is `reach`**2 above the least.

    Args:
        centre: (n,) the least-squares values, of any sign.
        covariance: (n, n) of that, positive definite.
        reach: in standard errors; without bounds, each end is this far from `centre`.
    """
    best, misfit = least(centre, covariance)
    reach2 = misfit + reach**2
    sigma = np.sqrt(np.diag(covariance))
    low, high = np.empty_like(sigma), np.empty_like(sigma)
    for index in range(len(sigma)):
        # At its end of the ellipsoid: the others' distances from 0, in their standard errors.
        deviation = covariance[index] / sigma[index] * np.sqrt(reach2)
        for ends, direction in ((low, -1.0), (high, 1.0)):
            distances = (centre + direction * deviation) / sigma
            distances[index] = np.inf
            partners = np.argsort(distances, kind="stable")[: min(PARTNERS_MAX, len(sigma) - 1)]
            selected = np.append(index, partners) if distances.min() < 0 else np.array([index])
            inner = covariance[np.ix_(selected, selected)]
            ends[index] = _end(centre[selected], inner, reach2, direction)
    return np.clip(low, 0.0, best), np.maximum(high, best)


def _end(centre: F64, covariance: F64, reach2: float, direction: float) -> float:
    """The extreme value of the first quantity in `direction` (1 or -1) while the others stay >= 0.

    The root of the misfit is convex in it, so tangents approach the end from outside.
    """
    from scipy.optimize import nnls  # noqa: PLC0415

    sigma, reach = float(np.sqrt(covariance[0, 0])), float(np.sqrt(reach2))
    value = float(centre[0]) + direction * reach * sigma
    if len(centre) == 1:
        return value
    whitening = _whitening(covariance)
    target = whitening @ centre
    for _ in range(_STEPS_MAX):
        others, distance = nnls(whitening[:, 1:], target - whitening[:, 0] * value)
        residual = whitening[:, 0] * value + whitening[:, 1:] @ others - target
        slope = float(residual @ whitening[:, 0]) / max(float(distance), 1e-300)
        if distance <= reach or slope * direction <= 0:
            break
        step = (float(distance) - reach) / slope
        value -= step
        if abs(step) < _TOLERANCE * sigma:
            break
    return value


def _whitening(covariance: F64) -> F64:
    """r with r' r = covariance^-1."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)))
