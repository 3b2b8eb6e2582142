# SPDX-License-Identifier: Apache-2.0
"""Which columns fit into a terminal, and how wide each becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

GAP = 2  #: blanks between two columns
STATEMENT = 24  #: cells below which no other column presses the statement


@dataclass(frozen=True)
class Column:
    """One column; where room is short, the column with the highest `rank` is dropped first.

    `rank` 0 is never dropped. A column with `stretch` takes the room that is left, up to `most`
    cells; other columns are dropped before it is squeezed below `width`.
    """

    key: str
    title: str
    width: int
    rank: int
    align: Literal["left", "right"] = "right"
    stretch: bool = False
    most: int | None = None


def key_width(width: int, keys: int) -> int:
    """The most cells of each of `keys` columns beside the statement, which keeps half of the rest.

    Without these columns, two rows could not be told apart.
    """
    return min(28, max(6, (width - STATEMENT) // (2 * max(1, keys))))


def fit(columns: Sequence[Column], room: int, gap: int = GAP) -> list[tuple[Column, int]]:
    """Columns that fit into `room` cells, in their order, with their widths.

    Exactly one column stretches; it gets what the others leave, even if that is less than
    its `width` once nothing more can be dropped.
    """
    kept = list(columns)
    while _needed(kept, gap) > room and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    fixed = sum(column.width for column in kept if not column.stretch)
    rest = max(1, room - fixed - gap * (len(kept) - 1))
    return [
        (column, min(rest, column.most or rest) if column.stretch else column.width)
        for column in kept
    ]


def _needed(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)
