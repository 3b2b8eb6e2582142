# SPDX-License-Identifier: Apache-2.0
"""The analysis of variance: equal to R's on published data, and its messages for bad input."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.errors import QjouleError
from qjoule.studies.statistics.anova import analyse
from qjoule.studies.statistics.art import aligned_ranks
from qjoule.studies.statistics.design import BY, encode
from qjoule.studies.statistics.multiple import holm
from qjoule.studies.statistics.pairwise import cells_of, compare
from qjoule.studies.statistics.welch import welch
from statistics_cases import design_of, golden, load, reference

ONE_WAY = [
    ("plant_growth", "weight", ["group"]),
    ("chickwts", "weight", ["feed"]),
    ("insect_sprays", "count", ["spray"]),
]
TWO_WAY = [
    ("warpbreaks", "breaks", ["wool", "tension"]),
    ("warpbreaks_lost", "breaks", ["wool", "tension"]),
    ("tooth_growth", "len", ["supp", "dose"]),
]
BLOCKED = [("npk_lost", "yield", ["N", "P", "K"])]
CASES = [
    *[(*case, "aov", 2) for case in ONE_WAY],
    *[(*case, f"type{kind}", kind) for case in TWO_WAY for kind in (2, 3)],
    ("npk", "yield", ["N", "P", "K"], "aov", 2),
    ("npk_lost", "yield", ["N", "P", "K"], "type2", 2),
]


@pytest.mark.parametrize(("data", "response", "factors", "test", "kind"), CASES)
def test_the_table_is_rs(
    data: str, response: str, factors: list[str], test: str, kind: int
) -> None:
    table = load(data)
    design = design_of(table, factors, block="block" if "block" in table else None)
    found = analyse(table[response].to_numpy(float), design, type_=kind)
    expected = golden(data, test)
    compared = set()
    for effect in found.effects:
        name = effect.name.replace(BY, ":")
        if name == "N:P:K":  # confounded with the blocks: R omits it
            assert effect.df == 0
            continue
        compared.add(name)
        assert effect.df == expected[name]["df"]
        assert effect.sum_sq == pytest.approx(expected[name]["sum_sq"], rel=1e-9)
        assert effect.f == pytest.approx(expected[name]["f"], rel=1e-9)
        assert effect.p == pytest.approx(expected[name]["p"], rel=1e-8)
    assert found.df_error == expected["Residuals"]["df"]
    assert found.sum_sq_error == pytest.approx(expected["Residuals"]["sum_sq"], rel=1e-9)
    assert compared == set(expected) - {"Residuals"}


@pytest.mark.parametrize(("data", "response", "factors"), TWO_WAY)
def test_shares_are_those_of_rs_effectsize(data: str, response: str, factors: list[str]) -> None:
    table = load(data)
    found = analyse(table[response].to_numpy(float), design_of(table, factors))
    for effect in found.effects:
        expected = golden(data, "share")[effect.name.replace(BY, ":")]
        assert effect.eta_squared == pytest.approx(expected["eta_squared"], rel=1e-9)
        assert effect.partial_eta_squared == pytest.approx(expected["partial_eta_squared"])
        assert effect.omega_squared == pytest.approx(expected["omega_squared"], rel=1e-9)
    total = sum(effect.sum_sq for effect in found.effects) + found.sum_sq_error
    shares = sum(effect.eta_squared or 0 for effect in found.effects)
    assert shares + found.sum_sq_error / total == pytest.approx(1)


@pytest.mark.parametrize(("data", "response", "factors"), ONE_WAY)
def test_welch_is_rs(data: str, response: str, factors: list[str]) -> None:
    table = load(data)
    design = design_of(table, factors)
    (found,) = welch(
        cells_of(table[response].to_numpy(float), design.cells), design, [(0,)]
    ).effects
    expected = golden(data, "welch")["groups"]
    assert found.f == pytest.approx(expected["f"], rel=1e-9)
    assert found.df == expected["df"]
    assert found.df_error == pytest.approx(expected["df_error"], rel=1e-9)
    assert found.p == pytest.approx(expected["p"], rel=1e-8)


@pytest.mark.parametrize("data", ["warpbreaks", "warpbreaks_lost"])
def test_welch_of_two_levels_is_the_t_test_of_their_contrast(data: str) -> None:
    table = load(data)
    design = design_of(table, ["wool", "tension"])
    cells = cells_of(table["breaks"].to_numpy(float), design.cells)
    wool, tension, both = welch(cells, design, [(0,), (1,), (0, 1)]).effects
    pairs = compare(cells, [[0, 1, 2], [3, 4, 5]], ["A", "B"], mean_sq_error=None, df_error=0).pairs
    assert wool.f == pytest.approx((pairs[0].difference / pairs[0].se) ** 2)
    assert wool.df_error == pytest.approx(pairs[0].df)
    assert wool.p == pytest.approx(pairs[0].p, rel=1e-6)
    assert (tension.df, both.df, both.name) == (2, 2, BY.join(["wool", "tension"]))


@pytest.mark.parametrize(("data", "response", "factors"), TWO_WAY)
def test_aligned_ranks_are_as_defined(data: str, response: str, factors: list[str]) -> None:
    table = load(data)
    values, design = table[response].to_numpy(float), design_of(table, factors)
    found = aligned_ranks(values, design, analyse(values, design))
    for effect in found.effects:
        expected = golden(data, "art")[effect.name.replace(BY, ":")]
        assert effect.f == pytest.approx(expected["f"], rel=1e-9)
        assert effect.p == pytest.approx(expected["p"], rel=1e-8)
        assert (effect.df, found.df_error) == (expected["df"], expected["df_error"])


def test_of_three_effects_all_others_are_taken_out() -> None:
    """Higgins' property: data aligned for one effect contains nothing of another."""
    rng = np.random.default_rng(5)
    table = load("npk")
    values = table["yield"].to_numpy(float) + rng.normal(0, 1, len(table))
    design = design_of(table, ["N", "P", "K"], block="block")
    found = aligned_ranks(values, design, analyse(values, design))
    pairs = [("N", "P"), ("N", "K"), ("P", "K")]
    assert [effect.name for effect in found.effects] == [
        "N",
        "P",
        "K",
        *(BY.join(pair) for pair in pairs),
    ]


def test_holm_is_rs() -> None:
    expected = golden("none", "holm")
    given = [float(term) for term in expected]
    assert holm([*given[:2], None, *given[2:]]) == pytest.approx(
        [
            *(expected[str(p)]["p"] for p in given[:2]),
            None,
            *(expected[str(p)]["p"] for p in given[2:]),
        ]
    )
    assert holm([None]) == [None]


def test_one_replication_leaves_main_effects_only() -> None:
    table = load("warpbreaks").drop_duplicates(["wool", "tension"])
    found = analyse(table["breaks"].to_numpy(float), design_of(table, ["wool", "tension"]))
    assert [effect.name for effect in found.effects] == ["wool", "tension"]
    assert found.df_error == 2
    assert "main effects only" in found.notes[0]


def test_one_run_of_each_level_is_refused() -> None:
    table = load("plant_growth").drop_duplicates("group")
    with pytest.raises(QjouleError, match="at least two replications"):
        analyse(table["weight"].to_numpy(float), design_of(table, ["group"]))


def test_equal_values_have_no_f() -> None:
    table = load("plant_growth")
    found = analyse(np.repeat(np.array([3.7]), len(table)), design_of(table, ["group"]))
    assert (found.effects[0].f, found.effects[0].p, found.effects[0].eta_squared) == (None,) * 3
    means = np.repeat(np.array([1.1, 2.3, 5.7]), 10)
    found = analyse(means, design_of(table, ["group"]))
    assert found.effects[0].p is None
    assert found.effects[0].eta_squared == 1
    assert "no error to test against" in found.notes[0]


def test_type_three_needs_every_combination() -> None:
    table = load("warpbreaks")
    table = table[(table["wool"] != "A") | (table["tension"] != "H")]
    found = analyse(table["breaks"].to_numpy(float), design_of(table, ["wool", "tension"]), type_=3)
    assert found.type == 2
    assert "type II in place of III" in found.notes[0]


def test_thousands_of_levels_are_refused_by_name() -> None:
    rng = np.random.default_rng(1)
    table = reference({"many": np.arange(6000) % 3000, "y": rng.normal(size=6000)})
    with pytest.raises(QjouleError, match="factor many has 3000 levels"):
        analyse(table["y"].to_numpy(float), design_of(table, ["many"]))


def test_names_are_never_formulas() -> None:
    hostile = ["C(x)", "np.random", '"); import os #', "a:b", "1", "if", "y ~ x", ""]
    rng = np.random.default_rng(2)
    table = reference(
        {name: rng.integers(0, 2, 64) for name in hostile[:4]} | {"y": rng.normal(size=64)}
    )
    found = analyse(table["y"].to_numpy(float), design_of(table, hostile[:4]))
    assert [effect.name for effect in found.effects][:4] == hostile[:4]
    assert len(found.effects) == 15


def test_levels_of_different_types_are_different() -> None:
    codes, labels = encode([1, True, "1", 1.0, "True", 2.5])
    assert len(set(codes)) == len(labels) == 5
    assert len(set(labels)) == 5
    assert encode([10, 9.0, 100])[1] == ("9", "10", "100")
    assert encode(["b", "a"])[1] == ("b", "a")


def test_welch_says_why_it_is_silent() -> None:
    table = reference({"g": [0, 0, 1, 1, 2, 2]})
    design = design_of(table, ["g"])
    still = cells_of(np.array([1.0, 1.0, 2.0, 3.0, 4.0, 5.0]), design.cells)
    assert "all equal" in welch(still, design, [(0,)]).note
    alone = design_of(table[1:], ["g"])
    single = cells_of(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), alone.cells)
    assert "one run" in welch(single, alone, [(0,)]).note
    lacking = design_of(reference({"a": [0, 0, 0, 0, 1, 1], "b": [0, 0, 1, 1, 0, 0]}), ["a", "b"])
    some = cells_of(np.array([1.0, 2.0, 3.0, 5.0, 4.0, 7.0]), lacking.cells)
    assert "no run" in welch(some, lacking, [(0,)]).note
