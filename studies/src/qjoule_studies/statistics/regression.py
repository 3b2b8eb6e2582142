# SPDX-License-Identifier: Apache-2.0
"""A response against another over runs: energy against time, whose slope is a power in watts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from qjoule_studies.statistics.design import Design, Floats
from qjoule_studies.statistics.pairwise import holm

_FEWEST = 3  #: runs; of two, a line always passes through both


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval; None: unknown."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """`factor` and `level` are empty for all runs together; `note` says why there is no line."""

    factor: str
    level: str
    runs: int
    slope: Interval = Interval()
    intercept: Interval = Interval()
    r_squared: float | None = None
    p: float | None = None
    p_holm: float | None = None
    pearson: Interval = Interval()
    spearman: Interval = Interval()
    note: str = ""


def lines(x: Floats, y: Floats, design: Design) -> tuple[Line, ...]:
    """Least squares of all runs, then of each level of each factor, Holm's correction over all.

    A level's line shows whether time explains energy within it. Over all runs, the differences
    between levels may explain it instead.
    """
    fitted = [line(x, y)]
    for factor, name in enumerate(design.names):
        for number, level in enumerate(design.levels[factor]):
            own = design.codes[:, factor] == number
            fitted.append(replace(line(x[own], y[own]), factor=name, level=level))
    corrected = holm([fit.p for fit in fitted])
    return tuple(replace(fit, p_holm=p) for fit, p in zip(fitted, corrected, strict=True))


def line(x: Floats, y: Floats) -> Line:
    """y = intercept + slope · x, both (runs,), NaN where unknown."""
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if len(x) < _FEWEST:
        return Line("", "", len(x), note=f"fewer than {_FEWEST} runs")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Line("", "", len(x), note="all values are equal")
    import statsmodels.api as sm  # noqa: PLC0415 (slow to import)

    model = sm.OLS(y, sm.add_constant(x)).fit()
    ends = model.conf_int(0.05)
    intercept, slope = (
        Interval(float(value), float(low), float(high))
        for value, (low, high) in zip(model.params, ends, strict=True)
    )
    return Line(
        "",
        "",
        len(x),
        slope,
        intercept,
        float(model.rsquared),
        float(model.pvalues[1]),
        None,
        _pearson(x, y),
        _spearman(x, y),
    )


def _pearson(x: Floats, y: Floats) -> Interval:
    """Interval by Fisher's z; three runs have none."""
    correlation = stats.pearsonr(x, y)
    if len(x) < 4:
        return Interval(float(correlation.statistic))
    ends = correlation.confidence_interval(0.95)
    return Interval(float(correlation.statistic), float(ends.low), float(ends.high))


def _spearman(x: Floats, y: Floats) -> Interval:
    """Interval by Fisher's z with Bonett and Wright's (2000), Psychometrika 65, variance."""
    r = float(stats.spearmanr(x, y).statistic)
    if len(x) < 4 or abs(r) >= 1:
        return Interval(r)
    half = float(stats.norm.isf(0.025)) * math.sqrt((1 + r * r / 2) / (len(x) - 3))
    return Interval(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))
