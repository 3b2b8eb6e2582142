# SPDX-License-Identifier: Apache-2.0
"""The live view's page that divides one row's joules over functions and plan nodes.

Names come from untrusted files; `Span` makes them safe to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stacks import (
    CUT,
    PlanNode,
    RecentStacks,
    RowStacks,
    samples_with,
    sampling_share,
)
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import query_label
from qjoule.reporters.live_frame import ELLIPSIS, Line, Span, flow, place, wrap
from qjoule.reporters.live_state import ViewState, row_key
from qjoule.reporters.plain import GAP, Column, fit
from qjoule.reporters.provenance import has_energy

MIN_SAMPLES = 20  #: samples below which no shares are shown
_ROWS_MAX = 10  #: functions, and nodes, shown at most
_LABEL_LINES = 2
_UNKNOWN = "unknown (not followed)"
_NO_NODE = "(no node)"
_Entry = tuple[str, int, int]  #: name, samples in it, samples including callees
_Counts = Mapping[str, tuple[int, int]]  #: as returned by `samples_with`
_COLUMNS = (
    Column("self", "SELF ± 95 %", 13, 0),
    Column("total", "WITH CALLS", 10, 1),
    Column("joules", "SELF J", 8, 2),
    Column("samples", "SAMPLES", 7, 3),
    Column("name", "", 20, 0, "left", stretch=True),
)
_MEANING = (
    "SELF: samples in the function itself; WITH CALLS: also in what it called. ± is what the "
    "number of samples leaves open, not the errors of the row's joules.",
)
_NO_SAMPLES = "no row has samples in this time"
_NOT_FOLLOWED = (
    "Not followed: servers that started after top did, and code that is compiled at run time, "
    "except by JVMs with -XX:+PreserveFramePointer.",
)


def stacks_page(state: ViewState, identity: Line, width: int) -> list[Line]:
    """Returns the page. `identity`: the line that names the selected row."""
    row = selected_row(state)
    if state.snapshot is None or row is None:
        return []
    text = wrap(query_label(row), max(8, width - 4))
    if len(text) > _LABEL_LINES:
        text = [*text[: _LABEL_LINES - 1], f"{text[_LABEL_LINES - 1][: width - 5]}{ELLIPSIS}"]
    lines = [identity, *(Line((Span(2, piece, "dim"),)) for piece in text), Line()]
    recent = state.snapshot.stacks
    if recent is None:
        return [*lines, *_paragraphs([state.no_stacks], width)]
    row_stacks = recent.rows.get(row.identity)
    counts = {} if row_stacks is None else samples_with(row_stacks)
    lines.append(_summary(recent, row_stacks, counts, state.snapshot.interval, width))
    if row_stacks is None or row_stacks.count < MIN_SAMPLES:
        reasons = [f"too few samples to divide its joules: at least {MIN_SAMPLES} are needed"]
        if not recent.rows:
            reasons.append(_NO_SAMPLES)
        return [*lines, Line(), *_paragraphs([*reasons, *_missing(recent)], width, "warn")]
    lines += [Line(), *_tables(row_stacks, counts, state.snapshot.interval, width), Line()]
    notes = [*_MEANING, *(_NOT_FOLLOWED if CUT in counts else ()), *_missing(recent)]
    return [*lines, *_paragraphs(notes, width)]


def selected_row(state: ViewState) -> Row | None:
    """Returns the selected row, from the last interval, else from the total since the reset."""
    if state.snapshot is None:
        return None
    rows = (*state.snapshot.interval.tabled, *state.snapshot.total.tabled)
    return next((row for row in rows if row_key(row) == state.selected), None)


def stacks_document(state: ViewState) -> dict[str, Any] | None:
    """Returns the page's content for an export; None if the row has no stacks."""
    row = selected_row(state)
    recent = None if state.snapshot is None else state.snapshot.stacks
    row_stacks = None if row is None or recent is None else recent.rows.get(row.identity)
    if row is None or recent is None:
        return None
    samples = RowStacks(row, Counter()) if row_stacks is None else row_stacks
    counts = samples_with(samples)
    return {
        "seconds": recent.seconds,
        "samples": samples.count,
        "too_few": samples.count < MIN_SAMPLES,
        "lost": recent.lost,
        "of_no_row": recent.unknown,
        "energy_j": None if row_stacks is None else fmt.in_joules(row_stacks.row.energy_nj),
        "functions": _documents(_functions(counts), samples),
        "nodes": _documents(_nodes(samples, counts) if samples.count else [], samples),
        "missing": list(recent.missing),
    }


def _missing(recent: RecentStacks) -> Iterator[str]:
    if recent.unknown:
        yield f"of all rows: {fmt.count(recent.unknown)} samples of no known row"
    yield from recent.missing


def _documents(entries: Sequence[_Entry], row_stacks: RowStacks) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "self_samples": own,
            "samples": inside,
            "self_share_half_width": sampling_share(own, row_stacks.count),
            "share_half_width": sampling_share(inside, row_stacks.count),
        }
        for name, own, inside in entries
    ]


def _summary(
    recent: RecentStacks,
    row_stacks: RowStacks | None,
    counts: _Counts,
    interval: Attribution,
    width: int,
) -> Line:
    count = 0 if row_stacks is None else row_stacks.count
    cut = counts.get(CUT, (0, 0))[1]
    joules = fmt.joules(fmt.in_joules(row_stacks.row.energy_nj)) if row_stacks is not None else ""
    return flow(
        [
            (f"last {fmt.duration(recent.seconds * 1e9)}", "title"),
            (f"{fmt.count(count)} samples", ""),
            (joules if has_energy(interval) else "", ""),
            (f"{fmt.share(cut / count)} not followed to the end" if cut else "", "warn"),
            (f"{fmt.count(recent.lost)} lost, of all rows" if recent.lost else "", "warn"),
        ],
        width,
        x=2,
    )


def _tables(
    row_stacks: RowStacks, counts: _Counts, interval: Attribution, width: int
) -> Iterator[Line]:
    nodes = _nodes(row_stacks, counts)
    if any(name != _NO_NODE for name, _, _ in nodes):
        yield from _table("NODE OF THE PLAN", nodes, row_stacks, interval, width)
        yield Line()
    yield from _table("FUNCTION", _functions(counts), row_stacks, interval, width)


def _table(
    title: str,
    entries: Sequence[_Entry],
    row_stacks: RowStacks,
    interval: Attribution,
    width: int,
) -> Iterator[Line]:
    """Yields a table. `entries`: the hottest first."""
    layout = fit(_COLUMNS, max(1, width - 4), GAP)
    yield _line(layout, {column.key: column.title for column in _COLUMNS} | {"name": title}, "head")
    for name, own, inside in entries[:_ROWS_MAX]:
        share, half = own / row_stacks.count, sampling_share(own, row_stacks.count)
        joules = fmt.joules(fmt.in_joules(row_stacks.row.energy_nj) * share)
        cells = {
            "self": fmt.share_with_interval(share, (share - half, share + half)),
            "total": fmt.share(inside / row_stacks.count),
            "joules": joules if has_energy(interval) else fmt.UNKNOWN,
            "samples": fmt.count(own),
            "name": name,
        }
        yield _line(layout, cells, "")
    if len(entries) > _ROWS_MAX:
        yield Line((Span(2, f"and {fmt.count(len(entries) - _ROWS_MAX)} more", "dim"),))


def _functions(counts: _Counts) -> list[_Entry]:
    """Returns functions, the hottest first, without those that only call others."""
    return _hottest(
        (_UNKNOWN if name == CUT else name, own, inside)
        for name, (own, inside) in counts.items()
        if own and not isinstance(name, PlanNode)
    )


def _nodes(row_stacks: RowStacks, counts: _Counts) -> list[_Entry]:
    """Returns plan nodes, the hottest first, and the samples outside of nodes."""
    return _hottest(
        (_NO_NODE, node.samples, node.samples)
        if node.name is None
        else (node.name, node.samples, counts[node.name][1])
        for node in plan_nodes(row_stacks)
    )


def _hottest(entries: Iterable[_Entry]) -> list[_Entry]:
    return sorted(entries, key=lambda entry: (-entry[1], -entry[2], entry[0]))


def _line(layout: Sequence[tuple[Column, int]], cells: dict[str, str], style: str) -> Line:
    spans, x = [], 2
    for column, width in layout:
        right = column.align == "right"
        spans.append(place(cells[column.key], x, width, right=right, style=style))
        x += width + GAP
    return Line(tuple(spans), style)


def _paragraphs(texts: Iterable[str], width: int, style: str = "dim") -> Iterator[Line]:
    for text in texts:
        for piece in wrap(text, max(8, width - 4)):
            yield Line((Span(2, piece, style),))
