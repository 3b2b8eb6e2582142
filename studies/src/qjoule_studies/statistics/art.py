# SPDX-License-Identifier: Apache-2.0
"""Aligned rank transform: tests of factors and interactions that need no normal residuals.

Wobbrock, Findlater, Gergle, Higgins, "The aligned rank transform for nonparametric factorial
analyses using only ANOVA procedures", CHI 2011. For each effect, the estimates of all other effects
are subtracted from the response (it is aligned), the result is ranked, and only this effect's row
of an analysis of variance of the ranks is used.

`welch` is Welch's analysis of variance: each combination has a variance of its own. With several
factors it is the test of Johansen, "The Welch-James approximation to the distribution of the
residual sum of squares in a weighted linear regression", Biometrika 67, 1980, of contrasts of the
combinations' means; with one factor it is that of Welch, Biometrika 38, 1951. Every combination's
mean counts alike, as in a table of type III.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from scipy import stats

from qjoule_studies.statistics.anova import Anova, Effect, analyse
from qjoule_studies.statistics.design import BLOCK, Design, Floats, Term
from qjoule_studies.statistics.pairwise import Cells, holm


@dataclass(frozen=True)
class WelchEffect:
    """`df_error` depends on the effect: on the combinations that it compares."""

    term: Term
    name: str
    f: float
    df: int
    df_error: float
    p: float
    p_holm: float | None = None


@dataclass(frozen=True)
class Welch:
    """`note` says why there are no effects, if there are none."""

    effects: tuple[WelchEffect, ...]
    note: str = ""


def welch(cells: Cells, design: Design, terms: Sequence[Term]) -> Welch:
    """The tests of `terms` but blocks; `cells` in the order of `design.combinations`."""
    if not design.complete:
        return Welch((), "some combinations have no run")
    if np.any(cells.counts < 2):
        return Welch((), "a combination has one run only: its spread is unknown")
    if np.any(cells.variances <= 0):
        return Welch((), "a combination's runs are all equal: it would decide alone")
    effects = [_effect(cells, design, term) for term in terms if term != BLOCK]
    corrected = holm([effect.p for effect in effects])
    return Welch(
        tuple(replace(effect, p_holm=p) for effect, p in zip(effects, corrected, strict=True))
    )


def _effect(cells: Cells, design: Design, term: Term) -> WelchEffect:
    contrasts = _contrasts(design, term)
    variances = cells.variances / cells.counts  # of the means
    weights = np.linalg.inv((contrasts * variances) @ contrasts.T)
    differences = contrasts @ cells.means
    df = len(contrasts)
    part = variances * np.einsum("ij,ik,kj->j", contrasts, weights, contrasts)
    lack = float(np.sum(part**2 / (cells.counts - 1)))
    f = float(differences @ weights @ differences) / (df + 2 * lack - 6 * lack / (df + 2))
    df_error = df * (df + 2) / (3 * lack)
    return WelchEffect(term, design.name(term), f, df, df_error, float(stats.f.sf(f, df, df_error)))


def _contrasts(design: Design, term: Term) -> Floats:
    """(df, combinations): differences of the term's levels, means over those of other factors."""
    parts: list[Floats] = []
    for factor, levels in enumerate(design.levels):
        size = len(levels)
        differences = np.hstack([np.eye(size - 1), -np.ones((size - 1, 1))])
        parts.append(differences if factor in term else np.full((1, size), 1 / size))
    return reduce(lambda left, right: np.asarray(np.kron(left, right)), parts)


@dataclass(frozen=True)
class AlignedRanks:
    """Effects with F and p of their own ranks; sums of squares are of ranks, too."""

    effects: tuple[Effect, ...]
    df_error: int


def aligned_ranks(values: Floats, design: Design, table: Anova) -> AlignedRanks:
    """The test of every factors' effect of `table`, which `anova.analyse` made of the same."""
    effects = []
    parts = estimates(values, design, table)
    for effect in table.effects:
        if effect.term == BLOCK or effect.df == 0:
            continue
        aligned = table.fit.residuals + parts[effect.term]
        ranked = analyse(_ranks(aligned), design, type_=table.type)
        effects.append(next(row for row in ranked.effects if row.term == effect.term))
    corrected = holm([effect.p for effect in effects])
    return AlignedRanks(
        tuple(replace(row, p_holm=p) for row, p in zip(effects, corrected, strict=True)),
        table.df_error,
    )


def estimates(values: Floats, design: Design, table: Anova) -> dict[Term, Floats]:
    """(runs,) of each effect: what it adds to a run; every cell counts alike."""
    terms = [effect.term for effect in table.effects if effect.df]
    columns = [design.columns(term) for term in terms]
    model = np.hstack([np.ones((design.runs, 1)), *columns])
    coefficients = np.linalg.lstsq(model, values, rcond=None)[0]
    parts, start = {}, 1
    for term, column in zip(terms, columns, strict=True):
        end = start + column.shape[1]
        parts[term] = column @ coefficients[start:end]
        start = end
    return parts


def _ranks(aligned: Floats) -> Floats:
    """Ranks; values that differ only by rounding get the same rank."""
    spread = float(np.ptp(aligned))
    if spread > 0:
        aligned = np.round(aligned, 10 - math.ceil(math.log10(spread)))
    ranks: Floats = stats.rankdata(aligned)
    return ranks
