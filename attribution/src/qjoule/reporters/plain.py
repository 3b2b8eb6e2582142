# SPDX-License-Identifier: Apache-2.0
"""Tables as text that is the same in a terminal, a file or a test; and the choice of columns."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from qjoule.shapes.safe_text import sanitise

GAP = 2  #: blanks between two columns
STATEMENT = 24  #: minimum cells for the statement beside other columns


@dataclass(frozen=True)
class Column:
    """A column. If the table is too wide, the column with the highest `rank` is dropped first.

    `rank` 0 is never dropped. A column with `stretch` gets the remaining cells, up to `most`;
    other columns are dropped before it gets narrower than `width`.
    """

    key: str
    title: str
    width: int
    rank: int
    align: Literal["left", "right"] = "right"
    stretch: bool = False
    most: int | None = None


def sized(
    key: str, title: str, contents: Sequence[str], rank: int, most: int, *, left: bool
) -> Column:
    """Makes a column as wide as its title and contents need, at most `most` cells."""
    needed = max(map(cell_len, (title, *contents)))
    return Column(key, title, min(needed, most), rank, "left" if left else "right", most=needed)


def key_width(width: int, keys: int, statement: int = STATEMENT) -> int:
    """Returns the maximum cells of each of `keys` columns; the statement gets half of the rest.

    Rows could not be distinguished without these columns.
    """
    return min(28, max(6, (width - statement) // (2 * max(1, keys))))


def fit(columns: Sequence[Column], room: int, gap: int = GAP) -> list[tuple[Column, int]]:
    """Chooses columns that fit into `room` cells, in order, with their widths.

    Exactly one column stretches: it gets the remaining cells, which may be less than its `width`
    if no column can be dropped.
    """
    fitting = list(columns)
    while _needed(fitting, gap) > room and any(column.rank for column in fitting):
        fitting.remove(max(fitting, key=lambda column: column.rank))
    fixed = sum(column.width for column in fitting if not column.stretch)
    rest = max(1, room - fixed - gap * (len(fitting) - 1))
    return [
        (column, min(rest, column.most or rest) if column.stretch else column.width)
        for column in fitting
    ]


def _needed(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


class _SafeConsole(Console):
    """A console that prints every text literally and sanitised; styles are ours."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield Segment(_safe_lines(segment.text), segment.style, segment.control)


def _safe_lines(text: str) -> str:
    return "\n".join(sanitise(line) for line in text.split("\n"))


class Page:
    """Collects printed output. `width` in terminal cells; `text()` ends with a line feed."""

    def __init__(self, width: int, color: bool) -> None:
        self._file = io.StringIO()
        console = _SafeConsole(
            file=self._file,
            width=width,
            color_system="standard" if color else None,
            force_terminal=color,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self.print = console.print

    def text(self) -> str:
        lines = self._file.getvalue().splitlines()
        return "\n".join(line.rstrip() for line in lines) + "\n"


def page_width(width: int | None, least: int, otherwise: int) -> int:
    """Returns `width`, else the terminal's, else `otherwise`; at least `least` cells."""
    return max(least, width or shutil.get_terminal_size((otherwise, 24)).columns)


def notes_grid(notes: Iterable[tuple[str, str]], name_width: int = 8) -> Table:
    """Makes a grid of notes: names in `name_width` cells, text wrapped beside them."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style=Style(dim=True), width=name_width)
    table.add_column(overflow="fold")
    for name, text in notes:
        table.add_row(Text(name), Text(text))
    return table


def ruled_table(total: bool = False, leading: int = 0) -> Table:
    """Makes an empty table with a rule below its heading, and one above the total if `total`."""
    above_last = " ── " if total else "    "
    return Table(
        box=Box(f"    \n    \n ── \n    \n{above_last}\n    \n    \n    \n"),
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        leading=leading,
        header_style=Style(bold=True),
        border_style=Style(dim=True),
    )


def fitted_table(
    columns: Sequence[Column], room: int, stretch: str, *, total: bool = False
) -> tuple[Table, list[str]]:
    """Makes an empty table of the columns that fit into `room` cells; returns it and their keys.

    Column `stretch` gets the remaining cells. `total`: as in `ruled_table`.
    """
    layout = fit([replace(column, stretch=column.key == stretch) for column in columns], room)
    table = ruled_table(total)
    for column, width in layout:
        table.add_column(
            Text(column.title), justify=column.align, width=width, no_wrap=True, overflow="ellipsis"
        )
    return table, [column.key for column, _ in layout]
