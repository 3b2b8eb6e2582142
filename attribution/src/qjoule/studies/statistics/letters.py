# SPDX-License-Identifier: Apache-2.0
"""Compact letter display: groups with a letter in common are not shown to differ."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence


def letters(means: Sequence[float], differ: Iterable[tuple[int, int]]) -> list[str]:
    """The letters of each group, `a` with the largest mean.

    Insert and absorb: Piepho (2004), J. Computational and Graphical Statistics 13: begin with one
    column that holds all groups; for each pair that differs, split the columns that hold both; drop
    columns that another one holds.

    Args:
        means: of each group; an order for the letters is all that they are for.
        differ: pairs of groups whose means differ significantly.
    """
    columns = [frozenset(range(len(means)))]
    for one, other in sorted((min(pair), max(pair)) for pair in differ):
        split: list[frozenset[int]] = []
        for column in columns:
            if {one, other} <= column:
                split += [column - {one}, column - {other}]
            else:
                split.append(column)
        columns = _largest(split)
    rank = {group: place for place, group in enumerate(_descending(means))}
    columns.sort(key=lambda column: sorted(rank[group] for group in column))
    texts = [""] * len(means)
    for number, column in enumerate(columns):
        for group in column:
            texts[group] += _letter(number)
    return texts


def _descending(means: Sequence[float]) -> list[int]:
    return sorted(range(len(means)), key=lambda group: -means[group])


def _largest(columns: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    distinct = list(dict.fromkeys(columns))
    return [column for column in distinct if not any(column < other for other in distinct)]


def _letter(number: int) -> str:
    """a … z, A … Z, then (53), (54), ...: what is left of the alphabet runs out."""
    every = string.ascii_lowercase + string.ascii_uppercase
    return every[number] if number < len(every) else f"({number + 1})"
