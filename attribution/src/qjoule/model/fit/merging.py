# SPDX-License-Identifier: Apache-2.0
"""Chooses which consecutive windows a learner merges into one row, such that the least information
is lost.

A row must last some counter periods, or errors at its ends would bias the fit (`settled_rows`). A
row is the mean of its windows, so differences among these are lost. If a statement runs alone for a
moment and a row's end falls into that moment, both rows show a mixture. With parameters of
covariance C, slopes x of the windows' power by them, and noise of standard error s, merging m
windows loses the information

    1/2 * sum over the windows of (x - mean x)' C (x - mean x) / s**2     [nats]

to first order: half the growth of log det of the precision, compared with one row per window
(D-optimality; Chaloner and Verdinelli, Statistical Science 10, 1995). Rows' bounds minimise the sum
of that. Which sum of squares within segments is least is found exactly by dynamic programming
(Fisher, "On grouping for maximum homogeneity", JASA 53, 1958).

Slopes depend on which classes ran, never on the measured energy. So this choice causes no bias.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.observed import Rows, above_idle, predict
from qjoule.model.fit.solo import noises_of

#: Rows used for learning last this many periods of the counter, if there are this many such rows.
_SETTLED_PERIODS, _LEAST_ROWS = 48, 64
#: The shortest row consists of at most this many steps. Shorter windows are merged evenly first, so
#: that a block of a million windows costs no more than one of a few thousand.
_MOST_STEPS = 8
#: Costs that differ by less than this share of the total count as equal. Otherwise the last bit of
#: a matrix product, which depends on the machine, could change the choice.
_EQUAL_COSTS = 1e-7


def settled_rows(rows: Rows, period_ns: int) -> tuple[int, Rows]:
    """How many rows are merged into one so that errors at their ends do not matter; the merged
    rows."""
    width = _settled_width(rows, period_ns)
    even = thinned(rows, width)
    return (width, even) if even.known_everywhere else (1, rows)


def _settled_width(rows: Rows, period_ns: int) -> int:
    """How many neighbours must be merged so that errors at a row's ends do not matter.

    A counter shows the energy of up to one period ago, so the energy of what ran near a window's
    ends may be counted in the neighbouring window. That is an error of the regressors, not of the
    power. It biases coefficients towards zero and power at rest upwards ("regression dilution":
    Fuller, Measurement Error Models, Wiley 1987). The bias depends on the error's size relative to
    the variation of the loads, and it falls with the length of the rows. A short trace keeps enough
    rows for a fit.
    """
    needed = -(-_SETTLED_PERIODS * period_ns // max(round(rows.step_s * 1e9), 1))
    return int(np.clip(needed, 1, max(len(rows.power_w) // len(rows.edge_w) // _LEAST_ROWS, 1)))


def thinned(rows: Rows, width: int) -> Rows:
    """Replaces each `width` neighbours by their mean, which is unknown if one of them is unknown.

    Rows left over at a zone's end are dropped.
    """
    if width < 2:
        return rows
    neighbours = np.concatenate(
        [
            in_zone[: len(in_zone) // width * width].reshape(-1, width)
            for in_zone in (np.flatnonzero(rows.zone == z) for z in range(len(rows.edge_w)))
        ]
    )
    return replace(
        rows,
        power_w=rows.power_w[neighbours].mean(axis=1),
        known=rows.known[neighbours].all(axis=1),
        zone=rows.zone[neighbours[:, 0]],
        active=rows.active[neighbours].mean(axis=1),
        crowd=rows.crowd[neighbours].mean(axis=1),
        features=rows.features[neighbours].mean(axis=1),
        effects=rows.effects[neighbours].mean(axis=1),
        edge_w=rows.edge_w / width,
        step_s=rows.step_s * width,
    )


def informative_rows(windows: Rows, even: Rows, width: int, belief: Prior) -> Rows:
    """Rows of at least `width` windows, chosen to keep the most information beyond the prior
    `belief`.

    `even`: the windows, merged evenly. The evidence of earlier blocks is not used, so that the rows
    of a trace do not depend on where it was cut. Raises `LinAlgError` if nothing can be solved.
    """
    if width < 2:
        return windows
    value = np.append(belief.mean, np.ones(len(windows.classes)))
    power, slopes = predict(even, value)
    above_w = above_idle(even, power, value)
    noise_w = noises_of(np.zeros(len(power)), above_w, even.lengths_s)
    noise_w = np.hypot(noise_w, 2**0.5 * even.edge_w[even.zone])
    level_w = float(np.sqrt(np.mean(noise_w**2)))
    covariance = _posterior_covariance(belief, slopes / level_w)
    return merged(windows, width, covariance, value, level_w)


def merged(rows: Rows, width: int, covariance: F64, value: F64, noise_w: float) -> Rows:
    """Rows of `width` to `2 * width - 1` windows each; a zone with fewer windows is one row.

    `covariance` (p, p) of the parameters, whose values are about `value` (p,); `noise_w`: standard
    error of the power of a row of `width` windows. A merged row is unknown if one of its windows
    is.
    """
    if width < 2:
        return rows
    first_width = max(width // _MOST_STEPS, 1)
    rows, width = thinned(rows, first_width), -(-width // first_width)
    scaled_slopes = predict(rows, value)[1] @ _root(covariance) / (noise_w * np.sqrt(width))
    zones = [np.flatnonzero(rows.zone == z) for z in range(len(rows.edge_w))]
    starts = [
        in_zone[bounds(scaled_slopes[in_zone], rows.known[in_zone], width)]
        for in_zone in zones
        if len(in_zone)
    ]
    return joined_at(rows, np.concatenate(starts))


def bounds(scaled_slopes: F64, measured: Bool, width: int) -> I64:
    """(m,) first windows of the rows; all rows have `width` to `2 * width - 1` windows.

    `scaled_slopes` (n, p): slopes in units in which merging loses half the sum of squares around
    the mean. `measured` (n,): whether the power is known. A row with an unknown window loses all
    its information.
    """
    count = len(scaled_slopes)
    if count < 2 * width:
        return np.zeros(1, np.int64)
    loss = _losses(scaled_slopes, measured, width)
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    previous_bound = np.zeros(count + 1, np.int64)
    total, lengths = best.tolist(), range(width, 2 * width)
    for end in range(width, count + 1):
        least_cost, best_start = np.inf, 0
        for k, length in enumerate(lengths):
            if length > end:
                break
            if (cost := total[end - length] + loss[k][end - length]) < least_cost:
                least_cost, best_start = cost, end - length
        total[end], previous_bound[end] = least_cost, best_start
    starts = [int(previous_bound[count])]
    while starts[-1] > 0:
        starts.append(int(previous_bound[starts[-1]]))
    return np.array(starts[::-1], np.int64)


def _losses(scaled_slopes: F64, measured: Bool, width: int) -> list[list[float]]:
    """The losses of rows of `width`, `width` + 1, … windows, by their first window."""
    mean = scaled_slopes[measured].mean(axis=0) if measured.any() else 0.0
    deviation = np.where(measured[:, None], scaled_slopes - mean, 0.0)
    squares = np.einsum("ip,ip->i", deviation, deviation)
    unit = _EQUAL_COSTS * max(float(squares.sum()), 1e-300)
    sums = np.vstack([np.zeros(scaled_slopes.shape[1]), np.cumsum(deviation, axis=0)])
    squared, unknown = (np.append(0.0, np.cumsum(values)) for values in (squares, ~measured))
    losses = []
    for length in range(width, 2 * width):
        within = squared[length:] - squared[:-length]
        all_measured = unknown[length:] == unknown[:-length]
        segment_sum = sums[length:] - sums[:-length]
        between = np.einsum("ip,ip->i", segment_sum, segment_sum) / length
        losses.append(np.rint((within - np.where(all_measured, between, 0.0)) / unit).tolist())
    return losses


def joined_at(rows: Rows, starts: I64) -> Rows:
    """Rows that begin at `starts` (m,) and each last until the next: means of their windows.

    Every zone's first window is one of `starts`.
    """
    count = np.diff(np.append(starts, len(rows.power_w)))

    def mean(values: F64) -> F64:
        sums = np.add.reduceat(values, starts, axis=0)
        return np.asarray(sums / count.reshape(-1, *[1] * (values.ndim - 1)))

    width = float(count.mean())
    return replace(
        rows,
        power_w=mean(rows.power_w),
        known=np.logical_and.reduceat(rows.known, starts),
        zone=rows.zone[starts],
        active=mean(rows.active),
        crowd=mean(rows.crowd),
        features=mean(rows.features),
        effects=mean(rows.effects),
        edge_w=rows.edge_w / width,
        step_s=rows.step_s * width,
        spans=count / width,
    )


def _posterior_covariance(belief: Prior, scaled_slopes: F64) -> F64:
    """Covariance (p, p) of all parameters after rows with slopes over noise `scaled_slopes` (n,
    p)."""
    fixed, precision = len(belief.mean), scaled_slopes.T @ scaled_slopes
    precision[:fixed, :fixed] += belief.precision
    index = np.arange(fixed, len(precision))
    precision[index, index] += belief.spread**-2.0
    scale = np.sqrt(np.maximum(np.diag(precision), 1e-300))
    inverse = np.linalg.inv(precision / np.outer(scale, scale)) / np.outer(scale, scale)
    return np.asarray((inverse + inverse.T) / 2)


def _root(covariance: F64) -> F64:
    """R with R R' = `covariance`."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = covariance / np.outer(scale, scale) + 1e-9 * np.eye(len(scale))
    return np.asarray(scale[:, None] * np.linalg.cholesky(correlation))


def spread_out(values: F64, thin: Rows, rows: Rows) -> F64:
    """Interpolates values of merged rows to all rows, between the middles of the merged ones."""
    interpolated = np.zeros(len(rows.power_w))
    for z in range(len(rows.edge_w)):
        in_zone, thin_in_zone = np.flatnonzero(rows.zone == z), np.flatnonzero(thin.zone == z)
        if len(thin_in_zone):
            interpolated[in_zone] = np.interp(
                _middles_s(rows, in_zone), _middles_s(thin, thin_in_zone), values[thin_in_zone]
            )
    return interpolated


def _middles_s(rows: Rows, in_zone: I64) -> F64:
    """Middles of consecutive rows, from the begin of the first."""
    lengths_s = rows.lengths_s[in_zone]
    return np.asarray(np.cumsum(lengths_s) - 0.5 * lengths_s)
