# SPDX-License-Identifier: Apache-2.0
"""Which means differ: all pairs of a factor's levels, or of combinations.

The mean of a level weighs its combinations equally, so that lost runs of one combination do not
shift it (estimated marginal means). With one combination a level these are ordinary means.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import interpolate, stats

from qjoule_studies.statistics.design import Floats, Ints
from qjoule_studies.statistics.effect_sizes import EffectSize, hedges_g


def letters(means: Sequence[float], differ: Iterable[tuple[int, int]]) -> list[str]:
    """The letters of each group, `a` with the largest mean.

    Insert and absorb: Piepho (2004), J. Computational and Graphical Statistics 13: begin with one
    column that holds all groups; for each pair that differs, split the columns that hold both; drop
    columns that another one holds.

    Args:
        means: of each group; an order for the letters is all that they are for.
        differ: pairs of groups whose means differ significantly.
    """
    columns = [frozenset(range(len(means)))]
    for first, second in sorted((min(pair), max(pair)) for pair in differ):
        split: list[frozenset[int]] = []
        for column in columns:
            if {first, second} <= column:
                split += [column - {first}, column - {second}]
            else:
                split.append(column)
        columns = _largest(split)
    descending = sorted(range(len(means)), key=lambda group: -means[group])
    rank = {group: place for place, group in enumerate(descending)}
    columns.sort(key=lambda column: sorted(rank[group] for group in column))
    texts = [""] * len(means)
    for number, column in enumerate(columns):
        for group in column:
            texts[group] += _letter(number)
    return texts


def _largest(columns: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    distinct = list(dict.fromkeys(columns))
    return [column for column in distinct if not any(column < other for other in distinct)]


def _letter(number: int) -> str:
    """a … z, A … Z, then (53), (54), ...: what is left of the alphabet runs out."""
    every = string.ascii_lowercase + string.ascii_uppercase
    return every[number] if number < len(every) else f"({number + 1})"


ALPHA = 0.05
TUKEY = "Tukey-Kramer"
GAMES_HOWELL = "Games-Howell"

#: With more groups, pairs are not compared: nobody reads them, and each takes about 10 ms.
MOST_GROUPS = 30

_NODES = 8  #: exact values between which others are interpolated


@dataclass(frozen=True)
class Cells:
    """Means of combinations: (cells,) each; `variances` is NaN where a cell has one run."""

    counts: Ints
    means: Floats
    variances: Floats


@dataclass(frozen=True)
class Group:
    """A level or combination; the mean is None where one of its combinations has no run."""

    name: str
    runs: int
    mean: float | None
    letters: str = ""


@dataclass(frozen=True)
class Pair:
    """`difference` is the first one's mean less the second one's; the interval is simultaneous.

    `p` is corrected for all pairs; None where neither of both spreads, so that there is no test.
    """

    first: int
    second: int
    difference: float
    low: float | None
    high: float | None
    p: float | None
    df: float | None
    se: float
    size: EffectSize


@dataclass(frozen=True)
class Pairs:
    method: str
    groups: tuple[Group, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...] = ()


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's (1979) correction: of all tests together at most 5 % of studies have a false positive.

    In the same order; a None is no test and stays None.

    The same as statsmodels' `multipletests`, which collects all garbage at each call: with it an
    analysis of two factors took 1.1 s in place of 0.25 s.
    """
    tested = np.array([p for p in p_values if p is not None])
    ascending = np.argsort(tested, kind="stable")
    factors = np.arange(len(tested), 0, -1)
    corrected = np.empty(len(tested))
    corrected[ascending] = np.minimum(np.maximum.accumulate(tested[ascending] * factors), 1)
    own = iter(corrected.tolist())
    return [None if p is None else next(own) for p in p_values]


def cells_of(values: Floats, cells: Ints) -> Cells:
    """Summaries of `values` (runs,) by the number of their cell."""
    counts = np.bincount(cells)
    means = np.bincount(cells, values) / counts
    squares = np.bincount(cells, (values - means[cells]) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        variances = np.where(counts > 1, squares / (counts - 1), np.nan)
    return Cells(counts, means, variances)


def compare(
    cells: Cells,
    members: Sequence[Sequence[int]],
    names: Sequence[str],
    *,
    mean_sq_error: float | None,
    df_error: int,
) -> Pairs:
    """All pairs of groups of cells.

    Args:
        members: the cells of each group; a group without cells is left out of the pairs.
        mean_sq_error, df_error: the table's error, for Tukey's honestly significant difference
            (Tukey 1949, Kramer 1956); None: each cell has its own variance, for Games and Howell
            (1976), J. Educational Statistics 1, with Welch's degrees of freedom.
    """
    own = mean_sq_error is None
    runs = [int(sum(cells.counts[cell] for cell in group)) for group in members]
    means = [float(np.mean(cells.means[list(group)])) if len(group) else None for group in members]
    comparable, notes = _comparable(cells, members, own)
    differences = [
        (
            first,
            second,
            _difference(cells, members[first], members[second], mean_sq_error, df_error),
        )
        for first, second in itertools.combinations(comparable, 2)
    ]
    pairs = _tested(differences, len(comparable))
    shown = dict.fromkeys(range(len(members)), "")
    if pairs:
        differ = [
            (pair.first, pair.second) for pair in pairs if pair.p is not None and pair.p < ALPHA
        ]
        place = {group: number for number, group in enumerate(comparable)}
        texts = letters(
            [means[group] or 0.0 for group in comparable],
            [(place[first], place[second]) for first, second in differ],
        )
        shown.update(zip(comparable, texts, strict=True))
    groups = tuple(
        Group(name, count, mean, shown[number])
        for number, (name, count, mean) in enumerate(zip(names, runs, means, strict=True))
    )
    return Pairs(GAMES_HOWELL if own else TUKEY, groups, tuple(pairs), tuple(notes))


def _comparable(
    cells: Cells, members: Sequence[Sequence[int]], own: bool
) -> tuple[list[int], list[str]]:
    """The groups that can be compared, and notes about the others."""
    comparable, notes = [], []
    for number, group in enumerate(members):
        if len(group) and not (own and any(cells.counts[cell] < 2 for cell in group)):
            comparable.append(number)
    if len(comparable) < len(members):
        notes.append(
            f"{len(members) - len(comparable)} of {len(members)} not compared: a combination has "
            + ("fewer than two runs" if own else "no run")
        )
    if len(comparable) > MOST_GROUPS:
        notes.append(f"{len(comparable)} are too many to compare in pairs: at most {MOST_GROUPS}")
        comparable = []
    return comparable, notes


@dataclass(frozen=True)
class _Difference:
    difference: float
    se: float
    df: float
    size: EffectSize


def _difference(
    cells: Cells,
    first: Sequence[int],
    second: Sequence[int],
    mean_sq_error: float | None,
    df_error: int,
) -> _Difference:
    difference = float(np.mean(cells.means[list(first)]) - np.mean(cells.means[list(second)]))
    both = [*first, *second]
    shares = np.concatenate(
        [np.full(len(first), 1 / len(first)), np.full(len(second), 1 / len(second))]
    )
    width = shares**2 / cells.counts[both]  # of a cell's variance in that of the difference
    free = cells.counts[both] - 1
    if mean_sq_error is None:
        parts = width * cells.variances[both]
        variance = float(parts.sum())
        df = variance**2 / float(np.sum(parts**2 / free)) if variance > 0 else 0.0
    else:
        variance, df = float(mean_sq_error * width.sum()), float(df_error)
    pooled, pooled_df = mean_sq_error, df_error
    if np.all(free > 0):
        pooled_df = int(free.sum())
        pooled = float(np.sum(free * cells.variances[both])) / pooled_df
    size = hedges_g(difference, math.sqrt(pooled or 0.0), pooled_df, math.sqrt(width.sum()))
    return _Difference(difference, math.sqrt(variance), df, size)


def _tested(differences: Sequence[tuple[int, int, _Difference]], groups: int) -> list[Pair]:
    """Intervals and p values by the studentised range of `groups` means."""
    spreading = [difference for _, _, difference in differences if difference.se > 0]
    if not spreading:
        return [
            Pair(a, b, x.difference, None, None, None, None, 0.0, x.size) for a, b, x in differences
        ]
    df = np.array([difference.df for difference in spreading])
    q = np.array(
        [math.sqrt(2) * abs(difference.difference) / difference.se for difference in spreading]
    )
    tested = iter(
        zip(
            np.clip(stats.studentized_range.sf(q, groups, df), 0, 1),
            critical(groups, df),
            strict=True,
        )
    )
    pairs = []
    for first, second, x in differences:
        if x.se > 0:
            p, limit = next(tested)
            half = float(limit) * x.se / math.sqrt(2)
            low, high = x.difference - half, x.difference + half
            pairs.append(Pair(first, second, x.difference, low, high, float(p), x.df, x.se, x.size))
        else:
            pairs.append(Pair(first, second, x.difference, None, None, None, None, 0.0, x.size))
    return pairs


def critical(groups: int, df: Floats) -> Floats:
    """The studentised range that chance exceeds in 5 % of cases, for each of `df`.

    An exact value takes 50 ms; of more than a few, its logarithm is interpolated over 1/df, on
    which it depends smoothly.
    """
    distinct, place = np.unique(df, return_inverse=True)
    if len(distinct) <= _NODES:
        exact = [_limit(groups, float(freedom)) for freedom in distinct]
        return np.asarray(exact)[place]
    low, high = 1 / distinct[-1], 1 / distinct[0]
    node = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES) * (high - low) / 2 + (high + low) / 2
    logarithms = [math.log(_limit(groups, float(1 / inverse))) for inverse in node]
    smooth = interpolate.BarycentricInterpolator(node, logarithms)
    return np.asarray(np.exp(smooth(1 / distinct)))[place]


@cache
def _limit(groups: int, df: float) -> float:
    return float(stats.studentized_range.isf(ALPHA, groups, df))
