# SPDX-License-Identifier: Apache-2.0
"""Pairs of forms of one query: what the better form gains over the worse (GPS-UP)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.table import Table
from rich.text import Text

from qjoule.model.gpsup import Comparison, Interval
from qjoule.reporters import format as fmt
from qjoule.reporters.plain import Page, page_width, ruled_table

_MIN_WIDTH = 60
_FALLBACK = 120  #: used if the terminal's width is unknown
_LEGEND = (
    "How many times faster {new} is (speedup), how much more power it draws while it runs "
    "(powerup), how much less energy it needs (greenup); below each, its 95 % interval."
)


@dataclass(frozen=True)
class NamedPair:
    """A comparison with names for people: `better` is its new form, `worse` its base."""

    title: str
    better: str
    worse: str
    comparison: Comparison


def render(
    pairs: Sequence[NamedPair],
    grade: str,
    *,
    heading: str = "better form over the worse",
    new: str = "the better form",
    width: int | None = None,
    color: bool = False,
) -> str:
    """The pairs as text that ends with a line feed.

    Args:
        pairs: in the order to show.
        grade: of the energies that were compared.
        heading: over the names.
        new: what `comparison.new` is in every pair.
        width: terminal cells; by default the terminal's, 120 where there is none.
        color: write ANSI colours.
    """
    page = Page(page_width(width, _MIN_WIDTH, _FALLBACK), color)
    page.print(_table(pairs, heading))
    page.print()
    legend = f"{_LEGEND.format(new=new)} Energy: {fmt.one_line(grade)}, apportioned."
    page.print(Text(legend, style="dim"))
    return page.text()


def _table(pairs: Sequence[NamedPair], heading: str) -> Table:
    table = ruled_table(leading=1)
    table.add_column(heading, overflow="fold", min_width=18)
    for name in ("speedup", "powerup", "greenup"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", min_width=12, max_width=36)
    for pair in pairs:
        comparison = pair.comparison
        forms = f"{fmt.one_line(pair.better)} over {fmt.one_line(pair.worse)}"
        label = Text(fmt.one_line(pair.title), style=Style(bold=True))
        table.add_row(
            label.append("\n" + forms, style=Style(bold=False)),
            _ratio(comparison.speedup, comparison.speedup_ci95),
            _ratio(comparison.powerup, comparison.powerup_ci95),
            _ratio(comparison.greenup, comparison.greenup_ci95),
            Text(_verdict(comparison)),
        )
    return table


def _verdict(comparison: Comparison) -> str:
    """The category; its word on power is kept only where the interval of powerup leaves out 1."""
    energy_and_pace, comma, power = fmt.one_line(comparison.category).partition(", ")
    low, high = comparison.powerup_ci95 or (-math.inf, math.inf)
    if comma and low <= 1 <= high:
        power = "power not separable"
    return energy_and_pace + comma + power


def _ratio(value: float | None, ci95: Interval | None) -> Text:
    """The figure, and its interval below it; an unknown is an en dash, not a blank."""
    if not fmt.is_known(value):
        return Text(fmt.UNKNOWN)
    ends = f"{_end(ci95[0])}…{_end(ci95[1])}" if ci95 else fmt.UNKNOWN
    return Text(fmt.significant(value)).append("\n" + ends, style=Style(dim=True))


def _end(value: float) -> str:
    return "∞" if value == math.inf else fmt.significant(value, 2)
