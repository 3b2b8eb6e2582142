"""Welch's analysis of variance, for one factor (or combinations) whose variances differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from qjoule.studies.statistics.design import Floats, Ints


@dataclass(frozen=True)
class Welch:
    """Whether the groups' means differ; `note` says why there is no answer, if there is none."""

    f: float | None
    df: float | None
    df_error: float | None
    p: float | None
    note: str = ""


def welch(values: Floats, groups: Ints) -> Welch:
    """Welch (1951), Biometrika 38: each group weighs as much as its mean is known.

    Args:
        values: (runs,).
        groups: (runs,): the number of each run's group.
    """
    samples = [values[groups == group] for group in np.unique(groups)]
    if len(samples) < 2:
        return Welch(None, None, None, None, "there is one group only")
    if any(len(sample) < 2 for sample in samples):
        return Welch(None, None, None, None, "a group has one run only: its spread is unknown")
    if any(np.ptp(sample) == 0 for sample in samples):
        return Welch(None, None, None, None, "a group's runs are all equal: it would decide alone")
    from statsmodels.stats.oneway import anova_oneway  # noqa: PLC0415 (slow to import)

    found = anova_oneway(samples, use_var="unequal", welch_correction=True)
    df, df_error = float(found.df_num), float(found.df_denom)
    return Welch(
        float(found.statistic), df, df_error, float(stats.f.sf(found.statistic, df, df_error))
    )
