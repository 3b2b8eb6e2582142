# SPDX-License-Identifier: Apache-2.0
"""Means of a few runs with 95 % intervals. Arrays in, figures out; unknown is None."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from qjoule.api import QjouleError
from qjoule.api.command import FACTOR

Array = npt.NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval; the interval is unknown where there is one run only."""

    value: float | None
    low: float | None = None
    high: float | None = None


UNKNOWN = Estimate(None)


def mean(values: Array) -> Estimate:
    """Mean and Student's interval of independent runs, shape (runs,); NaN is not known."""
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return UNKNOWN
    value = float(finite.mean())
    if len(finite) == 1:
        return Estimate(value)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(finite) - 1) * stats.sem(finite))
    return Estimate(value, value - half, value + half)


def geometric_mean(values: Array) -> Estimate:
    """The mean of the logarithms, as a figure; for values above 0."""
    logs = mean(np.log(values))
    return Estimate(
        *(
            None if each is None else float(np.exp(each))
            for each in (logs.value, logs.low, logs.high)
        )
    )


def ratio(numerator: Array, denominator: Array, confidence: float = CONFIDENCE) -> Estimate:
    """The ratio of two geometric means, with Welch's interval of the difference of logarithms.

    B. L. Welch, The generalization of "Student's" problem when several different population
    variances are involved, Biometrika 34, 1947. The interval is unknown with one run on a side.
    """
    a, b = np.log(numerator), np.log(denominator)
    difference = float(a.mean() - b.mean())
    value = float(np.exp(difference))
    if min(len(a), len(b)) < 2:
        return Estimate(value)
    of_a, of_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    variance = float(of_a + of_b)
    if variance == 0:
        return Estimate(value, value, value)
    freedom = variance**2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * variance**0.5
    return Estimate(value, float(np.exp(difference - half)), float(np.exp(difference + half)))


def of_draws(value: float, draws: Array) -> Estimate:
    """A figure and the middle 95 % of its draws; without an interval if a draw is unknown."""
    if not np.isfinite(value):
        return UNKNOWN
    if not np.isfinite(draws).all():
        return Estimate(value)
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, float(low), float(high))


def draws_of_mean(values: Array, count: int, rng: np.random.Generator) -> Array:
    """Draws of the mean of these runs, shape (count,), from Student's distribution around it.

    Of one run nothing is known about its spread: all draws are NaN.
    """
    if len(values) < 2:
        return np.full(count, np.nan)
    spread = float(values.std(ddof=1)) / len(values) ** 0.5
    draws: Array = values.mean() + spread * rng.standard_t(len(values) - 1, count)
    return draws


def factors_of(runs: pd.DataFrame) -> list[str]:
    """The names of a study's factors."""
    names = map(str, runs.columns)
    return [name.removeprefix(FACTOR) for name in names if name.startswith(FACTOR)]


def one_of(kinds: str, values: object) -> str:
    """The value that all these runs share.

    Raises:
        QjouleError: there are several, which must not be mixed.
    """
    distinct = sorted({str(value) for value in np.ravel(np.asarray(values, object))})
    if len(distinct) != 1:
        raise QjouleError(
            f"runs of several {kinds} cannot be put together: {', '.join(distinct)[:200]}"
        )
    return distinct[0]
