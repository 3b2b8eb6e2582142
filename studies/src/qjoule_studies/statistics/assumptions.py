# SPDX-License-Identifier: Apache-2.0
"""Checks what an analysis of variance assumes about residuals, and explains the result in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from qjoule_studies.statistics.design import Fit, Floats, Ints

ALPHA = 0.05
_MOST_FOR_SHAPIRO = 5000  #: its p values are not known beyond (Royston 1995)
_MOST_FOR_EXACT_MOMENTS = 1500  #: runs; beyond, the moments' limits do
_FEWEST_OF_A_CELL = 3  #: two values have the same distance to their median, whatever the variance


@dataclass(frozen=True)
class Check:
    """One check. `holds` is None where it cannot be made; `words`: its meaning, or why not."""

    name: str
    holds: bool | None
    words: str
    statistic: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Assumptions:
    """`outliers`: (position in the table, externally studentised residual)."""

    normality: Check
    variances: Check
    independence: Check
    outlying: Check
    outliers: tuple[tuple[int, float], ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.normality, self.variances, self.independence, self.outlying


def check(fit: Fit, cells: Ints, order: Ints) -> Assumptions:
    """The residuals' checks.

    Args:
        fit: the model of the table.
        cells: (runs,): the number of each run's combination.
        order: (runs,): when each run was made, as any increasing number.
    """
    residuals = _without_rounding(fit)
    outliers, outlying = _outliers(fit, residuals)
    return Assumptions(
        _normality(residuals),
        _variances(residuals, cells),
        _independence(fit, residuals, order),
        outlying,
        outliers,
    )


def _without_rounding(fit: Fit) -> Floats:
    return np.where(np.abs(fit.residuals) < 1e-12 * np.ptp(fit.residuals), 0.0, fit.residuals)


def _normality(residuals: Floats) -> Check:
    many = len(residuals) > _MOST_FOR_SHAPIRO
    name = "normal residuals (Anderson-Darling)" if many else "normal residuals (Shapiro-Wilk)"
    if len(residuals) < 3 or np.ptp(residuals) == 0:
        return Check(name, None, "not tested: the residuals are all equal, or fewer than three")
    if many:
        from statsmodels.stats.diagnostic import normal_ad  # noqa: PLC0415 (slow to import)

        statistic, p = (float(value) for value in normal_ad(residuals))
    else:
        statistic, p = (float(value) for value in stats.shapiro(residuals))
    if p >= ALPHA:
        return Check(name, True, "nothing speaks against normal residuals", statistic, p)
    meaning = "residuals are not normal: a few runs or a long tail may decide; see the ranks' test"
    return Check(name, False, meaning, statistic, p)


def _variances(residuals: Floats, cells: Ints) -> Check:
    """Levene's test with medians (Brown and Forsythe 1974), over combinations of 3 runs or more."""
    name = "equal variances (Brown-Forsythe)"
    groups = [residuals[cells == cell] for cell in np.unique(cells)]
    large = [group for group in groups if len(group) >= _FEWEST_OF_A_CELL]
    if len(large) < 2:
        return Check(name, None, "not tested: fewer than two combinations have three runs")
    if all(np.ptp(group) == 0 for group in large):
        return Check(name, None, "not tested: no combination's runs differ")
    statistic, p = (float(value) for value in stats.levene(*large, center="median"))
    if not math.isfinite(p):
        return Check(name, None, "not tested: distances to the medians are all equal")
    skipped = len(groups) - len(large)
    aside = f" ({skipped} of {len(groups)} combinations have too few runs)" if skipped else ""
    if p >= ALPHA:
        return Check(name, True, f"nothing speaks against equal variances{aside}", statistic, p)
    meaning = f"combinations differ in how much their runs spread{aside}: one common error misleads"
    return Check(name, False, meaning, statistic, p)


def _independence(fit: Fit, residuals: Floats, order: Ints) -> Check:
    """Durbin and Watson (1950, 1951), over the order of runs; p from the statistic's moments."""
    name = "independent runs (Durbin-Watson)"
    runs, df = len(residuals), fit.df_error
    if runs < 4 or df < 2 or np.ptp(residuals) == 0:
        return Check(name, None, "not tested: too few runs, or all residuals are equal")
    sequence = np.argsort(order, kind="stable")
    ordered = residuals[sequence]
    statistic = float(np.sum(np.diff(ordered) ** 2) / np.sum(ordered**2))
    mean, variance = 2.0, 4.0 / runs
    if runs <= _MOST_FOR_EXACT_MOMENTS:
        basis = fit.basis[sequence]
        differences = np.diff(np.eye(runs), axis=0)
        project = np.eye(runs) - basis @ basis.T
        both = project @ (differences.T @ differences)
        trace = float(np.trace(both))
        mean = trace / df
        variance = 2 * (float(np.sum(both * both.T)) - trace * mean) / (df * (df + 2))
    if variance <= 0:
        return Check(name, None, "not tested: too few runs beside the levels", statistic)
    p = float(2 * stats.norm.sf(abs(statistic - mean) / math.sqrt(variance)))
    if p >= ALPHA:
        return Check(name, True, "no drift or alternation over the order of runs", statistic, p)
    meaning = (
        "runs resemble the one before (drift, heat, a growing table): p values are too small"
        if statistic < mean
        else "runs alternate with the one before (a cache filled every other time?)"
    )
    return Check(name, False, meaning, statistic, p)


def _outliers(fit: Fit, residuals: Floats) -> tuple[tuple[tuple[int, float], ...], Check]:
    """Externally studentised residuals beyond Bonferroni's limit (Cook and Weisberg 1982)."""
    name = "no outliers (studentised residuals)"
    df = fit.df_error
    room = 1 - fit.leverage
    if df < 2 or np.ptp(residuals) == 0:
        return (), Check(name, None, "not tested: too few runs, or all residuals are equal")
    alone = room < 1e-9  # a run that its level has alone fits exactly
    others = (residuals @ residuals - residuals**2 / np.where(alone, 1, room)) / (df - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        studentised = residuals / np.sqrt(np.maximum(others, 0) * np.where(alone, 1, room))
    studentised = np.where(alone | np.isnan(studentised), 0.0, studentised)
    limit = float(stats.t.isf(ALPHA / (2 * len(residuals)), df - 1))
    outliers = tuple(
        (int(run), float(studentised[run])) for run in np.flatnonzero(np.abs(studentised) > limit)
    )
    largest = float(np.max(np.abs(studentised)))
    if not outliers:
        return (), Check(name, True, "no run is far from its combination", largest)
    meaning = (
        f"{len(outliers)} far from their combination: look at their traces before believing means"
    )
    return outliers, Check(name, False, meaning, largest)
