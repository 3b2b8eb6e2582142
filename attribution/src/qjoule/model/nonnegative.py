# SPDX-License-Identifier: Apache-2.0
"""Intervals of several non-negative quantities that are known from least squares.

Least squares alone gives x = centre with `covariance`. Where that includes negative values, or
where two quantities are known only as a sum, x >= 0 adds information: neither can exceed the sum.
An interval is the range of one quantity, with the others free (>= 0), whose misfit is at most a
given amount above the least (profile likelihood; Rolke, Lopez and Conrad, NIM A 551, 2005). An
interval keeps that width even where the least misfit is at 0: it contains all that the data cannot
exclude.
"""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import F64

PARTNERS_MAX = 12  #: quantities whose sign is considered per end; ignoring others only widens
_STEPS_MAX = 12  #: each step ends outside of the interval's end, but closer to it
_CLOSE = 1e-3  #: of a standard error


def least(centre: F64, covariance: F64) -> tuple[F64, float]:
    """x >= 0 with the least misfit (x - centre)' covariance^-1 (x - centre), and that misfit."""
    # Slow to import, and few servers need it.
    from scipy.optimize import nnls  # noqa: PLC0415

    rows = _rows(covariance)
    found, off = nnls(rows, rows @ centre)
    return found.astype(np.float64), float(off) ** 2


def interval(centre: F64, covariance: F64, reach: float) -> tuple[F64, F64]:
    """Least and greatest value of each x >= 0 whose misfit is `reach`**2 above the least.

    Args:
        centre: (n,) the least-squares values, of any sign.
        covariance: (n, n) of that, positive definite.
        reach: in standard errors; without bounds, each end is this far from `centre`.
    """
    found, misfit = least(centre, covariance)
    reach2 = misfit + reach**2
    sigma = np.sqrt(np.diag(covariance))
    low, high = np.empty_like(sigma), np.empty_like(sigma)
    for one in range(len(sigma)):
        # At its end of the ellipsoid: the others' distances from 0, in their standard errors.
        along = covariance[one] / sigma[one] * np.sqrt(reach2)
        for ends, way in ((low, -1.0), (high, 1.0)):
            above = (centre + way * along) / sigma
            above[one] = np.inf
            partners = np.argsort(above, kind="stable")[: min(PARTNERS_MAX, len(sigma) - 1)]
            these = np.append(one, partners) if above.min() < 0 else np.array([one])
            inner = covariance[np.ix_(these, these)]
            ends[one] = _end(centre[these], inner, reach2, way)
    return np.clip(low, 0.0, found), np.maximum(high, found)


def _end(centre: F64, covariance: F64, reach2: float, way: float) -> float:
    """How far the first quantity can go in direction `way` while the others stay above 0.

    The root of the misfit is convex in it, so tangents approach the end from outside.
    """
    from scipy.optimize import nnls  # noqa: PLC0415

    sigma, reach = float(np.sqrt(covariance[0, 0])), float(np.sqrt(reach2))
    at = float(centre[0]) + way * reach * sigma
    if len(centre) == 1:
        return at
    rows = _rows(covariance)
    wanted = rows @ centre
    for _ in range(_STEPS_MAX):
        others, off = nnls(rows[:, 1:], wanted - rows[:, 0] * at)
        rest = rows[:, 0] * at + rows[:, 1:] @ others - wanted
        slope = float(rest @ rows[:, 0]) / max(float(off), 1e-300)
        if off <= reach or slope * way <= 0:
            break
        step = (float(off) - reach) / slope
        at -= step
        if abs(step) < _CLOSE * sigma:
            break
    return at


def _rows(covariance: F64) -> F64:
    """r with r' r = covariance^-1."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)))
