# SPDX-License-Identifier: Apache-2.0
"""Hosts that take more, or less, for the same shape than the other hosts do.

Each host's joules per call are compared with the median over the hosts of the same shape, grade and
idle policy, on a logarithmic scale. Median and median absolute deviation (MAD) do not move with
the outliers themselves (Leys et al., J. Exp. Soc. Psychol. 49, 2013). A host's own 95 % interval
adds to the spread, so a host that is not known well is no outlier. As so many hosts and shapes are
looked at, p-values are corrected for the share of false findings (Benjamini and Hochberg, J. R.
Stat. Soc. B 57, 1995).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from qjoule.api.model import F64, Z95
from qjoule_fleet.top import Row

#: With fewer hosts a median says little, and with fewer calls a mean does.
LEAST_HOSTS, LEAST_CALLS = 8, 30
FALSE_SHARE = 0.05
#: MAD of a normal distribution to its standard deviation.
_MAD = 1.4826
#: For few values it is too small (Croux and Rousseeuw, Compstat 1992); n / (n - 0.8) for more.
_FEW = {8: 1.129, 9: 1.107}
#: Variance of a median, and of a MAD's square, to those of the best estimates (37 % efficient).
_MEDIAN_VARIANCE, _EFFICIENCY = math.pi / 2, 0.37


@dataclass(frozen=True)
class Outlier:
    """`median_j`: joules per call of the median host. `ratio`: the host's over it, with a 95 %
    interval that includes the spread of hosts. `p`: corrected."""

    row: Row
    median_j: float
    ratio: float
    ratio_ci95: tuple[float, float]
    hosts: int
    p: float


@dataclass(frozen=True)
class Outliers:
    """`tested`: shapes on hosts that could be compared; `skipped`: those that could not."""

    found: list[Outlier]
    tested: int
    skipped: int


@dataclass(frozen=True)
class _Group:
    rows: Sequence[Row]
    median: float
    spread: float
    distance: F64  #: logs of the ratios to the median
    half: F64  #: of their 95 % intervals
    p: F64


def outliers(rows: Iterable[Row], least_ratio: float = 1.1) -> Outliers:
    """`rows` are by host and fingerprint. Ratios within `least_ratio` are not told."""
    groups, skipped = _groups(rows)
    tested = [_tested(group) for group in groups]
    if not tested:
        return Outliers([], 0, skipped)
    corrected = _corrected(np.concatenate([group.p for group in tested]))
    found, at = [], 0
    for group in tested:
        for i, row in enumerate(group.rows):
            p, distance, half = float(corrected[at + i]), group.distance[i], group.half[i]
            if p <= FALSE_SHARE and abs(distance) >= math.log(least_ratio):
                ends = (math.exp(distance - half), math.exp(distance + half))
                ratio = math.exp(distance)
                found.append(Outlier(row, math.exp(group.median), ratio, ends, len(group.rows), p))
        at += len(group.rows)
    found.sort(key=lambda one: -_excess_nj(one))
    return Outliers(found, len(corrected), skipped)


def _excess_nj(one: Outlier) -> float:
    """Joules that the difference to the median makes."""
    return abs(one.row.energy_nj * (1 - 1 / one.ratio))


def _groups(rows: Iterable[Row]) -> tuple[list[list[Row]], int]:
    """Rows of the same shape, grade and policy that have what it takes; how many have not."""
    alike: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    skipped = 0
    for row in rows:
        if row.energy_nj > 0 and row.calls >= LEAST_CALLS and row.energy_nj_ci95 is not None:
            alike[row.keys["fingerprint"], row.grade, row.policy].append(row)
        else:
            skipped += 1
    groups = [group for group in alike.values() if len(group) >= LEAST_HOSTS]
    few = sum(len(group) for group in alike.values()) - sum(map(len, groups))
    return groups, skipped + few


def _tested(rows: list[Row]) -> _Group:
    value = np.log([row.energy_nj / 1e9 / row.calls for row in rows])
    ends = np.array([row.j_per_call_ci95 for row in rows], np.float64)
    own = np.log(ends[:, 1] / np.maximum(ends[:, 0], np.finfo(float).tiny)) / (2 * Z95)
    median = float(np.median(value))
    distance = value - median
    count = len(rows)
    spread = _MAD * _FEW.get(count, count / (count - 0.8)) * float(np.median(np.abs(distance)))
    between = spread**2 * (1 + _MEDIAN_VARIANCE / count)
    variance = between + own**2
    scale = np.sqrt(variance)
    # Welch and Satterthwaite: the spread between hosts is estimated, a host's own error is known.
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.nan_to_num(variance**2 / between**2, nan=1.0, posinf=1e6)
    freedom = freedom * max(1.0, _EFFICIENCY * (count - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(scale > 0, np.abs(distance) / scale, np.where(distance != 0, np.inf, 0.0))
    p: F64 = 2 * stats.t.sf(t, freedom)
    half = stats.t.ppf(0.975, freedom) * scale
    return _Group(rows, median, spread, distance, half, p)


def _corrected(p: F64) -> F64:
    """Benjamini and Hochberg's adjusted p-values."""
    order = np.argsort(p)
    count = len(p)
    ranked = p[order] * count / np.arange(1, count + 1)
    adjusted = np.minimum.accumulate(ranked[::-1])[::-1]
    found = np.empty(count)
    found[order] = np.minimum(adjusted, 1.0)
    return found
