# SPDX-License-Identifier: Apache-2.0
"""Pairs, letters and effect sizes: equal to R's on published data."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qjoule.studies.statistics import pairwise
from qjoule.studies.statistics.anova import analyse
from qjoule.studies.statistics.design import Floats
from qjoule.studies.statistics.effect_sizes import hedges_g
from qjoule.studies.statistics.letters import letters
from qjoule.studies.statistics.pairwise import Pairs, cells_of, compare
from statistics_cases import design_of, golden, golden_letters, load

ONE_WAY = [
    ("plant_growth", "weight", "group"),
    ("chickwts", "weight", "feed"),
    ("insect_sprays", "count", "spray"),
]


def one_way(data: str, response: str, factor: str, *, own: bool = False) -> Pairs:
    table = load(data)
    design = design_of(table, [factor])
    values = table[response].to_numpy(float)
    found = analyse(values, design)
    return compare(
        cells_of(values, design.cells),
        [[cell] for cell in range(len(design.levels[0]))],
        design.levels[0],
        mean_sq_error=None if own else found.mean_sq_error,
        df_error=found.df_error,
    )


def equals(found: Pairs, expected: dict[str, dict[str, float]], names: list[str]) -> None:
    compared = 0
    for pair in found.pairs:
        one, other = names[pair.one], names[pair.other]
        sign, row = 1, expected.get(f"{one}-{other}")
        if row is None:
            sign, row = -1, expected[f"{other}-{one}"]
        low, high = sorted((sign * row["low"], sign * row["high"]))
        assert pair.difference == pytest.approx(sign * row["difference"], rel=1e-9)
        assert (pair.low, pair.high) == pytest.approx((low, high), rel=1e-5)
        if "p" in row:
            assert pair.p == pytest.approx(row["p"], rel=1e-5, abs=1e-7)
        if "df" in row:
            assert pair.df == pytest.approx(row["df"], rel=1e-9)
        compared += 1
    assert compared == len(expected)


@pytest.mark.parametrize(("data", "response", "factor"), ONE_WAY)
def test_tukey_is_rs(data: str, response: str, factor: str) -> None:
    found = one_way(data, response, factor)
    equals(found, golden(data, "tukey"), [group.name for group in found.groups])


@pytest.mark.parametrize(("data", "response", "factor"), ONE_WAY)
def test_games_howell_is_rs_and_scipys(data: str, response: str, factor: str) -> None:
    found = one_way(data, response, factor, own=True)
    equals(found, golden(data, "games_howell"), [group.name for group in found.groups])
    table = load(data)
    samples = [table[table[factor] == group.name][response] for group in found.groups]
    other = stats.tukey_hsd(*samples, equal_var=False)
    for pair in found.pairs:
        assert pair.p == pytest.approx(other.pvalue[pair.one, pair.other], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("data", "response", "factor"), ONE_WAY)
def test_letters_are_those_of_rs_multcompview(data: str, response: str, factor: str) -> None:
    found = one_way(data, response, factor)
    assert {group.name: group.letters for group in found.groups} == golden_letters(data)


@pytest.mark.parametrize(
    ("data", "factors", "factor", "test"),
    [
        ("warpbreaks", ["wool", "tension"], "tension", "tukey"),
        ("warpbreaks_lost", ["wool", "tension"], "tension", "emmeans"),
        ("tooth_growth", ["supp", "dose"], "dose", "tukey"),
    ],
)
def test_a_factors_levels_are_compared_as_r_does(
    data: str, factors: list[str], factor: str, test: str
) -> None:
    table = load(data)
    design = design_of(table, factors)
    values = table["len" if data == "tooth_growth" else "breaks"].to_numpy(float)
    found = analyse(values, design)
    levels = design.levels[factors.index(factor)]
    members = [
        [cell for cell, row in enumerate(design.combinations) if row[1] == level]
        for level in levels
    ]
    pairs = compare(
        cells_of(values, design.cells),
        members,
        levels,
        mean_sq_error=found.mean_sq_error,
        df_error=found.df_error,
    )
    expected = {
        key: row for key, row in golden(data, test).items() if sum(x in key for x in "AB") == 0
    }
    equals(pairs, {k.replace("dose", ""): v for k, v in expected.items()}, list(levels))
    if test == "emmeans":
        means = golden(data, "mean")
        assert [group.mean for group in pairs.groups] == pytest.approx(
            [means[level]["mean"] for level in levels]
        )


def test_combinations_are_compared_as_r_does() -> None:
    table = load("warpbreaks")
    design = design_of(table, ["wool", "tension"])
    values = table["breaks"].to_numpy(float)
    found = analyse(values, design)
    names = [":".join(row) for row in design.combinations]
    pairs = compare(
        cells_of(values, design.cells),
        [[cell] for cell in range(6)],
        names,
        mean_sq_error=found.mean_sq_error,
        df_error=found.df_error,
    )
    expected = {k: v for k, v in golden("warpbreaks", "tukey").items() if ":" in k}
    equals(pairs, expected, names)


@pytest.mark.parametrize("data", ["plant_growth", "chickwts", "insect_sprays"])
def test_hedges_g_is_rs(data: str) -> None:
    response, factor = {case[0]: case[1:] for case in ONE_WAY}[data]
    table = load(data)
    for term, expected in golden(data, "hedges_g").items():
        x, y = (table[table[factor] == level][response] for level in term.split("-"))
        df = len(x) + len(y) - 2
        sd = math.sqrt(((len(x) - 1) * x.var() + (len(y) - 1) * y.var()) / df)
        found = hedges_g(x.mean() - y.mean(), sd, df, math.sqrt(1 / len(x) + 1 / len(y)))
        assert found.g == pytest.approx(expected["g"], rel=1e-6)
        assert (found.low, found.high) == pytest.approx((expected["low"], expected["high"]), 2e-3)
        pair = next(
            pair
            for pair in one_way(data, response, factor).pairs
            if abs(pair.difference) == pytest.approx(abs(x.mean() - y.mean()))
        )
        assert abs(pair.size.g or 0) == pytest.approx(abs(expected["g"]), rel=1e-6)


def test_a_very_large_effect_has_an_interval() -> None:
    found = hedges_g(-60.0, 1.0, 148, math.sqrt(2 / 75))
    assert found.low is not None
    assert found.high is not None
    assert found.low < (found.g or 0) < found.high
    near = hedges_g(1.0, 1.0, 148, math.sqrt(2 / 75))  # where both ways have a result
    half = 1.96 * math.sqrt(2 / 75 + 1 / 296)
    assert (near.high or 0) - (near.low or 0) == pytest.approx(2 * half, rel=0.02)


def test_groups_that_do_not_spread_have_no_test() -> None:
    values = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.1])
    found = compare(
        cells_of(values, np.array([0, 0, 1, 1, 2, 2])),
        [[0], [1], [2]],
        ["a", "b", "c"],
        mean_sq_error=None,
        df_error=3,
    )
    still, moving, _ = found.pairs
    assert (still.p, still.low, still.size.g) == (None, None, None)
    assert still.difference == -1
    assert moving.p is not None
    assert moving.p < 0.05


def test_a_single_run_is_not_compared_by_its_own_spread() -> None:
    values = np.array([1.0, 1.2, 2.0, 2.1, 3.0])
    cells = cells_of(values, np.array([0, 0, 1, 1, 2]))
    found = compare(cells, [[0], [1], [2]], ["a", "b", "c"], mean_sq_error=None, df_error=2)
    assert len(found.pairs) == 1
    assert "fewer than two runs" in found.notes[0]
    found = compare(cells, [[0], [1], [2]], ["a", "b", "c"], mean_sq_error=0.01, df_error=2)
    assert len(found.pairs) == 3
    assert found.pairs[1].size.g is not None


def test_too_many_groups_are_not_compared() -> None:
    values = np.arange(100.0)
    found = compare(
        cells_of(values, np.arange(100) // 2),
        [[cell] for cell in range(50)],
        [str(cell) for cell in range(50)],
        mean_sq_error=1.0,
        df_error=50,
    )
    assert not found.pairs
    assert "too many" in found.notes[0]
    assert found.groups[3].mean == 6.5


def test_interpolated_limits_are_the_exact_ones() -> None:
    df: Floats = np.array([2.0 + 0.9 * step for step in range(40)])
    found = pairwise.critical(8, df)
    for place in (0, 1, 3, 20):
        exact = stats.studentized_range.isf(0.05, 8, df[place])
        assert found[place] == pytest.approx(exact, rel=1e-5)


@given(st.data(), st.integers(2, 9))
def test_letters_say_exactly_which_pairs_differ(data: st.DataObject, groups: int) -> None:
    every = list(itertools.combinations(range(groups), 2))
    differ = set(data.draw(st.lists(st.sampled_from(every), unique=True)))
    means = data.draw(st.lists(st.floats(-9, 9), min_size=groups, max_size=groups))
    found = letters(means, differ)
    for one, other in every:
        assert bool(set(found[one]) & set(found[other])) == ((one, other) not in differ)
    assert "a" in found[max(range(groups), key=lambda group: (means[group], -group))]


def family_errors(*, own: bool, studies: int) -> float:
    """The share of studies with a false positive, for three equal means, the smallest sample with
    the largest spread.

    It equals one minus the coverage of the simultaneous intervals.
    """
    rng = np.random.default_rng(20240507)
    groups = np.repeat(np.arange(3), [5, 10, 20])
    spread = np.array([4.0, 2.0, 1.0])[groups]
    design = design_of(pd.DataFrame({"g": groups}), ["g"])
    wrong = 0
    for _ in range(studies):
        values = rng.normal(0, spread)
        table = analyse(values, design)
        found = compare(
            cells_of(values, groups),
            [[0], [1], [2]],
            ["a", "b", "c"],
            mean_sq_error=None if own else table.mean_sq_error,
            df_error=table.df_error,
        )
        wrong += any(pair.p is not None and pair.p < 0.05 for pair in found.pairs)
    return wrong / studies


def test_games_howell_covers_where_tukey_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval excludes the true difference exactly if p < 0.05; its limits are slow to
    compute.
    """
    monkeypatch.setattr(pairwise, "critical", lambda _, df: np.ones(len(df)))
    assert family_errors(own=True, studies=120) <= 0.1
    assert family_errors(own=False, studies=60) > 0.15


def test_intervals_leave_out_zero_exactly_where_p_is_below_five_percent() -> None:
    for own in (False, True):
        for pair in one_way("plant_growth", "weight", "group", own=own).pairs:
            assert pair.p is not None
            assert pair.low is not None
            assert pair.high is not None
            assert (pair.p < 0.05) == (pair.low > 0 or pair.high < 0)
