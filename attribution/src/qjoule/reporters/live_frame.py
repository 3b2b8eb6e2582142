# SPDX-License-Identifier: Apache-2.0
"""A screen as lines of styled spans: pure data for a terminal or a test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from qjoule.shapes.safe_text import sanitise

ELLIPSIS = "…"


@dataclass(frozen=True)
class Span:
    """Text at column `x`, in one of the styles of `live_view.STYLES`."""

    x: int
    text: str
    style: str = ""

    def __post_init__(self) -> None:
        """Sanitises the text, wherever it comes from."""
        object.__setattr__(self, "text", sanitise(self.text))


@dataclass(frozen=True)
class Line:
    """Spans from left to right that do not overlap; `style` fills the rest of the line."""

    spans: tuple[Span, ...] = ()
    style: str = ""

    def plain(self) -> str:
        text = ""
        for span in self.spans:
            text = set_cell_size(text, max(span.x, cell_len(text))) + span.text
        return text


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, with an ellipsis where something was left out."""
    if cell_len(text) <= width:
        return text
    return (set_cell_size(text, width - 1).rstrip() + ELLIPSIS) if width > 0 else ""


def place(text: str, x: int, width: int, *, right: bool = False, style: str = "") -> Span:
    """`text` cut to a column of `width` cells at `x`."""
    shown = cut(text, width)
    return Span(x + (width - cell_len(shown) if right else 0), shown, style)


def flow(items: Iterable[tuple[str, str]], width: int, x: int = 1) -> Line:
    """(text, style) items separated by dots; what does not fit is cut or left out."""
    spans: list[Span] = []
    for text, style in items:
        if not text:
            continue
        if spans:
            if x + 3 + 4 > width:
                break
            spans.append(Span(x, " · ", "dim"))
            x += 3
        shown = cut(text, max(0, width - x))
        spans.append(Span(x, shown, style))
        x += cell_len(shown)
        if shown != text:
            break
    return Line(tuple(spans))


def wrap(text: str, width: int) -> list[str]:
    """`text` in pieces of at most `width` cells, broken at blanks where there are any."""
    pieces: list[str] = []
    for word in text.split(" "):
        if pieces and cell_len(pieces[-1]) + 1 + cell_len(word) <= width:
            pieces[-1] += " " + word
        else:
            pieces += _chop(word, width)
    return pieces or [""]


def clip(line: Line, width: int) -> Line:
    """`line` cut to `width` cells."""
    inside = (Span(s.x, cut(s.text, width - s.x), s.style) for s in line.spans if s.x < width)
    return Line(tuple(inside), line.style)


def fill(lines: Sequence[Line], height: int) -> list[Line]:
    """Exactly `height` lines."""
    return [*lines[:height], *([Line()] * (height - len(lines)))]


def _chop(word: str, width: int) -> list[str]:
    pieces = [""]
    for character in word:
        if cell_len(pieces[-1]) + cell_len(character) > width:
            pieces.append("")
        pieces[-1] += character
    return pieces
