# SPDX-License-Identifier: Apache-2.0
"""The live view's table screen, made from a `ViewState`. The figures shown add up to the measured
power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len

from qjoule.model.result import OWNERS, PARTS, Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import FIXED_NAMES, key_cells, statement_label
from qjoule.reporters.live_frame import Line, Span, clip, cut, fill, flow, header, place
from qjoule.reporters.live_pages import detail, help_lines, stacks
from qjoule.reporters.live_state import Mode, ViewState, row_key
from qjoule.reporters.plain import GAP, Column, fit, key_width
from qjoule.reporters.provenance import has_energy
from qjoule.reporters.table import cells_per_call
from qjoule.reporters.waits import (
    HELPERS,
    STOLEN,
    WAIT_TITLES,
    helpers_cell,
    stolen_cell,
    wait_cells,
)

_QUERY_WIDTH = 22  #: columns are dropped before the query gets narrower than this
COLUMNS = (
    Column("rank", "#", 3, 2),
    Column("fingerprint", "FINGERPRINT", 16, 9, "left"),
    Column("database", "DB", 10, 8, "left"),
    Column("user", "USER/APP", 12, 10, "left"),
    Column("rate", "CALLS/s", 7, 4),
    Column("per_call", "J/CALL ± 95 %", 20, 1),
    Column("power", "W", 8, 0),
    Column("share", "SHARE ± 95 %", 13, 3),
    Column("cpu", "CPU ms/CALL", 11, 6),
    Column("ipc", "IPC", 5, 11),
    Column("latency_ns_mean", "LAT avg", 8, 5),
    Column("latency_ns_p95", "LAT p95", 8, 7),
    Column("trend", "W TREND", 12, 12, "left"),
    Column("query", "QUERY", _QUERY_WIDTH, 0, "left", stretch=True),
)
#: Columns that are shown beside the parts of the latency, and their ranks then.
_BESIDE_WAITS = {
    "rank": 12, "fingerprint": 19, "database": 18, "user": 20, "rate": 14, "power": 0,
    "share": 13, "latency_ns_mean": 2, "query": 0,
}  # fmt: skip
_SORTED_COLUMN = {"e": "power", "c": "cpu", "l": "latency_ns_mean", "n": "rate"}
HEADER_LINES = 4
_KEYS = "ecln sort  / filter  Space pause  ⏎ f detail  w waits  g group  h help  q quit"
_COMPACT_BELOW = 18  #: lines below which the fixed rows are shown in one line


def compose(state: ViewState, width: int, height: int) -> list[Line]:
    """Returns exactly `height` lines of at most `width` cells."""
    return [clip(line, width) for line in _compose(state, width, height)]


def _compose(state: ViewState, width: int, height: int) -> list[Line]:
    head = header(state, width)
    room = max(1, height - len(head) - 1)
    if state.mode is Mode.HELP:
        body = help_lines(width)
    elif state.mode is Mode.DETAIL:
        body = detail(state, width)
    elif state.mode is Mode.STACKS:
        body = stacks(state, width)
    else:
        return fill([*head, *fill(_table(state, width, room), room), _footer(state, width)], height)
    state.scroll = min(state.scroll, max(0, len(body) - room))
    body = body[state.scroll :]
    return fill([*head, *fill(body, room), _footer(state, width)], height)


def visible_rows(state: ViewState, height: int) -> list[Row]:
    """Returns the query and thread rows that `compose` shows on a table screen of `height`
    lines."""
    rows = state.rows()
    room = max(1, height - HEADER_LINES - 2 - _fixed_height(height))
    first = max(0, state.cursor(rows) - room + 1)
    return rows[first : first + room]


def _fixed_height(height: int) -> int:
    """Counts the rule, the hidden queries, the other parts and the total; or one line for all."""
    return len(PARTS) + 2 if height >= _COMPACT_BELOW else 2


def _table(state: ViewState, width: int, room: int) -> list[Line]:
    attribution = state.attribution
    if attribution is None:
        return []
    height = room + HEADER_LINES + 1
    rows = visible_rows(state, height)
    first = state.rows().index(rows[0]) if rows else 0
    figures, total, unit = _power(attribution, rows)
    columns = _wait_columns(attribution) if state.waits else _usual_columns(attribution)
    layout = fit(_columns_with_content(columns, rows, unit, state.group, width), width - 2, GAP)
    selected = state.selected_row()
    lines = [_heading(layout, state.sort)]
    for index, row in enumerate(rows):
        cells = _cells(row, attribution, state)
        cells.update(rank=str(first + index + 1), power=figures[index])
        lines.append(_line(layout, cells, "cursor" if row is selected else ""))
    if not rows:
        lines.append(
            flow([("no queries match" if state.current_filter else "no queries", "dim")], width)
        )
    below = fill(lines, room - _fixed_height(height))
    fixed = _fixed(attribution, rows, figures, total)
    rule = Line((Span(1, "─" * (width - 2), "dim"),))
    if height < _COMPACT_BELOW:
        items = [
            (f"{cells['query']} {cells['power']}", "dim") for cells in (fixed[-1], *fixed[:-1])
        ]
        return [*below, rule, flow(items, width)]
    return [
        *below,
        rule,
        *(_line(layout, cells, "", "dim") for cells in fixed[:-1]),
        _line(layout, fixed[-1], "", "bold"),
    ]


def _power(attribution: Attribution, rows: Sequence[Row]) -> tuple[list[str], str, str]:
    """Returns watts of the rows shown and of the rest of each part; their sum; the unit.

    They are rounded together, so that the figures on the screen add up to its total.
    """
    seconds = attribution.trace.duration_s
    if not has_energy(attribution) or seconds <= 0:
        return [fmt.UNKNOWN] * (len(rows) + len(PARTS)), fmt.UNKNOWN, "W"
    energies = [row.energy_nj for row in rows]
    energies += [_hidden_nj(attribution, rows, part) for part in PARTS]
    column = fmt.energy_column([round(energy / seconds) for energy in energies], narrow=True)
    return list(column.figures), column.total, column.unit.replace("J", "W")


def _hidden_nj(attribution: Attribution, rows: Sequence[Row], part: str) -> int:
    """Returns the energy of a part without the rows shown."""
    shown_nj = sum(row.energy_nj for row in rows if row.kind == part)
    return attribution.main.parts_nj.get(part, 0) - shown_nj


def _fixed(
    attribution: Attribution, rows: Sequence[Row], figures: Sequence[str], total: str
) -> list[dict[str, str]]:
    """Returns the cells of the hidden queries, of the other parts, and of the total."""
    shown = sum(row.kind == "queries" for row in rows)
    hidden = max(0, len(attribution.rows) - shown)
    names = [f"other queries ({fmt.count(hidden)})"]
    names += [FIXED_NAMES[part] for part in PARTS[1:-1]] + ["residual (unattributed)"]
    owned_nj = attribution.main.owned_nj if has_energy(attribution) else 0
    cells = []
    for index, name in enumerate(names):
        energy_nj = _hidden_nj(attribution, rows, PARTS[index]) if owned_nj else 0
        share = fmt.share(energy_nj / owned_nj if owned_nj else None)
        if owned_nj and PARTS[index] not in OWNERS:
            share = ""
        cells.append({"query": name, "power": figures[len(rows) + index], "share": share})
    grade = fmt.one_line(attribution.energy_source.grade)
    share = fmt.share(1.0 if owned_nj else None)
    return [*cells, {"query": f"TOTAL {grade}", "power": total, "share": share}]


def _usual_columns(attribution: Attribution) -> list[Column]:
    """Puts the share first if the total is estimated: the share is far better known then."""
    if attribution.energy_source.grade != "estimated":
        return list(COLUMNS)
    rank, *others = (column for column in COLUMNS if column.key != "share")
    share = next(column for column in COLUMNS if column.key == "share")
    return [rank, replace(share, rank=1), *others]


def _wait_columns(attribution: Attribution) -> list[Column]:
    """Returns columns of the latency's parts. The narrowest screen keeps the largest part."""
    waits = [row.waits for row in attribution.rows if row.waits is not None]
    sums_ns = {key: sum(getattr(row_waits, key) for row_waits in waits) for key in WAIT_TITLES}
    keys = [key for key, ns in sums_ns.items() if ns] or list(WAIT_TITLES)
    place = {key: n for n, key in enumerate(sorted(keys, key=lambda key: -sums_ns[key]))}
    titles = {**WAIT_TITLES, "run_queue": "run q"}
    *beside, query = (
        replace(column, rank=_BESIDE_WAITS[column.key])
        for column in COLUMNS
        if column.key in _BESIDE_WAITS
    )
    parts = [
        Column(key, titles[key].upper(), 7, place[key] + 2 if place[key] else 0) for key in keys
    ]
    if any(helpers_cell(row) for row in attribution.rows):
        parts.append(Column(HELPERS, HELPERS.upper(), 7, 2))
    if any(row.stolen_ns for row in attribution.rows):
        parts.append(Column(STOLEN, STOLEN.upper(), 7, 2))
    return [*beside, *parts, query]


def _columns_with_content(
    columns: Sequence[Column], rows: Sequence[Row], unit: str, group: str, width: int
) -> list[Column]:
    """Returns the columns that have content, with titles. Columns of grouping keys are never
    dropped, since rows could not be distinguished without them."""
    has_content = {
        "fingerprint": any("fingerprint" in row.keys for row in rows),
        "database": any("database" in row.keys for row in rows),
        "user": any("user" in row.keys for row in rows),
        "ipc": any(row.cycles and row.instructions for row in rows),
    }
    titles = {"power": unit}
    if "fingerprint" not in group.split(","):
        titles["query"] = fmt.one_line(group).upper()
    cells = [_keys(row) for row in rows]
    keys = [key for key in group.split(",") if any(key in row_cells for row_cells in cells)]
    most = key_width(width, len(keys), _QUERY_WIDTH)
    available = [
        replace(column, title=titles.get(column.key, column.title))
        for column in columns
        if has_content.get(column.key, True) and column.key not in keys
    ]
    for key in keys:
        title = fmt.one_line(key).upper()
        needed = max(
            cell_len(text) for text in (title, *(row_cells.get(key, "") for row_cells in cells))
        )
        available.insert(-1, Column(key, title, min(needed, most), 0, "left"))
    return available


def _keys(row: Row) -> dict[str, str]:
    """Returns keys beside the statement, including the server if rows are grouped by it."""
    if "server" in row.keys and "fingerprint" in row.keys and not row.not_selected:
        return {"server": fmt.one_line(row.server), **key_cells(row)}
    return key_cells(row)


def _cells(row: Row, attribution: Attribution, state: ViewState) -> dict[str, str]:
    seconds = attribution.trace.duration_s
    ipc = row.instructions / row.cycles if row.instructions and row.cycles else None
    history = list(state.history_w.get(row_key(row), ()))
    return {
        **cells_per_call(row, attribution),
        **wait_cells(row.waits),
        **helpers_cell(row),
        **stolen_cell(row),
        "database": fmt.one_line(row.keys.get("database", "")) or fmt.UNKNOWN,
        "user": fmt.one_line(row.keys.get("user", "")) or fmt.UNKNOWN,
        "rate": fmt.rate(row.calls / seconds if seconds > 0 else None),
        "share": fmt.share_with_interval(row.share, row.share_ci95)
        if has_energy(attribution)
        else fmt.UNKNOWN,
        "ipc": fmt.significant(ipc),
        "trend": fmt.sparkline(history, 12),
        "query": statement_label(row),
        **_keys(row),
    }


def _heading(layout: Sequence[tuple[Column, int]], sort: str) -> Line:
    sorted_column = _SORTED_COLUMN[sort]
    titles = {column.key: column.title for column, _ in layout}
    line = _line(layout, titles, "head")
    spans = [
        Span(span.x, span.text, "sorted") if column.key == sorted_column else span
        for span, (column, _) in zip(line.spans, layout, strict=True)
    ]
    return Line(tuple(spans), "head")


def _line(
    layout: Sequence[tuple[Column, int]], cells: dict[str, str], fill_style: str, style: str = ""
) -> Line:
    spans, x = [], 1
    for column, width in layout:
        text = cells.get(column.key, "")
        shown = text[:width] if column.key == "fingerprint" else text
        accent = "accent" if column.key == "trend" and not fill_style else ""
        spans.append(
            place(
                shown, x, width, right=column.align == "right", style=fill_style or accent or style
            )
        )
        x += width + GAP
    return Line(tuple(spans), fill_style)


def _footer(state: ViewState, width: int) -> Line:
    if state.typing is not None:
        text = f"filter: {fmt.one_line(state.typing)}▏  Enter applies, Esc leaves"
        return Line((Span(1, cut(text, width - 2), "accent"),))
    if state.message:
        return Line((Span(1, cut(fmt.one_line(state.message), width - 2), "accent"),))
    keys = {
        Mode.TABLE: _KEYS,
        Mode.STACKS: "↑ ↓ scroll  Esc back  Space pause  q quit",
    }.get(state.mode, "↑ ↓ scroll  Esc back  Space pause  a all/last  q quit")
    return Line((Span(1, cut(keys, width - 2), "dim"),))
