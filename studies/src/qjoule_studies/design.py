# SPDX-License-Identifier: Apache-2.0
"""Designed experiments: which combinations of levels are run, and in what order.

A full factorial, or a fraction of a two-level one by generators (Box, Hunter and Hunter,
"Statistics for Experimenters", 2nd ed. 2005, chapter 6). Blocks are complete: each holds whole
replications, and the order within it is drawn from the plan's seed, so that drift over time
(temperature, caches, neighbours) is not mistaken for the effect of a factor.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from qjoule.api import UsageError
from qjoule_studies.plan import Design
from qjoule_studies.workload import Value

#: Names of factors in generators, in the plan's order; I is the identity.
LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"
MOST_COMBINATIONS = 100_000
_GENERATOR = re.compile(r"([A-HJ-Z])=([+-]?)([A-HJ-Z]+)")
_IN_WORDS = 2  #: aliases are said of effects of at most so many factors

Factors = Mapping[str, Sequence[Value]]  #: the levels of each, in the plan's order
Levels = dict[str, Value]  #: of one combination, by factor, in the plan's order
Word = frozenset[int]  #: the factors of an effect


@dataclass(frozen=True)
class Fraction:
    """The effects that a fractional design cannot separate.

    Attributes:
        defining: words that equal the identity, with their signs: `I = ABC`.
        resolution: length of the shortest of them; in III, main effects are mixed up with
            interactions of two factors.
        aliases: a line for each main effect or interaction of two factors that is mixed up with
            others of these: `A = BC`.
    """

    defining: tuple[str, ...]
    resolution: int
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class Slot:
    """A planned run. Numbers count from 1."""

    block: int
    replication: int  #: of this combination
    levels: Levels


@dataclass(frozen=True)
class Designed:
    """Combinations in standard order (the first factor changes fastest, as Yates counts them)."""

    combinations: tuple[Levels, ...]
    fraction: Fraction | None
    notes: tuple[str, ...]  #: what is legal, and to be minded


def designed(factors: Factors, design: Design, replications: int) -> Designed:
    """The combinations of a plan, and notes about them.

    Args:
        replications: the least number of runs of each combination.

    Raises:
        UsageError: a generator makes no sense, or there are too many combinations.
    """
    levels = list(factors.values())
    generated = _generated(factors, design.generators)
    base = [i for i in range(len(factors)) if i not in generated]
    count = prod(len(levels[i]) for i in base)
    if count > MOST_COMBINATIONS:
        raise UsageError(
            f"the design has {count:,} combinations, more than {MOST_COMBINATIONS:,}: leave out "
            "levels, or give generators"
        )
    combinations = []
    # Backwards, for product() changes the last one fastest.
    for picked in itertools.product(*(range(len(levels[i])) for i in reversed(base))):
        index = dict(zip(reversed(base), picked, strict=True))
        for i, (sign, word) in generated.items():
            code = sign * prod(2 * index[j] - 1 for j in word)
            index[i] = (code + 1) // 2
        combinations.append({name: levels[i][index[i]] for i, name in enumerate(factors)})
    fraction = _fraction(len(factors), generated) if generated else None
    return Designed(tuple(combinations), fraction, _notes(factors, fraction, replications))


def in_order(combinations: Sequence[tuple[int, Levels]], block: int, design: Design) -> list[int]:
    """Positions in `combinations` in the order in which a block runs them.

    Args:
        combinations: of this block, with their replication's number; any number of times each.
    """
    positions = list(range(len(combinations)))
    if design.order == "standard":
        return positions
    draw = random.Random(f"{design.seed}/{block}")
    draw.shuffle(positions)
    if not design.whole_plots:
        return positions
    plots: dict[tuple[Value, ...], list[int]] = {}
    for position in positions:  # which plot is first is random too, as their first runs are
        levels = combinations[position][1]
        plots.setdefault(tuple(levels[name] for name in design.whole_plots), []).append(position)
    return [position for plot in plots.values() for position in plot]


def block_of(replication: int, replications: int, blocks: int) -> int:
    """The block of a replication, where the first `replications` are spread evenly over `blocks`.

    Later replications, added because an interval is still too wide, are blocks of their own.
    """
    blocks = blocks or replications
    if replication > replications:
        return blocks + replication - replications
    return (replication - 1) * blocks // replications + 1


def replications_of(block: int, replications: int, blocks: int) -> Iterator[int]:
    """The replications that a block holds: the inverse of `block_of`."""
    blocks = blocks or replications
    if block > blocks:
        yield replications + block - blocks
        return
    for replication in range(1, replications + 1):
        if block_of(replication, replications, blocks) == block:
            yield replication


def _generated(
    factors: Factors, generators: Sequence[str]
) -> dict[int, tuple[int, tuple[int, ...]]]:
    """By generated factor: the sign, and the factors whose product it is."""
    letters = LETTERS[: len(factors)]
    if generators and len(factors) > len(LETTERS):
        raise UsageError(f"generators name at most {len(LETTERS)} factors; there are more")
    generated: dict[int, tuple[int, tuple[int, ...]]] = {}
    for generator in generators:
        match = _GENERATOR.fullmatch(generator.replace(" ", "").upper())
        if match is None:
            raise UsageError(f"generator {generator!r}: write it as C=AB or D=-AC")
        new, sign, word = match.groups()
        if unknown := [letter for letter in new + word if letter not in letters]:
            named = ", ".join(f"{a}: {name}" for a, name in zip(letters, factors, strict=True))
            raise UsageError(f"generator {generator}: there is no factor {unknown[0]} ({named})")
        if len(set(word)) < len(word):
            raise UsageError(f"generator {generator}: a letter is there twice")
        index = letters.index(new)
        if index in generated:
            raise UsageError(f"generator {generator}: {new} is generated twice")
        generated[index] = (
            -1 if sign == "-" else 1,
            tuple(letters.index(letter) for letter in word),
        )
    for index, (_, parts) in generated.items():
        if wrong := [letters[i] for i in parts if i in generated]:
            raise UsageError(
                f"generator of {letters[index]}: {wrong[0]} is generated itself; use others"
            )
        for i in (index, *parts):
            name, levels = list(factors.items())[i]
            if len(levels) != 2:
                raise UsageError(
                    f"generator of {letters[index]}: {letters[i]} ({name}) has {len(levels)} "
                    "levels; generators are of factors with two"
                )
    return generated


def _fraction(count: int, generated: dict[int, tuple[int, tuple[int, ...]]]) -> Fraction:
    letters = LETTERS[:count]
    relation: dict[Word, int] = {frozenset(): 1}
    for index, (sign, parts) in generated.items():
        word = frozenset({index, *parts})
        # Squares are the identity, so words multiply as sets differ.
        relation |= {word ^ other: sign * of for other, of in relation.items()}
    signs = {word: sign for word, sign in relation.items() if word}

    def named(word: Word) -> str:
        return "".join(letters[i] for i in sorted(word))

    def signed(word: Word, sign: int) -> str:
        return ("-" if sign < 0 else "") + named(word)

    if same := next((word for word in signs if len(word) < 3), None):
        raise UsageError(f"generators: {' and '.join(named(same))} would always change together")
    order = sorted(signs, key=lambda word: (len(word), sorted(word)))
    effects = [
        frozenset(factors)
        for size in range(1, _IN_WORDS + 1)
        for factors in itertools.combinations(range(count), size)
    ]
    named_effects: set[Word] = set()
    aliases = []
    for effect in effects:
        others = {effect ^ word: sign for word, sign in signs.items()}
        near = [other for other in others if 0 < len(other) <= _IN_WORDS]
        if near and effect not in named_effects:
            named_effects.update(near)
            near.sort(key=lambda word: (len(word), sorted(word)))
            aliases.append(" = ".join([named(effect), *(signed(o, others[o]) for o in near)]))
    return Fraction(
        tuple(f"I = {signed(word, signs[word])}" for word in order),
        min(len(word) for word in signs),
        tuple(aliases),
    )


def _notes(factors: Factors, fraction: Fraction | None, replications: int) -> tuple[str, ...]:
    notes = [
        f"{name} has one level: it is no factor of the analysis"
        for name, levels in factors.items()
        if len(levels) == 1
    ]
    if replications == 1:
        notes.append("one replication: nothing tells an effect from the scatter of runs")
    if fraction is not None:
        named = ", ".join(f"{a}: {name}" for a, name in zip(LETTERS, factors, strict=False))
        relation = ", ".join(fraction.defining)
        notes.append(
            f"a fraction of resolution {_roman(fraction.resolution)} ({relation}; {named})"
        )
        if fraction.aliases:
            notes.append(f"mixed up with each other: {'; '.join(fraction.aliases)}")
    return tuple(notes)


def _roman(number: int) -> str:
    tens, ones = divmod(number, 10)
    units = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
    return "X" * tens + units[ones]
