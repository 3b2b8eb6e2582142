# SPDX-License-Identifier: Apache-2.0
"""Designs of studies: a published fraction, laws of all designs, and impossible ones."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qjoule.errors import UsageError
from qjoule_studies.design import LETTERS, designed, in_order
from qjoule_studies.plan import Design


def two_levels(count: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys("abcdefghijklmnop"[:count], (-1, 1))


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


@pytest.mark.parametrize(
    ("generators", "words"),
    [
        (("C",), "write it as C=AB"),
        (("Z=AB",), "there is no factor Z"),
        (("C=AA",), "a letter is there twice"),
        (("C=A",), "a and c would always change together"),
    ],
)
def test_generators_that_make_no_sense_are_refused(generators: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        designed(two_levels(4), Design(generators), 2)
    assert words.lower() in str(refused.value).lower()


@st.composite
def fractions(draw: st.DrawFn) -> tuple[int, list[str]]:
    base = draw(st.integers(2, 4))
    words = [w for n in range(2, base + 1) for w in itertools.combinations(LETTERS[:base], n)]
    chosen = draw(st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True))
    signs = draw(st.lists(st.sampled_from(["", "-"]), min_size=3, max_size=3))
    generators = [f"{LETTERS[base + i]}={signs[i]}{''.join(word)}" for i, word in enumerate(chosen)]
    return base + len(chosen), generators


@given(fractions())
def test_fraction_is_balanced_and_its_aliases_are_true(drawn: tuple[int, list[str]]) -> None:
    count, generators = drawn
    try:
        made = designed(two_levels(count), Design(tuple(generators)), 2)
    except UsageError:
        assume(False)
        raise
    runs = [list(one.values()) for one in made.combinations]
    assert len(runs) == 2 ** (count - len(generators))
    for column in range(count):
        assert sum(int(run[column]) for run in runs) == 0

    def contrast(word: str) -> list[int]:
        sign = -1 if word.startswith("-") else 1
        return [
            sign * math.prod(int(run[LETTERS.index(letter)]) for letter in word.lstrip("-"))
            for run in runs
        ]

    assert made.fraction is not None
    for alias in made.fraction.aliases:
        first, *others = alias.split(" = ")
        assert all(contrast(other) == contrast(first) for other in others)
    for word in made.fraction.defining:
        assert set(contrast(word.removeprefix("I = "))) == {1}
    assert made.fraction.resolution >= 3


@given(st.integers(0, 9), st.integers(1, 9), st.booleans(), st.integers(1, 3))
def test_order_is_a_permutation_that_the_seed_decides(
    seed: int, block: int, plots: bool, times: int
) -> None:
    combinations = designed({"a": (1, 2, 3), "b": (1, 2)}, Design(), 1).combinations
    todo = [(r, one) for r in range(1, times + 1) for one in combinations]
    design = Design(seed=seed, whole_plots=("a",) if plots else ())
    order = in_order(todo, block, design)
    assert sorted(order) == list(range(len(todo)))
    assert order == in_order(todo, block, design)
    if plots:
        levels = [todo[position][1]["a"] for position in order]
        assert len(list(itertools.groupby(levels))) == 3
