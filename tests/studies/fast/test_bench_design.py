# SPDX-License-Identifier: Apache-2.0
"""Designs with known results, and designs that are impossible."""

from __future__ import annotations

import pytest

from qjoule.errors import UsageError
from qjoule.studies.design import designed, in_order
from qjoule.studies.plan import Design, Factor


def two_levels(count: int) -> list[Factor]:
    return [Factor(name, (-1, 1)) for name in "abcdefgh"[:count]]


def test_quarter_fraction_of_box_hunter_hunter() -> None:
    """2^(5-2) with D=AB, E=AC: Box, Hunter and Hunter 2005, table 6.22: I = ABD = ACE = BCDE."""
    made = designed(two_levels(5), Design(("D=AB", "E=AC")), 2)
    assert made.fraction is not None
    assert made.fraction.defining == ("I = ABD", "I = ACE", "I = BCDE")
    assert made.fraction.resolution == 3
    assert made.fraction.aliases == (
        "A = BD = CE",
        "B = AD",
        "C = AE",
        "D = AB",
        "E = AC",
        "BC = DE",
        "BE = CD",
    )
    assert len(made.combinations) == 8
    assert "resolution III" in made.notes[0]


def test_standard_order_changes_the_first_factor_fastest() -> None:
    made = designed([Factor("a", (1, 2)), Factor("b", ("x", "y"))], Design(), 2)
    assert [tuple(one.values()) for one in made.combinations] == [
        (1, "x"),
        (2, "x"),
        (1, "y"),
        (2, "y"),
    ]


def test_factor_of_one_level_and_one_replication_are_said() -> None:
    made = designed([Factor("size", (1,))], Design(), 1)
    assert made.notes == (
        "size has one level: it is no factor of the analysis",
        "one replication: nothing tells an effect from the scatter of runs",
    )
    assert made.fraction is None


def test_no_factor_is_one_combination() -> None:
    assert designed([], Design(), 3).combinations == ({},)


def test_standard_order_is_kept_in_every_block() -> None:
    todo = [(1, one) for one in designed(two_levels(3), Design(), 1).combinations]
    assert in_order(todo, 5, Design(order="standard")) == list(range(8))


def test_blocks_have_orders_of_their_own() -> None:
    todo = [(1, one) for one in designed(two_levels(3), Design(), 1).combinations]
    assert len({tuple(in_order(todo, block, Design())) for block in range(1, 9)}) > 4


@pytest.mark.parametrize(
    ("generators", "words"),
    [
        (("C",), "write it as C=AB"),
        (("C=A+B",), "write it as C=AB"),
        (("Z=AB",), "there is no factor Z"),
        (("C=AA",), "a letter is there twice"),
        (("C=AB", "C=-AB"), "C is generated twice"),
        (("C=AB", "D=AC"), "C is generated itself"),
        (("C=A",), "a and c would always change together"),
        (("C=AB", "D=AB"), "c and d would always change together"),
    ],
)
def test_generators_that_make_no_sense_are_refused(generators: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        designed(two_levels(4), Design(generators), 2)
    assert words.lower() in str(refused.value).lower()


def test_generators_are_of_two_levels() -> None:
    factors = [*two_levels(2), Factor("size", (1, 2, 3))]
    with pytest.raises(UsageError, match=r"C \(size\) has 3 levels"):
        designed(factors, Design(("C=AB",)), 2)


def test_other_factors_of_a_fraction_may_have_more_levels() -> None:
    factors = [*two_levels(3), Factor("size", (1, 2, 3))]
    assert len(designed(factors, Design(("C=AB",)), 2).combinations) == 12


def test_too_many_combinations_are_refused_at_once() -> None:
    factors = [Factor(f"f{i}", tuple(range(1000))) for i in range(5)]
    with pytest.raises(UsageError, match="1,000,000,000,000,000 combinations"):
        designed(factors, Design(), 2)
