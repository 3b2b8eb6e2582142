# SPDX-License-Identifier: Apache-2.0
"""Pages of the live view beside its table: details of one row, and help."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qjoule.engine.keys import TRANSACTION
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import fingerprint, id_pairs, query_label
from qjoule.reporters.live_frame import Line, Span, flow, place, wrap
from qjoule.reporters.live_stacks import selected_row, stacks_page
from qjoule.reporters.live_state import ViewState, row_key
from qjoule.reporters.provenance import has_energy, power_factor, time_alone
from qjoule.reporters.waits import STOLEN, WAIT_TITLES, stolen_cell

_NAME = 18  #: cells for the figures' names
_FIGURE = 24  #: cells for a figure, if the screen is wide enough
_GONE = "this row is in no snapshot since the last reset"


def stacks(state: ViewState, width: int) -> list[Line]:
    """Shows how the selected row's joules divide over the server's functions."""
    row = selected_row(state)
    if row is None:
        return [Line(), flow([(_GONE, "dim")], width)] if state.snapshot is not None else []
    return stacks_page(state, _identity(row, width), width)


def detail(state: ViewState, width: int) -> list[Line]:
    """Shows the selected row's text, history and figures, for the last interval and since the
    reset."""
    if state.snapshot is None or state.selected is None:
        return []
    interval = _find(state.snapshot.interval, state.selected)
    total = _find(state.snapshot.total, state.selected)
    row = total or interval
    if row is None:
        return [Line(), flow([(_GONE, "dim")], width)]
    lines = [Line(), _identity(row, width), Line()]
    lines += [Line((Span(2, piece),)) for piece in wrap(query_label(row), max(8, width - 4))]
    for name, text in id_pairs(row):
        lines.append(flow([(name, "dim"), (text, "")], width, x=2))
    lines += [Line(), _history(state, width), Line()]
    room = min(_FIGURE, max(1, (width - _NAME - 5) // 2))
    lines.append(_figure("", ("last interval", "since reset"), room, "dim"))
    names = dict(_figures(row, state.snapshot.total))
    last = dict(_figures(interval, state.snapshot.interval)) if interval else {}
    whole = dict(_figures(total, state.snapshot.total)) if total else {}
    for name in names:
        columns = (last.get(name, fmt.UNKNOWN), whole.get(name, fmt.UNKNOWN))
        lines.append(_figure(name, columns, room))
    return lines


def _find(attribution: Attribution, key: str) -> Row | None:
    return next((row for row in attribution.tabled if row_key(row) == key), None)


def _identity(row: Row, width: int) -> Line:
    return flow(
        [
            (fingerprint(row), "title"),
            (fmt.one_line(row.server), ""),
            (f"attach mode {fmt.one_line(row.attach_mode)}" if row.attach_mode else "", ""),
            *((fmt.one_line(flag), "warn") for flag in row.flags),
        ],
        width,
        x=2,
    )


def _history(state: ViewState, width: int) -> Line:
    series = list(state.history_w.get(state.selected or "", ()))
    finite_w = [value for value in series if math.isfinite(value)]
    room = max(8, width - _NAME - 26)
    peak = f"peak {fmt.watts(max(finite_w) if finite_w else None)} W"
    spark = fmt.sparkline(series, room)
    return Line(
        (
            Span(2, "power, W", "dim"),
            Span(2 + _NAME, spark, "accent"),
            Span(2 + _NAME + len(spark) + 2, peak, "dim"),
        )
    )


def _figure(name: str, columns: tuple[str, str], room: int, style: str = "") -> Line:
    return Line(
        (
            Span(2, name, "dim"),
            place(columns[0], 2 + _NAME, room, right=True, style=style),
            place(columns[1], 4 + _NAME + room, room, right=True, style=style),
        )
    )


def _figures(row: Row, attribution: Attribution) -> Iterator[tuple[str, str]]:
    seconds, calls = attribution.trace.duration_s, row.calls
    energy = has_energy(attribution)
    energy_j = row.energy_nj * 1e-9 if energy else None
    low, high = (edge * 1e-9 for edge in row.energy_nj_ci95)
    yield "energy", fmt.with_interval(energy_j, (low, high))
    yield "per call", fmt.with_interval(row.j_per_call if energy else None, row.j_per_call_ci95)
    power = energy_j / seconds if energy_j is not None and seconds > 0 else None
    yield "power", fmt.si(power, "W")
    share = fmt.share_with_interval(row.share, row.share_ci95)
    yield "share of owners' J", share if energy else fmt.UNKNOWN
    for domain, domain_nj in row.energy_by_domain_nj.items():
        yield f"energy, {fmt.one_line(domain)}", _domain_energy(row, domain, domain_nj)
    if row.power_factor:
        yield "power / weight", power_factor(row)
    if row.alone:
        yield "ran alone", time_alone(row)
    if row.shared_nj:
        yield "of it shared", fmt.joules(row.shared_nj * 1e-9)
    yield "calls", fmt.count(calls)
    yield "calls per second", fmt.rate(calls / seconds if seconds > 0 else None)
    yield "CPU time", fmt.duration(row.cpu_ns)
    if row.stolen_ns is None:
        yield "of it stolen", "not recorded"
    elif row.stolen_ns:
        yield "of it stolen", f"{fmt.duration(row.stolen_ns)} ({stolen_cell(row)[STOLEN]})"
    yield "CPU per call", fmt.duration(row.cpu_ns / calls if calls else None)
    yield "latency mean", fmt.duration(row.latency_ns_mean)
    yield "latency p50", fmt.duration(row.latency_ns_p50)
    yield "latency p95", fmt.duration(row.latency_ns_p95)
    yield "latency p99", fmt.duration(row.latency_ns_p99)
    yield from _latency_parts(row)
    yield from _helpers_waited(row)
    yield "cycles", fmt.si(row.cycles, "")
    yield "instructions", fmt.si(row.instructions, "")
    ipc = row.instructions / row.cycles if row.instructions and row.cycles else None
    yield "IPC", fmt.significant(ipc)
    yield "LLC misses", fmt.si(row.llc_misses, "")


def _latency_parts(row: Row) -> Iterator[tuple[str, str]]:
    """Yields the parts of the mean latency, as far as recorded. For a transaction yields shares:
    its latency is longer than that of its queries, to which the parts belong."""
    if row.waits is None or row.latency_ns_mean is None:
        if row.calls:
            yield "waits", "not recorded"
        return
    for key, title in WAIT_TITLES.items():
        share = getattr(row.waits, key) / row.waits.latency_ns
        mean_ns = None if TRANSACTION in row.keys else share * row.latency_ns_mean
        yield f"latency, {title}", fmt.share(share) if mean_ns is None else fmt.duration(mean_ns)


def _helpers_waited(row: Row) -> Iterator[tuple[str, str]]:
    """Yields how long helpers waited per call, or in total if no call ended in the interval."""
    if row.helpers and (waited_ns := sum(row.helpers[1:])):
        yield "helpers waited", fmt.duration(waited_ns / max(row.calls, 1))


def _domain_energy(row: Row, domain: str, energy_nj: int) -> str:
    ends = row.energy_by_domain_ci95.get(domain)
    if ends is None:
        return fmt.joules(energy_nj * 1e-9)
    return fmt.with_interval(energy_nj * 1e-9, (ends[0] * 1e-9, ends[1] * 1e-9))


_HELP = (
    ("e c l n", "sort by energy, CPU, latency, calls"),
    ("<", "turn the sort order round"),
    ("w", "what the latency of queries consists of; again: what their calls cost"),
    ("/", "filter by query text, fingerprint or server; Esc clears it"),
    ("Space", "pause the view; counting goes on"),
    ("↑ ↓ PgUp PgDn", "move the cursor"),
    ("Enter", "everything about one row"),
    ("f", "where a row's joules went in the server's code (top --stacks)"),
    ("g", "group by fingerprint, server, database, user or a tag, as far as the source knows them"),
    ("a", "figures of the last interval, or of everything since the last reset"),
    ("+ -", "longer or shorter interval"),
    ("E", "write this screen to a JSON file here, or in the temporary directory"),
    ("R", "reset: count anew from now on"),
    ("h", "this help"),
    ("q", "quit"),
)
_FIGURES = (
    ("W, %E", "mean power over the interval, and its part of the measured energy"),
    ("J/CALL", "energy per call with its 95 % interval; one-sided where the sides differ"),
    ("CPU ms/CALL", "time on a CPU, parallel workers included"),
    ("IPC", "instructions per cycle, where hardware counters can be read"),
    ("LAT", "time from the server's receipt of a statement to its end"),
    (
        "ON CPU … OTHER",
        "parts of the latency. RUN Q: could have run, but had no CPU. I/O: files, missing pages. "
        "NETWORK: the client, or another server. SLEEP: a timer of its own",
    ),
    ("other queries", "every query that this screen has no line for"),
    ("residual", "measured energy that no owner's time accounts for"),
    (fmt.UNKNOWN, "unknown; never the same as 0"),
    ("grade", "measured: a hardware counter. estimated: a power model. simulated: a test source"),
)


def help_lines(width: int) -> list[Line]:
    lines = [Line(), Line((Span(2, "Keys", "title"),)), *_entries(_HELP, width), Line()]
    return [*lines, Line((Span(2, "Figures", "title"),)), *_entries(_FIGURES, width)]


def _entries(entries: tuple[tuple[str, str], ...], width: int) -> list[Line]:
    lines = []
    for name, text in entries:
        for index, piece in enumerate(wrap(text, max(8, width - 20))):
            spans = [Span(2, name, "accent")] if index == 0 else []
            lines.append(Line((*spans, Span(18, piece))))
    return lines
