# SPDX-License-Identifier: Apache-2.0
"""Aligned rank transform: tests of factors and interactions that need no normal residuals.

Wobbrock, Findlater, Gergle, Higgins, "The aligned rank transform for nonparametric factorial
analyses using only ANOVA procedures", CHI 2011. For each effect, the estimates of all other effects
are subtracted from the response (it is aligned), the result is ranked, and only this effect's row
of an analysis of variance of the ranks is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from qjoule_studies.statistics.anova import Anova, Effect, analyse
from qjoule_studies.statistics.design import BLOCK, Design, Floats, Term
from qjoule_studies.statistics.pairwise import holm


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
