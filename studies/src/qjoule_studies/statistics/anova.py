# SPDX-License-Identifier: Apache-2.0
"""Analysis of variance: how much of a response's spread each factor and interaction explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from qjoule.api import QjouleError
from qjoule_studies.statistics.design import (
    BLOCK,
    MOST_COLUMNS,
    ROUNDING,
    Design,
    Fit,
    Floats,
    Term,
    fit,
)
from qjoule_studies.statistics.pairwise import holm


@dataclass(frozen=True)
class Effect:
    """One row of the table; unknown values are None.

    Attributes:
        eta_squared: share of the table's whole sum of squares.
        partial_eta_squared: share of what this effect and the error have.
        omega_squared: like `eta_squared`, without what chance alone would give; at least 0.
        p_holm: `p` corrected for the number of factors' effects in the table; blocks have none.
    """

    term: Term
    name: str
    sum_sq: float
    df: int
    mean_sq: float | None = None
    f: float | None = None
    p: float | None = None
    p_holm: float | None = None
    eta_squared: float | None = None
    partial_eta_squared: float | None = None
    omega_squared: float | None = None


@dataclass(frozen=True)
class Anova:
    """A table. `fit` is the model of all its effects; `order` the factors of its largest ones."""

    type: int
    order: int
    effects: tuple[Effect, ...]
    sum_sq_error: float
    df_error: int
    fit: Fit
    notes: tuple[str, ...] = ()

    @property
    def mean_sq_error(self) -> float:
        return self.sum_sq_error / self.df_error


def analyse(values: Floats, design: Design, *, type_: int = 2) -> Anova:
    """The table of `values` (runs,) with every effect of the design that its runs can estimate.

    Type II: what an effect adds to all others that do not contain it. Type III: what it adds to
    all others, with contrasts that sum to zero. In balanced designs they are the same.
    Blocks have a main effect and no interactions.

    Raises:
        QjouleError: there are too few runs for any error, or too many levels.
    """
    order, notes = _largest_order(design)
    terms = design.terms(order)
    columns = _separable(design, terms)
    full = fit(values, list(columns.values()))
    if type_ == 3 and not design.complete:
        notes.append(
            "type II in place of III: some combinations have no run, and type III has no meaning"
        )
        type_ = 2
    effects = [
        _effect(values, design.name(term), term, columns, full=full, type_=type_) for term in terms
    ]
    constant = fit(values, []).sum_sq_error
    error = full.sum_sq_error if full.sum_sq_error > ROUNDING * constant else 0.0
    for effect in effects:
        if effect.df == 0:
            notes.append(
                f"{effect.name} cannot be told from the other effects or from the blocks: no test"
            )
    if error == 0.0 and constant > 0:
        notes.append("runs of one combination are all equal: there is no error to test against")
    tested = _tested(effects, error, full.df_error)
    return Anova(type_, order, tested, error, full.df_error, full, tuple(notes))


def _largest_order(design: Design) -> tuple[int, list[str]]:
    """The largest interactions that leave degrees of freedom for the error."""
    factors = len(design.names)
    for order in range(factors, 0, -1):
        terms = design.terms(order)
        columns = [design.columns(term) for term in terms]
        if 1 + sum(column.shape[1] for column in columns) > MOST_COLUMNS:
            continue
        if fit(np.zeros(design.runs), columns).df_error > 0:
            if order == factors:
                return order, []
            model = (
                "main effects only" if order == 1 else f"interactions of {order} factors at most"
            )
            return order, [
                f"{model}: too few runs to tell larger interactions from the error, "
                "so the error holds them; more replications would tell them"
            ]
    raise QjouleError(
        f"{design.runs} runs leave no degrees of freedom for the error: "
        "run at least two replications of each combination"
    )


def _separable(design: Design, terms: Sequence[Term]) -> dict[Term, Floats]:
    """Columns of each effect that is not confounded with the blocks or with smaller effects."""
    columns: dict[Term, Floats] = {}
    nothing = np.zeros(design.runs)
    rank = 1
    for term in terms:
        own = design.columns(term)
        larger = fit(nothing, [*columns.values(), own]).rank
        if larger > rank:
            columns[term] = own
            rank = larger
    return columns


def _effect(
    values: Floats, name: str, term: Term, columns: dict[Term, Floats], *, full: Fit, type_: int
) -> Effect:
    """What `term` adds to a model without it: a difference of residual sums of squares."""
    if term not in columns:
        return Effect(term, name, 0.0, 0)
    if type_ == 3:
        without = [column for other, column in columns.items() if other != term]
        smaller, larger = fit(values, without), full
    else:
        others = [other for other in columns if other != term and not _contains(other, term)]
        without = [columns[other] for other in others]
        smaller, larger = fit(values, without), fit(values, [*without, columns[term]])
    df = larger.rank - smaller.rank
    sum_sq = smaller.sum_sq_error - larger.sum_sq_error if df else 0.0
    return Effect(term, name, max(sum_sq, 0.0), df)


def _contains(larger: Term, term: Term) -> bool:
    return BLOCK not in (larger, term) and set(term) < set(larger)


def _tested(effects: Sequence[Effect], error: float, df_error: int) -> tuple[Effect, ...]:
    mean_sq_error = error / df_error
    total = sum(effect.sum_sq for effect in effects) + error
    tested = []
    for effect in effects:
        if effect.df == 0 or total == 0:
            tested.append(effect)
            continue
        mean_sq = effect.sum_sq / effect.df
        f = mean_sq / mean_sq_error if error > 0 else None
        omega = (effect.sum_sq - effect.df * mean_sq_error) / (total + mean_sq_error)
        both = effect.sum_sq + error
        tested.append(
            replace(
                effect,
                mean_sq=mean_sq,
                f=f,
                p=None if f is None else float(stats.f.sf(f, effect.df, df_error)),
                eta_squared=effect.sum_sq / total,
                partial_eta_squared=effect.sum_sq / both if both > 0 else None,
                omega_squared=max(omega, 0.0),
            )
        )
    corrected = holm([None if effect.term == BLOCK else effect.p for effect in tested])
    return tuple(
        replace(effect, p_holm=p_holm) for effect, p_holm in zip(tested, corrected, strict=True)
    )
