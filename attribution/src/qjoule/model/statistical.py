"""The statistical rung: what a request of each shape costs, by regression on their counts.

Where no thread shows whom it works for, spans of time do: in each, the server's serving threads
used y (energy or CPU time) and n_s requests of each shape s came in:

    y_k = b dt_k + sum_s n_ks e_s + noise        e_s >= 0

b is what serving costs without requests. The prior of every e_s is one request's share of all of
y, within a factor that PRIOR_SPREAD allows: where counts never vary apart, it stands, and so does
its width. An interval is that of the posterior; the noise is weighed by each span's size, and
widened by what neighbouring spans share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t as student

from qjoule.model.arrays import F64
from qjoule.model.counters import Bool

PRIOR_SPREAD = 3.0  #: standard error of a shape's cost before the data, in mean costs
SPANS_MIN = 20  #: and three for each unknown
UNTOLD = 0.6  #: of the prior spread left: the data have not told this shape's cost
TOGETHER = -0.8  #: partial correlation beyond which two costs are one sum


@dataclass(frozen=True)
class Costs:
    """Per shape, (s,), in the unit of y for one request. Only where `told` is there a value.

    `low` and `high` are the 95 % interval. `apart` False: told as part of a sum with another shape.
    """

    value: F64
    low: F64
    high: F64
    told: Bool
    apart: Bool
    reason: str = ""  #: why nothing could be told at all

    @staticmethod
    def none(shapes: int, reason: str) -> Costs:
        zero = np.zeros(shapes)
        no = np.zeros(shapes, bool)
        return Costs(zero, zero, zero, no, ~no, reason)


def costs(y: F64, counts: F64, dt_ns: F64) -> Costs:
    """What a request of each shape costs.

    Args:
        y: (k,) what serving used in each span, >= 0.
        counts: (k, s) requests of each shape in each span.
        dt_ns: (k,) how long each span was.
    """
    spans, shapes = counts.shape
    calls = counts.sum(axis=0)
    if not shapes or not calls.any() or not y.sum() > 0:
        return Costs.none(shapes, "no request, or nothing that was used")
    if spans < SPANS_MIN + 3 * (shapes + 1):
        return Costs.none(shapes, f"too little time: {spans} spans for {shapes} shapes")
    mean = y.sum() / calls.sum()
    design = np.column_stack([dt_ns / dt_ns.sum() * y.sum(), counts * mean])
    weight = 1.0 / np.sqrt(np.maximum(y, 0.1 * y.mean()))
    prior = np.append(1.0, np.full(shapes, 1.0 / PRIOR_SPREAD))
    centre = np.append(0.0, np.ones(shapes)) * prior
    x, scale = _fitted(design * weight[:, None], y * weight, prior, centre)
    # Once more, each span weighed by what is expected of it.
    expected = np.maximum(design @ np.maximum(x, 0.0), 0.1 * y.mean())
    weight = 1.0 / np.sqrt(expected)
    x, scale = _fitted(design * weight[:, None], y * weight, prior, centre)
    rows = design * weight[:, None]
    residual = y * weight - rows @ x
    precision = rows.T @ rows / (scale * _clumping(residual)) ** 2 + np.diag(prior**2)
    covariance = np.linalg.inv(precision)
    sigma = np.sqrt(np.diag(covariance))[1:]
    half = student.ppf(0.975, max(spans - shapes - 1, 1)) * sigma
    stacked = np.vstack([rows / scale, np.diag(prior)])
    value = nnls(stacked, np.append(y * weight / scale, centre))[0][1:]
    apart, sums_known = _separable(precision, sigma)
    told = (calls > 0) & ((sigma < UNTOLD * PRIOR_SPREAD) | sums_known)
    low, high = np.maximum(x[1:] - half, 0.0), np.maximum(x[1:] + half, value)
    return Costs(value * mean, np.minimum(low, value) * mean, high * mean, told, apart)


def _fitted(rows: F64, y: F64, prior: F64, centre: F64) -> tuple[F64, float]:
    """Least squares with the prior, and the noise of a weighted span."""
    plain = np.linalg.lstsq(rows, y, rcond=None)
    rank = int(plain[2])
    rest = y - rows @ plain[0]
    scale = float(np.sqrt(rest @ rest / max(len(y) - rank, 1)))
    scale = max(scale, 1e-9 * float(np.sqrt(y @ y / len(y))))
    stacked = np.vstack([rows / scale, np.diag(prior)])
    x = np.linalg.lstsq(stacked, np.append(y / scale, centre), rcond=None)[0]
    return x.astype(np.float64), scale


def _clumping(residual: F64) -> float:
    """How much wider errors are because neighbouring spans err alike; 1 if they do not."""
    own = float(residual @ residual)
    if own <= 0:
        return 1.0
    shared = float(residual[1:] @ residual[:-1]) / own
    shared = min(max(shared - 2.0 / np.sqrt(len(residual)), 0.0), 0.9)
    return float(np.sqrt((1.0 + shared) / (1.0 - shared)))


def _separable(precision: F64, sigma: F64) -> tuple[Bool, Bool]:
    """(s,) whether each cost stands by itself, and whether it is one sum with another's."""
    told = precision[1:, 1:]
    width = np.sqrt(np.diag(told))
    partial = -told / np.outer(width, width)
    np.fill_diagonal(partial, 1.0)
    together = (partial.min(axis=1) < TOGETHER) & (sigma > 0.4 * PRIOR_SPREAD)
    return ~together, together
