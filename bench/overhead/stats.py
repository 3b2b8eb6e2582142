# SPDX-License-Identifier: Apache-2.0
"""Medians of paired ratios with distribution-free intervals, and verdicts on a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

CONFIDENCE = 0.95
ENOUGH = 0.85  #: the coverage an interval needs for any verdict on a target: four rounds


@dataclass(frozen=True)
class Estimate:
    """A median with an interval that contains it with probability `coverage`."""

    median: float
    low: float
    high: float
    coverage: float
    count: int


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The median of `values` between two of their order statistics.

    Assumes nothing about the distribution, only that rounds are independent (Conover, Practical
    Nonparametric Statistics, 3rd ed., section 3.2). With few values no pair reaches `confidence`.
    The interval is then from the smallest to the largest value, and `coverage` shows how little
    that is.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a median of nothing")
    ordered = sorted(values)
    n = len(ordered)
    rank = 1
    while rank + 1 <= n // 2 and _coverage(n, rank + 1) >= confidence:
        rank += 1
    median = float(np.median(ordered))
    return Estimate(median, ordered[rank - 1], ordered[n - rank], _coverage(n, rank), n)


def _coverage(n: int, rank: int) -> float:
    """Probability that a median lies between the rank-th smallest and the rank-th largest."""
    return 1.0 - 2.0 * sum(comb(n, k) for k in range(rank)) / 2.0**n if n > 1 else 0.0


def ratio_of_medians(
    over: Sequence[float], under: Sequence[float], resamples: int = 4000
) -> Estimate:
    """median(over) / median(under) of the same rounds, with a bootstrap interval over rounds.

    Rounds are resampled whole, so what both have in common is kept. A denominator at or below zero
    in a resample makes that ratio infinite. The interval then has no upper end, which is correct
    for a cost that cannot be distinguished from zero.

    Raises:
        ValueError: the two are not of the same, at least one, rounds.
    """
    if not over or len(over) != len(under):
        raise ValueError("ratios need the same rounds above and below")
    a, b = np.array(over), np.array(under)
    picks = np.random.default_rng(1).integers(0, len(a), (resamples, len(a)))
    ratios = _divide(np.median(a[picks], axis=1), np.median(b[picks], axis=1))
    ratios.sort()
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = (ratios[int(q * (resamples - 1))] for q in (tail, 1.0 - tail))
    estimate = _divide(np.median(a, keepdims=True), np.median(b, keepdims=True))[0]
    return Estimate(float(estimate), float(low), float(high), CONFIDENCE, len(a))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    ratios: np.ndarray = np.divide(a, b, out=np.full(a.shape, np.inf), where=b > 0.0)
    return ratios


def verdict(estimate: Estimate, target: float) -> str:
    """Whether the cost is at most `target`."""
    if estimate.coverage < ENOUGH:
        return "too few rounds"
    if estimate.high <= target:
        return "met"
    if estimate.low > target:
        return "missed"
    return "within noise"
