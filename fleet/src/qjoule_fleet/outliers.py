# SPDX-License-Identifier: Apache-2.0
"""Compares hosts: outliers among the hosts of a shape, and what a deploy changed.

An outlier takes more, or less, energy for a shape than the other hosts do.

Each host's joules per call are compared with the median over the hosts of the same shape, grade and
idle policy, on a logarithmic scale. Median and median absolute deviation (MAD) are robust against
the outliers themselves (Leys et al., J. Exp. Soc. Psychol. 49, 2013). A host's own 95 % interval
adds to the spread, so a host with an uncertain value is no outlier. Because many hosts and shapes
are tested, p-values are corrected for the false discovery rate (Benjamini and Hochberg, J. R.
Stat. Soc. B 57, 1995).

For a deploy, each shape's joules per call on two sides are compared host by host. Each host is
compared with itself if it has both sides. Then the errors of its power model and of its total
cancel, and the spread of the hosts' ratios is the uncertainty (`qjoule.model.compared`). If no host
has both sides, hosts of one side are compared with those of the other, and all errors count. Each
grade and idle policy is compared separately.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from qjoule.api.comparison import (
    Form,
    MadeWith,
    RunForms,
    Sides,
    compare_sides,
    latency_parts,
    match,
)
from qjoule.api.model import F64, Z95
from qjoule_fleet.top import Row

#: With fewer hosts a median means little, and with fewer calls a mean.
LEAST_HOSTS, LEAST_CALLS = 8, 30
FALSE_SHARE = 0.05
#: Factor from the MAD of a normal distribution to its standard deviation.
_MAD = 1.4826
#: Correction for few values (Croux and Rousseeuw, Compstat 1992); n / (n - 0.8) for more.
_FEW = {8: 1.129, 9: 1.107}
#: Variance of a median relative to that of a mean; efficiency of a MAD's square (37 %).
_MEDIAN_VARIANCE, _EFFICIENCY = math.pi / 2, 0.37


@dataclass(frozen=True)
class Outlier:
    """`median_j`: joules per call of the median host. `ratio`: of the host to the median, with a
    95 % interval that includes the spread of hosts. `p`: corrected p-value."""

    row: Row
    median_j: float
    ratio: float
    ratio_ci95: tuple[float, float]
    hosts: int
    p: float


@dataclass(frozen=True)
class Outliers:
    """`tested`: number of shape and host pairs that were compared; `skipped`: of those that were
    not."""

    outliers: list[Outlier]
    tested: int
    skipped: int


@dataclass(frozen=True)
class _Group:
    rows: Sequence[Row]
    median: float
    spread: float
    distance: F64  #: logarithms of the ratios to the median
    half: F64  #: half widths of their 95 % intervals
    p: F64


def outliers(rows: Iterable[Row], least_ratio: float = 1.1) -> Outliers:
    """Finds outliers among `rows` by host and fingerprint; ignores ratios within `least_ratio`."""
    groups, skipped = _groups(rows)
    tested = [_test_group(group) for group in groups]
    if not tested:
        return Outliers([], 0, skipped)
    corrected = _adjust_p_values(np.concatenate([group.p for group in tested]))
    result, first = [], 0
    for group in tested:
        for i, row in enumerate(group.rows):
            p, distance, half = float(corrected[first + i]), group.distance[i], group.half[i]
            if p <= FALSE_SHARE and abs(distance) >= math.log(least_ratio):
                ends = (math.exp(distance - half), math.exp(distance + half))
                ratio = math.exp(distance)
                result.append(Outlier(row, math.exp(group.median), ratio, ends, len(group.rows), p))
        first += len(group.rows)
    result.sort(key=lambda outlier: -_excess_nj(outlier))
    return Outliers(result, len(corrected), skipped)


def _excess_nj(outlier: Outlier) -> float:
    """Returns the energy beyond, or below, that of the median host."""
    return abs(outlier.row.energy_nj * (1 - 1 / outlier.ratio))


def _groups(rows: Iterable[Row]) -> tuple[list[list[Row]], int]:
    """Groups comparable rows of the same shape, grade and policy; returns the number of others."""
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


def _test_group(rows: list[Row]) -> _Group:
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


def _adjust_p_values(p: F64) -> F64:
    """Returns p-values adjusted by Benjamini and Hochberg."""
    order = np.argsort(p)
    count = len(p)
    ranked = p[order] * count / np.arange(1, count + 1)
    adjusted = np.minimum.accumulate(ranked[::-1])[::-1]
    corrected = np.empty(count)
    corrected[order] = np.minimum(adjusted, 1.0)
    return corrected


_ITSELF = "each host against itself"


@dataclass(frozen=True)
class Class:
    """The comparison of one grade and idle policy.

    `a`, `b`: hosts of both sides, as runs. `left_out`: hosts with only one side.
    """

    sides: Sides
    a: list[RunForms]
    b: list[RunForms]
    left_out: list[str]
    alone_a: list[Form]
    alone_b: list[Form]


_Hosts = dict[str, list[Row]]
_Classes = dict[tuple[str, str], _Hosts]


def compare(before: Sequence[Row], after: Sequence[Row]) -> list[Class]:
    """Compares rows by host and fingerprint; for classes with only one side see `unmatched`."""
    a, b = _classes(before), _classes(after)
    comparisons = []
    for class_ in sorted(a.keys() & b.keys()):
        if comparison := _compared(class_, a[class_], b[class_]):
            comparisons.append(comparison)
    return comparisons


def unmatched(before: Sequence[Row], after: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Returns side (A or B), grade and policy of the classes that only one side has."""
    a, b = set(_classes(before)), set(_classes(after))
    return [("A", *key) for key in sorted(a - b)] + [("B", *key) for key in sorted(b - a)]


def _classes(rows: Sequence[Row]) -> _Classes:
    classes: _Classes = defaultdict(lambda: defaultdict(list))
    for row in rows:
        classes[row.grade, row.policy][row.keys["host"]].append(row)
    return classes


def _compared(class_: tuple[str, str], a: _Hosts, b: _Hosts) -> Class | None:
    both = sorted(a.keys() & b.keys())
    hosts_a, hosts_b = (both, both) if both else (sorted(a), sorted(b))
    runs_a = _runs(class_, {host: a[host] for host in hosts_a}, paired=bool(both))
    runs_b = _runs(class_, {host: b[host] for host in hosts_b}, paired=bool(both))
    old, new = _forms(runs_a), _forms(runs_b)
    matched = match(old, new)
    if not matched:
        return None
    names = {form.name for form, _ in matched}
    return Class(
        compare_sides(runs_a, runs_b, matched),
        runs_a,
        runs_b,
        sorted((a.keys() ^ b.keys()) if both else ()),
        [form for form in old if form.name not in names],
        [form for form in new if form.name not in names],
    )


def _runs(
    class_: tuple[str, str], hosts: Mapping[str, Sequence[Row]], *, paired: bool
) -> list[RunForms]:
    grade, policy = class_
    return [
        RunForms(
            host,
            [_form(row) for row in rows],
            MadeWith(
                grade, policy, "as the hosts measured", _ITSELF if paired else host, "its own"
            ),
        )
        for host, rows in hosts.items()
    ]


def _form(row: Row) -> Form:
    same = row.same_total_nj_ci95
    return Form(
        row.keys["fingerprint"],
        row.text,
        row.calls,
        row.j_per_call,
        row.j_per_call_ci95,
        row.latency_ns_mean,
        loss_share=row.in_doubt_nj / row.energy_nj if row.energy_nj else 0.0,
        same_total_ci95=same and (same[0] / 1e9 / row.calls, same[1] / 1e9 / row.calls)
        if row.calls
        else None,
        latency_parts_ns=latency_parts(row.waits, row.latency_ns_mean),
    )


def _forms(runs: Sequence[RunForms]) -> list[Form]:
    """Returns each statement once, those with most energy first."""
    first: dict[str, Form] = {}
    energy_j: dict[str, float] = defaultdict(float)
    for run in runs:
        for form in run.forms:
            first.setdefault(form.name, form)
            energy_j[form.name] += (form.j_per_call or 0.0) * form.calls
    return sorted(first.values(), key=lambda form: (-energy_j[form.name], form.name))
