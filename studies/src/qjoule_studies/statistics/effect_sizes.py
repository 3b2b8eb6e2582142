# SPDX-License-Identifier: Apache-2.0
"""Hedges' g: a difference of two means in standard deviations, with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import optimize, special, stats


@dataclass(frozen=True)
class EffectSize:
    """`g` is None where nothing spreads; the interval is 95 %."""

    g: float | None
    low: float | None = None
    high: float | None = None

    @property
    def words(self) -> str:
        """Cohen's (1988) words; what is large for an experiment is the experimenter's to say."""
        if self.g is None:
            return "unknown"
        size = abs(self.g)
        named = [(0.2, "negligible"), (0.5, "small"), (0.8, "medium")]
        return next((word for limit, word in named if size < limit), "large")


def hedges_g(difference: float, sd: float, df: int, width: float) -> EffectSize:
    """g with the exact small-sample factor (Hedges 1981), interval by the noncentral t.

    Far out the noncentral t has no digits left: there the interval is the normal approximation
    (Hedges and Olkin 1985, section 5.E).

    Args:
        difference: of the two means.
        sd: pooled standard deviation of one run.
        df: degrees of freedom of `sd`.
        width: the difference's standard error over `sd`: √(1/n₁ + 1/n₂) for two samples.
    """
    if df < 1 or not sd > 0:
        return EffectSize(None)
    smaller = math.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) * math.sqrt(2 / df)
    if df == 1:
        return EffectSize(None)
    t = difference / (sd * width)
    low, high = (_noncentrality(t, df, share) for share in (0.975, 0.025))
    g = difference / sd * smaller
    if low is None or high is None:
        half = float(stats.norm.isf(0.025)) * math.sqrt(width**2 + g * g / (2 * df))
        return EffectSize(g, g - half, g + half)
    return EffectSize(g, low * width * smaller, high * width * smaller)


def _noncentrality(t: float, df: int, share: float) -> float | None:
    """The noncentrality under which `share` of t values is below `t` (Steiger 2004)."""
    reach = 8 + abs(t) * (1 + 8 / math.sqrt(df))
    try:
        noncentrality = optimize.brentq(
            lambda ncp: float(stats.nct.cdf(t, df, ncp)) - share, t - reach, t + reach, xtol=1e-9
        )
    except ValueError:
        return None
    return float(noncentrality) if math.isfinite(noncentrality) else None
