# SPDX-License-Identifier: Apache-2.0
"""Text of rich tables that is the same in a terminal, a file or a test."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable

from rich.box import Box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table

from qjoule.shapes.safe_text import sanitise


class _SafeConsole(Console):
    """Prints text only as text, wherever it comes from; styles are ours."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield Segment(_safe_lines(segment.text), segment.style, segment.control)


def _safe_lines(text: str) -> str:
    return "\n".join(sanitise(line) for line in text.split("\n"))


class Page:
    """Collects what is printed on it. `width` in terminal cells; `text()` ends with a line feed."""

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
    """`width`, else the terminal's, else `otherwise`; at least `least` cells."""
    return max(least, width or shutil.get_terminal_size((otherwise, 24)).columns)


def ruled_table(total: bool = False, leading: int = 0) -> Table:
    """An empty table with a rule below its heading, and one above its last section if `total`."""
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
