# SPDX-License-Identifier: Apache-2.0
"""Whether a figure leaves the interval of its own past."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy import stats

from qjoule.model.run_ratios import LEVEL

#: With fewer figures the interval is too wide to leave it.
LEAST = 8


def expected(past: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % prediction interval of the next of some positive figures; None: they are too few.

    The figures are treated as independent and log-normal, as in `qjoule.model.run_ratios`. Their
    next one lies within mean +/- t s sqrt(1 + 1/n) of the logs (Hahn and Meeker, Statistical
    Intervals, 1991, section 4.8).
    """
    logs = [math.log(value) for value in past if value > 0 and math.isfinite(value)]
    if len(logs) < LEAST:
        return None
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1)) * stdev(logs)
    reach *= math.sqrt(1 + 1 / len(logs))
    centre = fmean(logs)
    return math.exp(centre - reach), math.exp(centre + reach)


def leaves(now: tuple[float, float], past: Sequence[float]) -> tuple[float, float] | None:
    """The interval that a figure leaves, of which `now` is the 95 % interval; None: it does not.

    It leaves only if the two intervals have nothing in common.
    """
    ends = expected(past)
    if ends is None or (now[1] >= ends[0] and now[0] <= ends[1]):
        return None
    return ends
