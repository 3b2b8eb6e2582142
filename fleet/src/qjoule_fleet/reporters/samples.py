# SPDX-License-Identifier: Apache-2.0
"""Formats `qjoule samples` as a table: estimated joules and calls with 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from qjoule.api.screen import Page, fitted_table, page_width, sized
from qjoule.api.screen import format as fmt

_MIN_WIDTH, _FALLBACK = 60, 140
_LABEL_WIDTH = 8  #: columns are dropped before the first key gets narrower than this
_MOST_KEY = 16  #: maximum cells of the other keys
#: Columns after the keys, and ranks: the highest is dropped first if too wide, 0 never.
_RANKS = {"energy ± 95 %": 0, "calls ± 95 %": 0, "CPU": 2, "drawn": 1, "": 0}


def render(rows: Sequence[dict[str, Any]], keys: Sequence[str], *, width: int | None = None) -> str:
    """Returns the table. `rows`: at least one, from `fleet.samples.by_keys`."""
    classes = sorted({(row["grade"], row["policy"]) for row in rows})
    if len(classes) > 1:
        keys = (*keys, "grade", "policy")
    width = page_width(width, _MIN_WIDTH, _FALLBACK)
    titles = [*keys, *_RANKS]
    lines = [dict(zip(titles, _cells(row, keys), strict=True)) for row in rows]
    columns = []
    for title in titles:
        key = title in keys
        most = _LABEL_WIDTH if title == keys[0] else _MOST_KEY if key else width
        contents = [line[title] for line in lines]
        left = key or not title
        columns.append(sized(title, title, contents, _RANKS.get(title, 0), most, left=left))
    table, shown = fitted_table([column for column in columns if column.width], width, keys[0])
    for line in lines:
        table.add_row(*(Text(line[title]) for title in shown))
    page = Page(width, color=False)
    page.print(table)
    page.print()
    page.print(Text("estimated from queries drawn at random"))
    for grade, policy in classes:
        page.print(Text(f"joules: {fmt.one_line(grade)}; power at rest: {fmt.one_line(policy)}"))
    if any(row["rough"] for row in rows):
        page.print(Text("rough: so few queries were drawn that the interval is a guess"))
    return page.text()


def _cells(row: dict[str, Any], keys: Sequence[str]) -> Iterator[str]:
    yield from (fmt.one_line(str(row[key])) for key in keys)
    yield fmt.with_interval(row["joules"], (row["joules_low"], row["joules_high"]))
    yield _calls(row)
    yield fmt.duration(row["cpu_s"] * 1e9)
    yield fmt.count(row["drawn"])
    yield "rough" if row["rough"] else ""


def _calls(row: dict[str, Any]) -> str:
    """Formats estimate and half width of the interval, whose lower end may be clipped at
    `drawn`."""
    half = row["calls_high"] - row["calls"]
    return f"{row['calls']:,} ± {half:,}" if half else f"{row['calls']:,}"
