# SPDX-License-Identifier: Apache-2.0
"""Ratios of figures that were measured in several runs on each of two sides, with intervals.

A figure's runs are treated as a sample of independent, roughly log-normal values, because
run-to-run noise of energy and time is multiplicative. The log of the ratio then has Welch's t
interval (Welch, Biometrika 34, 1947). In simulation it holds 95 % from two runs on, also for skewed
runs and outliers, where percentile, BCa and studentised bootstraps fall short
(`studies/bench/bench_compare.py` prints both; docs/results.md).

An error that all runs have in common does not average out. It is not part of the spread; callers
pass it as `slack`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from qjoule.model.arrays import F64

LEVEL = 0.95
POWER = 0.8  #: chance of a clear result with the advised number of runs
_MOST_RUNS = 1e6  #: per side: more are not advised


@dataclass(frozen=True)
class LogRatios:
    """Logs of B over A, one for each statement, (n,). NaN is unknown.

    Attributes:
        estimate: difference of the mean logs.
        se: standard error over runs; NaN where a side has fewer than two.
        df: degrees of freedom (Welch-Satterthwaite).
        variance: what `se**2` is for one run on each side.
        runs: the smaller number of runs of the two sides.
        slack: what all runs of a side may have in common, (2, n): downwards and upwards, each >= 0.
    """

    estimate: F64
    se: F64
    df: F64
    variance: F64
    runs: F64
    slack: F64

    def interval(self, level: float = LEVEL) -> tuple[F64, F64]:
        """Ends of the ratio itself (not its log), (n,) each."""
        down, up = self._ends(level)
        with np.errstate(over="ignore"):  # of two runs that differ much, an end may be infinite
            return np.exp(self.estimate - down), np.exp(self.estimate + up)

    def _ends(self, level: float) -> tuple[F64, F64]:
        half_width = _t(level, self.df) * self.se
        return half_width + self.slack[0], half_width + self.slack[1]

    def detectable(self, level: float = LEVEL) -> F64:
        """The smallest ratio above 1 that these runs would find with a chance of `POWER`, (n,)."""
        reach = (_t(level, self.df) + _t(2 * POWER - 1, self.df)) * self.se
        with np.errstate(over="ignore"):
            ratio: F64 = np.exp(reach + self.slack.max(axis=0))
        return ratio

    def more_runs(self, limit: float = 1.0, level: float = LEVEL) -> F64:
        """Runs that each side still needs until the interval leaves out `limit`, (n,).

        This holds with a chance of `POWER`, if the true ratio is the measured one and the spread
        stays the same. At least 1; infinite if the slack alone reaches `limit`; NaN if the spread
        is unknown.
        """
        distance = self.estimate - np.log(limit)
        margin = np.abs(distance) - np.where(distance > 0, self.slack[0], self.slack[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            per_z = np.where(margin > 0, self.variance / margin**2, np.inf)
            needed = (_z(level) + _z(2 * POWER - 1)) ** 2 * per_z
            for _ in range(8):  # t instead of z: small numbers need a few more
                df = 2 * (np.clip(np.ceil(needed), 2, _MOST_RUNS) - 1)
                needed = (_t(level, df) + _t(2 * POWER - 1, df)) ** 2 * per_z
        additional = np.maximum(np.ceil(needed) - self.runs, 1.0)
        return np.where(
            np.isnan(self.se), np.nan, np.where(needed > _MOST_RUNS, np.inf, additional)
        )


def log_ratios(a: F64, b: F64, *, slack: F64 | None = None, paired: bool = False) -> LogRatios:
    """Ratios of `b` over `a`.

    Args:
        a: positive figures of A, (n, runs of A); NaN where a run has none.
        b: the same of B, (n, runs of B).
        slack: (2, n), the errors that a side's runs have in common: see `LogRatios`. Default: 0.
        paired: column i of both is of one run, so effects of the run on both cancel.
    """
    x, y = _logs(a), _logs(b)
    slack = np.zeros((2, len(x))) if slack is None else slack
    if paired:
        mean, variance, runs = _moments(y - x)
        return LogRatios(mean, np.sqrt(variance / runs), runs - 1, variance, runs, slack)
    (mean_a, var_a, runs_a), (mean_b, var_b, runs_b) = _moments(x), _moments(y)
    with np.errstate(divide="ignore", invalid="ignore"):
        part_a, part_b = var_a / runs_a, var_b / runs_b
        weight = part_a**2 / (runs_a - 1) + part_b**2 / (runs_b - 1)
        df = np.where(weight > 0, (part_a + part_b) ** 2 / weight, runs_a + runs_b - 2)
    return LogRatios(
        mean_b - mean_a,
        np.sqrt(part_a + part_b),
        df,
        var_a + var_b,
        np.minimum(runs_a, runs_b),
        slack,
    )


def simultaneous(level: float, claims: int) -> float:
    """The level that each of `claims` intervals needs for all to hold together (Bonferroni)."""
    return 1 - (1 - level) / max(1, claims)


def _logs(values: F64) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def _moments(logs: F64) -> tuple[F64, F64, F64]:
    """Mean, variance (n - 1) and number of the known values, (n,) each."""
    is_known = ~np.isnan(logs)
    runs = is_known.sum(axis=1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(is_known, logs, 0.0).sum(axis=1) / runs
        squares = np.where(is_known, (logs - mean[:, None]) ** 2, 0.0).sum(axis=1)
        # Equal runs have no spread except for rounding.
        squares = np.where(squares < 1e-24 * runs, 0.0, squares)
        variance = np.where(runs > 1, squares / (runs - 1), np.nan)
    return mean, variance, runs


def _t(level: float, df: F64) -> F64:
    quantile: F64 = stats.t.ppf((1 + level) / 2, df)
    return quantile


def _z(level: float) -> float:
    return float(stats.norm.ppf((1 + level) / 2))
