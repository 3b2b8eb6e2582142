# SPDX-License-Identifier: Apache-2.0
"""The statistics of studies equal those that R prints for published data: golden/statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from qjoule_studies.characterisation import principal, standardised
from qjoule_studies.statistics.anova import Anova, Effect, analyse
from qjoule_studies.statistics.art import aligned_ranks, welch
from qjoule_studies.statistics.design import BY, Design, Floats
from qjoule_studies.statistics.effect_sizes import hedges_g
from qjoule_studies.statistics.pairwise import Pairs, cells_of, compare, holm
from statistics_cases import design_of, golden, golden_cases, load

#: R's names: term -> statistic -> value.
Figures = dict[str, dict[str, float | None]]
#: Response and factors of each data set.
STUDIES = {
    "plant_growth": ("weight", ["group"]),
    "chickwts": ("weight", ["feed"]),
    "insect_sprays": ("count", ["spray"]),
    "warpbreaks": ("breaks", ["wool", "tension"]),
    "warpbreaks_lost": ("breaks", ["wool", "tension"]),
    "tooth_growth": ("len", ["supp", "dose"]),
    "npk": ("yield", ["N", "P", "K"]),
    "npk_lost": ("yield", ["N", "P", "K"]),
}


def study(data: str) -> tuple[Floats, Design]:
    response, factors = STUDIES[data]
    table = load(data)
    block = "block" if "block" in table else None
    return table[response].to_numpy(float), design_of(table, factors, block)


def anova_of(data: str, kind: int = 2) -> Anova:
    return analyse(*study(data), type_=kind)


def figures_of(rows: Iterable[Effect], *names: str) -> Figures:
    return {row.name.replace(BY, ":"): {name: getattr(row, name) for name in names} for row in rows}


def anova(data: str, kind: int) -> Figures:
    table = anova_of(data, kind)
    residuals: Figures = {"Residuals": {"sum_sq": table.sum_sq_error, "df": table.df_error}}
    return figures_of(table.effects, "sum_sq", "df", "f", "p") | residuals


def shares(data: str) -> Figures:
    names = ("eta_squared", "partial_eta_squared", "omega_squared")
    return figures_of(anova_of(data).effects, *names)


def welch_test(data: str) -> Figures:
    values, design = study(data)
    (effect,) = welch(cells_of(values, design.cells), design, [(0,)]).effects
    return {"groups": {name: getattr(effect, name) for name in ("f", "df", "df_error", "p")}}


def ranks(data: str) -> Figures:
    values, design = study(data)
    table = aligned_ranks(values, design, analyse(values, design))
    figures = figures_of(table.effects, "f", "df", "p")
    return {term: {**of, "df_error": table.df_error} for term, of in figures.items()}


def pairs_of(data: str, *, own_variances: bool = False, combinations: bool = False) -> Pairs:
    """The levels of the last factor, or all combinations of levels, compared."""
    values, design = study(data)
    table = analyse(values, design)
    names = [":".join(row) if combinations else row[-1] for row in design.combinations]
    groups = list(dict.fromkeys(names)) if combinations else list(design.levels[-1])
    members = [[cell for cell, name in enumerate(names) if name == group] for group in groups]
    return compare(
        cells_of(values, design.cells),
        members,
        groups,
        mean_sq_error=None if own_variances else table.mean_sq_error,
        df_error=table.df_error,
    )


def pair_figures(compared: Pairs) -> Figures:
    """By both orders of each pair: R chooses one."""
    figures: Figures = {}
    for pair in compared.pairs:
        assert pair.low is not None and pair.high is not None
        names = [compared.groups[number].name for number in (pair.first, pair.second)]
        ends = (pair.difference, pair.low, pair.high)
        other_ends = (-pair.difference, -pair.high, -pair.low)
        for order, interval in ((names, ends), (names[::-1], other_ends)):
            difference, low, high = interval
            figures["-".join(order)] = {"difference": difference, "low": low, "high": high}
            figures["-".join(order)] |= {"p": pair.p, "df": pair.df}
    return figures


def tukey(data: str) -> Figures:
    figures = pair_figures(pairs_of(data))
    if data == "warpbreaks":
        figures |= pair_figures(pairs_of(data, combinations=True))
    return figures


def effect_sizes(data: str) -> Figures:
    response, (factor,) = STUDIES[data]
    table = load(data)
    figures: Figures = {}
    for term in golden(data, "hedges_g"):
        x, y = (table[table[factor] == level][response] for level in term.split("-"))
        df = len(x) + len(y) - 2
        sd = math.sqrt(((len(x) - 1) * x.var() + (len(y) - 1) * y.var()) / df)
        size = hedges_g(x.mean() - y.mean(), sd, df, math.sqrt(1 / len(x) + 1 / len(y)))
        figures[term] = {"g": size.g, "low": size.low, "high": size.high}
    return figures


def corrected(data: str) -> Figures:  # noqa: ARG001 (it is no data set)
    given_p = [0.01, 0.04, 0.03, 0.005]
    adjusted = holm([*given_p, None])
    assert adjusted.pop() is None
    return {str(p): {"p": value} for p, value in zip(given_p, adjusted, strict=True)}


#: How each test of R is computed here, and the relative difference allowed.
OURS: dict[str, tuple[Callable[[str], Figures], float]] = {
    "aov": (lambda data: anova(data, 2), 1e-8),
    "type2": (lambda data: anova(data, 2), 1e-8),
    "type3": (lambda data: anova(data, 3), 1e-8),
    "share": (shares, 1e-9),
    "welch": (welch_test, 1e-8),
    "art": (ranks, 1e-8),
    "tukey": (tukey, 1e-5),
    "emmeans": (lambda data: pair_figures(pairs_of(data)), 1e-5),
    "mean": (
        lambda data: {group.name: {"mean": group.mean} for group in pairs_of(data).groups},
        1e-9,
    ),
    "games_howell": (lambda data: pair_figures(pairs_of(data, own_variances=True)), 1e-5),
    "hedges_g": (effect_sizes, 2e-3),
    "holm": (corrected, 1e-9),
}
#: What R prints beside these, and we do not compute.
LEFT_OUT = {("mean", "se"), ("games_howell", "se"), ("games_howell", "statistic")}
UNDERFLOW = 1e-7  #: of the p values of pairs


@pytest.mark.parametrize(
    ("data", "test"), [case for case in golden_cases() if case[1] in OURS], ids=str
)
def test_every_figure_is_rs(data: str, test: str) -> None:
    compute, tolerance = OURS[test]
    ours = compute(data)
    compared = 0
    for term, statistics in golden(data, test).items():
        for name, value in statistics.items():
            if (test, name) in LEFT_OUT:
                continue
            absolute = UNDERFLOW if test in ("tukey", "games_howell") and name == "p" else 0
            assert ours[term][name] == pytest.approx(value, rel=tolerance, abs=absolute), term
            compared += 1
    assert compared


@pytest.mark.parametrize("data", ["us_arrests", "iris"])
def test_principal_components_are_rs(data: str) -> None:
    table = load(data).select_dtypes("number")
    values, columns = table.to_numpy(float), [str(name) for name in table]
    components = principal(values, columns)
    expected = golden(data, "prcomp").values()
    assert np.sqrt(components.variance) == pytest.approx(
        [component["sdev"] for component in expected]
    )
    assert components.explained == pytest.approx(
        [component["proportion"] for component in expected]
    )
    loadings = golden(data, "prcomp_rotation")
    for number in range(len(columns)):
        wanted = np.array([loadings[f"{name}:PC{number + 1}"]["loading"] for name in columns])
        sign = np.sign(wanted[np.abs(wanted).argmax()])  # R leaves the sign free
        assert components.loadings[:, number] == pytest.approx(sign * wanted, abs=1e-9)
    assert components.scores == pytest.approx(standardised(values) @ components.loadings, abs=1e-9)
