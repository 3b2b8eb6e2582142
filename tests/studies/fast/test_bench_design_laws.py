# SPDX-License-Identifier: Apache-2.0
"""Laws of plans and designs."""

from __future__ import annotations

import itertools
import math

from hypothesis import assume, given
from hypothesis import strategies as st

from qjoule.errors import UsageError
from qjoule.studies.design import (
    LETTERS,
    block_of,
    designed,
    in_order,
    replications_of,
)
from qjoule.studies.plan import Design, Factor, Plan
from qjoule.studies.plan_file import parse_plan, to_yaml
from qjoule.studies.workload import Value

values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ["1e5", "1_0", "on", "null", "~", "0x1f", "12:30", "2026-01-01", "<<", "5%", "\x85"]
    ),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=5))
def test_plan_reads_as_it_was_written(options: dict[str, Value]) -> None:
    plan = Plan("ycsb", server="redis", options=options)
    read = parse_plan(to_yaml(plan), "again")
    assert read == plan
    assert [type(one) for one in read.options.values()] == [type(one) for one in options.values()]


@given(st.lists(st.integers(1, 4), min_size=0, max_size=5))
def test_full_design_has_every_combination_once(levels: list[int]) -> None:
    factors = [Factor(f"f{i}", tuple(range(count))) for i, count in enumerate(levels)]
    found = designed(factors, Design(), 2).combinations
    assert len({tuple(one.values()) for one in found}) == len(found) == math.prod(levels)


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
    factors = [Factor(f"f{i}", (-1, 1)) for i in range(count)]
    try:
        made = designed(factors, Design(tuple(generators)), 2)
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
    mains = ["".join(LETTERS[i]) for i in range(count)]
    pairs = ["".join(pair) for pair in itertools.combinations(LETTERS[:count], 2)]
    said = {frozenset(one.lstrip("-") for one in a.split(" = ")) for a in made.fraction.aliases}
    for a, b in itertools.combinations([*mains, *pairs], 2):
        mixed = contrast(a) in (contrast(b), contrast("-" + b))
        assert mixed == any({a, b} <= group for group in said)


@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 60))
def test_blocks_hold_every_replication_once(times: int, blocks: int, replication: int) -> None:
    assume(blocks <= times)
    block = block_of(replication, times, blocks)
    assert replication in set(replications_of(block, times, blocks))
    sizes = [len(list(replications_of(b, times, blocks))) for b in range(1, (blocks or times) + 1)]
    assert sum(sizes) == times
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 9), st.integers(1, 9), st.booleans(), st.integers(1, 3))
def test_order_is_a_permutation_that_the_seed_decides(
    seed: int, block: int, plots: bool, times: int
) -> None:
    combinations = designed([Factor("a", (1, 2, 3)), Factor("b", (1, 2))], Design(), 1).combinations
    todo = [(r, one) for r in range(1, times + 1) for one in combinations]
    design = Design(seed=seed, whole_plots=("a",) if plots else ())
    order = in_order(todo, block, design)
    assert sorted(order) == list(range(len(todo)))
    assert order == in_order(todo, block, design)
    if plots:
        levels = [todo[position][1]["a"] for position in order]
        assert len(list(itertools.groupby(levels))) == 3
