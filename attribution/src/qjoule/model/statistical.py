# SPDX-License-Identifier: Apache-2.0
"""The statistical mode: the cost of a request of each shape, by regression on request counts.

Where no thread shows whom it works for, spans of time are compared: in each span, the server's
serving threads used y (energy or CPU time), and n_s requests of each shape s came in:

    y_k = b dt_k + sum_s n_ks e_s + noise        e_s >= 0

b is the cost of serving without requests. The prior of every e_s is one request's share of all of
y, within a factor given by PRIOR_SPREAD. Where counts never vary independently, the prior and its
width remain. An interval is the posterior range of a cost with no cost negative (`bounded`): if
only the sum of some costs is known, each is between zero and all of it. The noise is scaled by each
span's size. Errors are widened by

- what neighbouring spans have in common;
- what no residual shows: requests may cost more, or less, in spans with many (`CONFOUNDED`);
- the part of b that may belong to requests, if no span has none (`_base_uncertainty`);
- costs that would be negative without the bound, because the model is wrong by that amount.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qjoule.model import nonnegative
from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool

PRIOR_SPREAD = 3.0  #: standard error of a shape's cost before the data, in mean costs
SPANS_MIN = 20  #: and three for each unknown
#: if this share of the prior spread is left, the data do not determine this shape's cost
UNKNOWN = 0.6
LATE = 0.05  #: share of requests' cost in the following span; above it, spans are too short
TOO_LATE = 0.2  #: above it nothing can be learned, if spans cannot be made longer
INSEPARABLE = -0.8  #: partial correlation below which only the sum of two costs is known
CLEAR = 3.0  #: a cost this many standard errors above zero counts as determined
#: What a cost's error and its counts may have in common: a share of the variance of each. A machine
#: that is slowed down serves fewer requests, and each costs more. Least squares attribute that to
#: the requests, however many spans there are (Cinelli and Hazlett, "Making sense of sensitivity",
#: JRSS B 82, 2020).
CONFOUNDED = 0.15
EXACT = 1e-4  #: relative precision of what a span used; also keeps matrices invertible
FEWEST = 0.1  #: share of the spans that count as those with the fewest requests


@dataclass(frozen=True)
class Costs:
    """Per shape, (s,), in the unit of y for one request. Only values where `known` are valid.

    `low` and `high` are the 95 % interval. `separable` False: only a sum with another shape's cost
    is known.
    """

    value: F64
    low: F64
    high: F64
    known: Bool
    separable: Bool
    reason: str = ""  #: why nothing could be learned at all
    noise: float = 0.0  #: variance of what is used, per unit of it, in that unit

    def take(self, shapes: slice | I64) -> Costs:
        """The costs of some of the shapes, by their places."""
        names = ("value", "low", "high", "known", "separable")
        return replace(self, **{name: getattr(self, name)[shapes] for name in names})

    @staticmethod
    def none(shapes: int, reason: str) -> Costs:
        zero = np.zeros(shapes)
        no = np.zeros(shapes, bool)
        return Costs(zero, zero, zero, no, ~no, reason)


def costs(y: F64, counts: F64, dt_ns: F64) -> Costs:
    """The cost of one request of each shape.

    If requests last as long as spans, part of their work is in later spans than the one they came
    in, and counts would explain too little. So while the residual follows the requests of the span
    before, pairs of spans are joined. If there are too few spans for that, intervals are widened,
    or nothing is reported.

    Args:
        y: (k,) what serving used in each span, >= 0.
        counts: (k, s) requests of each shape in each span.
        dt_ns: (k,) how long each span was.
    """
    spans, shapes = counts.shape
    calls = counts.sum(axis=0)
    if not shapes or not calls.any() or not y.sum() > 0:
        return Costs.none(shapes, "no request, or nothing that was used")
    least_spans = SPANS_MIN + 3 * (shapes + 1)
    if spans < least_spans:
        return Costs.none(shapes, f"too little time: {spans} spans for {shapes} shapes")
    result, late_share = _regression(y, counts, dt_ns)
    if late_share <= LATE:
        return result
    if spans // 2 >= least_spans:
        return costs(_paired(y), _paired(counts), _paired(dt_ns))
    if late_share > TOO_LATE:
        return Costs.none(shapes, f"too little time: requests last as long as 1 of {spans} spans")
    return replace(
        result, low=result.low / (1.0 + late_share), high=result.high * (1.0 + late_share)
    )


def _paired(spans: F64) -> F64:
    """Joins pairs of spans; (k, ...) to (k / 2, ...). An odd one at the end stays alone."""
    return np.add.reduceat(spans, np.arange(0, len(spans), 2), axis=0)


def _regression(y: F64, counts: F64, dt_ns: F64) -> tuple[Costs, float]:
    """Costs, and the share of the requests' cost that is in the following span."""
    spans, shapes = counts.shape
    calls = counts.sum(axis=0)
    mean = y.sum() / calls.sum()
    design = np.column_stack([dt_ns / dt_ns.sum() * y.sum(), counts * mean])
    weight = 1.0 / np.sqrt(np.maximum(y, 0.1 * y.mean()))
    prior_precision, prior_target = _prior(shapes)
    x, scale = _fitted(_reduced(design, y, weight), spans, prior_precision, prior_target)
    # Again, with each span weighted by its expected use.
    expected = np.maximum(design @ np.maximum(x, 0.0), 0.1 * y.mean())
    weight = 1.0 / np.sqrt(expected)
    rows = _reduced(design, y, weight)
    x, scale = _fitted(rows, spans, prior_precision, prior_target)
    residual = (y - design @ x) * weight
    late_share = _late_share(y - design[:, :1] @ x[:1], design[:, 1:] @ np.maximum(x[1:], 0.0))
    noise = (scale * _clumping(residual)) ** 2
    bounded = _bounded_costs(rows, x, scale, noise, spans)
    value = bounded.value
    base_uncertainty = _base_uncertainty(design[:, 0] * value[0], design[:, 1:] @ value[1:], dt_ns)
    bounded = bounded.take(slice(1, None))
    # No shape costs more than all that was used.
    high = np.minimum(bounded.high * (1.0 + base_uncertainty), calls.sum() / np.maximum(calls, 1.0))
    result = replace(
        bounded,
        value=bounded.value * mean,
        low=bounded.low * mean,
        high=np.maximum(high, bounded.value) * mean,
        known=bounded.known & (calls > 0),
        noise=noise,
    )
    return result, late_share


def _bounded_costs(rows: _Rows, x: F64, scale: float, noise: float, spans: int) -> Costs:
    """Values of the base and all shapes, in mean costs, with intervals that include the misfit.

    `x`: least squares, of any sign.
    """
    # Slow to import, and few servers need them.
    from scipy.optimize import nnls  # noqa: PLC0415
    from scipy.special import stdtrit  # noqa: PLC0415 - a quantile of Student's t

    prior, centre = _prior(len(x) - 1)
    stacked = np.vstack([rows.r / scale, np.diag(prior)])
    value = nnls(stacked, np.append(rows.z / scale, centre))[0].astype(np.float64)
    freedom = max(spans - len(x), 1)
    noise *= 1.0 + freedom * CONFOUNDED**2 / (1.0 - CONFOUNDED)
    precision, covariance = _posterior(rows, noise, prior)
    nonnegative_value, misfit = nonnegative.least(x, covariance)
    if misfit > 0:
        zero_count = max(int((nonnegative_value <= 0).sum()), 1)
        precision, covariance = _posterior(rows, noise * max(1.0, misfit / zero_count), prior)
    low, high = nonnegative.interval(x, covariance, float(stdtrit(freedom, 0.975)))
    sigma = np.sqrt(np.diag(covariance))
    inseparable = _inseparable(precision, sigma)
    known = (sigma < UNKNOWN * PRIOR_SPREAD) | inseparable | (x > CLEAR * sigma)
    return Costs(value, np.minimum(low, value), np.maximum(high, value), known, ~inseparable)


def _prior(shapes: int) -> tuple[F64, F64]:
    """For the base and each shape: one over the standard error, and the value divided by that
    error."""
    prior = np.append(1.0, np.full(shapes, 1.0 / PRIOR_SPREAD))
    return prior, np.append(0.0, np.ones(shapes)) * prior


def _posterior(rows: _Rows, noise: float, prior: F64) -> tuple[F64, F64]:
    """Precision and covariance of the costs. The data are added to the prior's precision, so no
    eigenvalue is smaller than the prior's."""
    precision = rows.r.T @ rows.r / noise + np.diag(prior**2)
    values, vectors = np.linalg.eigh(precision)
    return precision, (vectors / np.maximum(values, (prior**2).min())) @ vectors.T


@dataclass(frozen=True)
class _Rows:
    """Weighted spans, reduced to the part that depends on costs: |rows x - y|^2 = |r x - z|^2 +
    rest2."""

    r: F64
    z: F64
    rest2: float


def _reduced(design: F64, y: F64, weight: F64) -> _Rows:
    """By QR, so that later steps take the same time for many spans as for few."""
    columns = design.shape[1]
    rows = np.column_stack([design, y]) * weight[:, None]
    triangle: F64 = np.asarray(np.linalg.qr(rows, mode="r"))
    return _Rows(
        triangle[:columns, :columns], triangle[:columns, columns], float(triangle[-1, -1] ** 2)
    )


def _fitted(rows: _Rows, spans: int, prior: F64, centre: F64) -> tuple[F64, float]:
    """Least squares with the prior; also the noise of a weighted span."""
    unregularised = np.linalg.lstsq(rows.r, rows.z, rcond=None)
    residual = rows.z - rows.r @ unregularised[0]
    scale = float(
        np.sqrt((residual @ residual + rows.rest2) / max(spans - int(unregularised[2]), 1))
    )
    y2 = float(rows.z @ rows.z) + rows.rest2
    scale = max(scale, EXACT * float(np.sqrt(y2 / spans)))
    stacked = np.vstack([rows.r / scale, np.diag(prior)])
    x = np.linalg.lstsq(stacked, np.append(rows.z / scale, centre), rcond=None)[0]
    return x.astype(np.float64), scale


def _late_share(used: F64, own_cost: F64) -> float:
    """Share of the requests' effect on `used` that is due to the requests of the previous span.

    `own_cost`: the estimated cost of the span's own requests. 0 if the share may be chance.
    """
    rows = np.column_stack([own_cost[1:], own_cost[:-1], np.ones(len(own_cost) - 1)])
    slopes, _, rank, _ = np.linalg.lstsq(rows, used[1:], rcond=None)
    if rank < 3:
        return 0.0
    residual = used[1:] - rows @ slopes
    variance = (
        float(residual @ residual) / max(len(residual) - 3, 1) * np.linalg.inv(rows.T @ rows)[1, 1]
    )
    if slopes[1] <= 2.0 * np.sqrt(max(variance, 0.0)):
        return 0.0
    return float(slopes[1] / (max(slopes[0], 0.0) + slopes[1]))


def _base_uncertainty(base: F64, request_cost: F64, dt_ns: F64) -> float:
    """The part of the base that may be requests' cost, as a share of that cost.

    Spans with many and with more requests determine the use without requests only if each request
    costs the same. Where requests are few, each may cost twice as much. So the base is certain only
    as far as it exceeds the cost of requests in the spans with the fewest.
    """
    mean_rate = float(request_cost.sum() / dt_ns.sum())
    least_rate = float(np.quantile(request_cost / dt_ns, FEWEST))
    return min(float(base.sum() / dt_ns.sum()), least_rate) / mean_rate if mean_rate > 0 else 0.0


def _clumping(residual: F64) -> float:
    """Factor >= 1 on errors because neighbouring spans have correlated errors."""
    variance = float(residual @ residual)
    if variance <= 0:
        return 1.0
    autocorrelation = float(residual[1:] @ residual[:-1]) / variance
    autocorrelation = min(max(autocorrelation - 2.0 / np.sqrt(len(residual)), 0.0), 0.9)
    return float(np.sqrt((1.0 + autocorrelation) / (1.0 - autocorrelation)))


def _inseparable(precision: F64, sigma: F64) -> Bool:
    """(1 + s,) whether each cost is known only as a sum with another one; False for the base, which
    is first."""
    cost_precision = precision[1:, 1:]
    width = np.sqrt(np.diag(cost_precision))
    partial = -cost_precision / np.outer(width, width)
    np.fill_diagonal(partial, 1.0)
    inseparable = (partial.min(axis=1) < INSEPARABLE) & (sigma[1:] > 0.4 * PRIOR_SPREAD)
    return np.append(False, inseparable)
