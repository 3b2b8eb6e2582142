# SPDX-License-Identifier: Apache-2.0
"""All statistics of a study: which tests are shown for a response, and which one decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from qjoule.api import QjouleError
from qjoule_studies.statistics.anova import Anova, Effect
from qjoule_studies.statistics.anova import analyse as anova_of
from qjoule_studies.statistics.art import AlignedRanks, Welch, aligned_ranks, estimates, welch
from qjoule_studies.statistics.assumptions import Assumptions, check
from qjoule_studies.statistics.design import BLOCK, BY, Design, Floats
from qjoule_studies.statistics.pairwise import Cells, Pairs, cells_of, compare
from qjoule_studies.statistics.regression import Line, lines
from qjoule_studies.statistics.sample import Sample, has_values, select

ANOVA = "analysis of variance"
WELCH = "Welch-James test"
RANKS = "aligned rank transform"

DEFAULTS = ("j_per_operation", "wall_s")  #: responses


@dataclass(frozen=True)
class Mean:
    """The mean of one combination, with Student's interval over its runs; None of a single run."""

    levels: tuple[str, ...]
    runs: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Findings:
    """The tests of a response whose factors have levels to compare.

    Attributes:
        decides: `ANOVA`, `WELCH` or `RANKS`; `why` says what chose it.
        combinations: pairs of combinations.
        factors: pairs of each factor's levels, where there are several factors.
    """

    anova: Anova
    assumptions: Assumptions
    decides: str
    why: str
    welch: Welch
    ranks: AlignedRanks
    combinations: Pairs
    factors: tuple[tuple[str, Pairs], ...]

    def effects(self) -> tuple[Effect, ...]:
        """Factors' effects as the deciding test has them; F, p and Holm's p are its own."""
        own = [effect for effect in self.anova.effects if effect.term != BLOCK]
        if self.decides == ANOVA:
            return tuple(own)
        rows = self.welch.effects if self.decides == WELCH else self.ranks.effects
        deciding = {row.term: row for row in rows}
        return tuple(
            replace(effect, f=row.f, p=row.p, p_holm=row.p_holm)
            if (row := deciding.get(effect.term))
            else effect
            for effect in own
        )


@dataclass(frozen=True)
class Response:
    """One response. `tests` is None where there is nothing to compare; `notes` say why."""

    sample: Sample
    means: tuple[Mean, ...]
    tests: Findings | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """`energy_time`: energy_j over wall_s, with its sample; None where one of them is unknown."""

    responses: tuple[Response, ...]
    energy_time: tuple[Sample, Floats, tuple[Line, ...]] | None
    notes: tuple[str, ...]


def analyse(
    table: pd.DataFrame,
    responses: Sequence[str] | None = None,
    factors: Sequence[str] | None = None,
    *,
    type_: int = 2,
    mixed: bool = False,
) -> Study:
    """Every response of the runs of `table` (`runs.read_runs`), and energy against time.

    Args:
        responses: names of columns; None: those of `DEFAULTS` that some run has.
        factors, mixed: as `sample.select`.
        type_: of the sums of squares, 2 or 3.

    Raises:
        UsageError, QjouleError: as `sample.select`.
    """
    notes: list[str] = []
    if responses is None:
        responses = [name for name in DEFAULTS if has_values(table, name)] or DEFAULTS[:1]
        notes += [f"no run has {name}: left out" for name in DEFAULTS if name not in responses]
    analysed = [
        response(select(table, name, factors, mixed=mixed), type_=type_)
        for name in dict.fromkeys(responses)
    ]
    try:
        energy = select(table, "energy_j", factors, mixed=mixed)
        time = select(table, "wall_s", factors, mixed=mixed)
    except QjouleError as refused:
        return Study(tuple(analysed), None, (*notes, f"no energy against time: {refused}"))
    both = np.isin(energy.order, time.order)
    wall_s = dict(zip(time.order.tolist(), time.values.tolist(), strict=True))
    seconds = np.array([wall_s.get(run, np.nan) for run in energy.order.tolist()])
    if not both.all():
        notes.append(f"{int((~both).sum())} runs with energy have no time")
    regression = lines(seconds, energy.values, energy.design)
    return Study(tuple(analysed), (energy, seconds, regression), tuple(notes))


def response(sample: Sample, *, type_: int = 2) -> Response:
    """The statistics of one response."""
    design = sample.design
    means = _means(sample)
    if not design.names:
        return Response(sample, means, None, ("no factor has two levels: nothing to compare",))
    if np.ptp(sample.values) == 0:
        return Response(sample, means, None, ("every run has the same value: nothing to compare",))
    try:
        table = anova_of(sample.values, design, type_=type_)
    except QjouleError as refused:
        return Response(sample, means, None, (str(refused),))
    assumptions = check(table.fit, design.cells, sample.order)
    cells = _cells(sample.values, design, table)
    groups = welch(cells, design, [effect.term for effect in table.effects if effect.df])
    decides, why = choose(assumptions, groups)
    own = assumptions.variances.holds is False
    tests = Findings(
        table,
        assumptions,
        decides,
        why,
        groups,
        aligned_ranks(sample.values, design, table),
        _of_combinations(cells, design, table, own),
        _of_factors(cells, design, table, own),
    )
    return Response(sample, means, tests, ())


def choose(assumptions: Assumptions, groups: Welch) -> tuple[str, str]:
    """Which test decides, and why, in words.

    Ranks do not correct for unequal variances: with several factors they report false effects more
    often than the analysis of variance does.
    """
    spread = assumptions.variances.holds is False
    skewed = assumptions.normality.holds is False
    if not spread and not skewed:
        unchecked = assumptions.variances.holds is None or assumptions.normality.holds is None
        return ANOVA, (
            "not all of its assumptions could be checked" if unchecked else "its assumptions hold"
        )
    if not spread:
        return RANKS, "residuals are not normal"
    if groups.effects:
        return WELCH, "variances differ"
    return ANOVA, (
        "variances differ, but Welch's test has no answer "
        f"({groups.note}), so its p values are rough: see the pairs"
    )


def _means(sample: Sample) -> tuple[Mean, ...]:
    cells = cells_of(sample.values, sample.design.cells)
    means = []
    for levels, runs, mean, variance in zip(
        sample.design.combinations, cells.counts, cells.means, cells.variances, strict=True
    ):
        if runs < 2:
            means.append(Mean(levels, int(runs), float(mean), None, None, None))
            continue
        sd = float(np.sqrt(variance))
        half = float(stats.t.isf(0.025, runs - 1)) * sd / float(np.sqrt(runs))
        means.append(
            Mean(levels, int(runs), float(mean), sd, float(mean) - half, float(mean) + half)
        )
    return tuple(means)


def _cells(values: Floats, design: Design, table: Anova) -> Cells:
    """Combinations in an average block, so that lost runs leave no block in a mean.

    Estimating the blocks takes degrees of freedom from the combinations' variances.
    """
    if not any(effect.term == BLOCK and effect.df for effect in table.effects):
        return cells_of(values, design.cells)
    cells = cells_of(values - estimates(values, design, table)[BLOCK], design.cells)
    free = design.runs - len(cells.counts)
    return replace(cells, variances=cells.variances * max(free / table.df_error, 1.0))


def _of_combinations(cells: Cells, design: Design, table: Anova, own: bool) -> Pairs:
    return compare(
        cells,
        [[cell] for cell in range(len(cells.counts))],
        [BY.join(levels) for levels in design.combinations],
        mean_sq_error=None if own else table.mean_sq_error,
        df_error=table.df_error,
    )


def _of_factors(
    cells: Cells, design: Design, table: Anova, own: bool
) -> tuple[tuple[str, Pairs], ...]:
    """Compares each factor's levels. A level that lacks a combination of the others is left out."""
    if len(design.names) < 2:
        return ()
    compared = []
    combinations = np.unique(design.codes, axis=0)
    for factor, name in enumerate(design.names):
        others = np.delete(combinations, factor, axis=1)
        every = len(np.unique(others, axis=0))
        members = []
        for level in range(len(design.levels[factor])):
            cells_here = np.flatnonzero(combinations[:, factor] == level).tolist()
            members.append(cells_here if len(cells_here) == every else [])
        compared.append(
            (
                name,
                compare(
                    cells,
                    members,
                    design.levels[factor],
                    mean_sq_error=None if own else table.mean_sq_error,
                    df_error=table.df_error,
                ),
            )
        )
    return tuple(compared)
