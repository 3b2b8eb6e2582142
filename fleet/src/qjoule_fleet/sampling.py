# SPDX-License-Identifier: Apache-2.0
"""Totals estimated from queries that were drawn at random with known probabilities.

A drawn query stands for `1 / probability` queries: the sum of the weighted values is an unbiased
estimate of the total (Horvitz and Thompson, A Generalization of Sampling Without Replacement From a
Finite Universe, JASA 47, 1952). Draws are independent of each other, so an unbiased estimate of its
variance is the sum of `(1 - p) (y / p)^2` (Särndal, Swensson and Wretman, Model Assisted Survey
Sampling, 1992, 3.5).

That variance is uncertain itself if a few values make up most of it. So the interval has a
quantile of Student's t, with as many degrees of freedom as equal terms would make up the sum as
evenly (after Satterthwaite, Biometrics Bulletin 2, 1946).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from qjoule.api.model import F64, I64, Bool

#: Draws by chance below which an interval is a rough guess: its coverage is not that of its level.
FEW = 25


@dataclass(frozen=True)
class Estimates:
    """Of g groups, all (g,)."""

    total: F64
    half_width: F64  #: of the 95 % interval, of the draws alone
    drawn: I64  #: queries
    by_chance: I64  #: queries that were not drawn for certain

    @property
    def rough(self) -> Bool:
        """Whether the draws are too few to tell the interval."""
        rough: Bool = (self.by_chance > 0) & (self.by_chance < FEW)
        return rough


def estimate(values: F64, probability: F64, group: I64, groups: int) -> Estimates:
    """The total of `values` in each group, over all queries and not just those drawn.

    Args:
        values: (n,) of the drawn queries.
        probability: (n,) of being drawn, above 0 and at most 1.
        group: (n,) each query's group, from 0.
        groups: how many there are.
    """
    weighted = values / probability
    terms = (1.0 - probability) * weighted**2
    variance = np.bincount(group, terms, groups)
    squares = np.bincount(group, terms**2, groups)
    freedom = np.ones(groups)
    np.divide(variance**2, squares, out=freedom, where=squares > 0)
    quantile = student.ppf(0.975, np.maximum(freedom, 1.0))
    return Estimates(
        np.bincount(group, weighted, groups).astype(np.float64),
        quantile * np.sqrt(variance),
        np.bincount(group, minlength=groups),
        np.bincount(group[probability < 1.0], minlength=groups),
    )
