# SPDX-License-Identifier: Apache-2.0
"""The live view's drill-down: one row's full text, its history, and every figure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import fingerprint, id_pairs, query_label
from qjoule.reporters.live_frame import Line, Span, flow, place, wrap
from qjoule.reporters.live_state import ViewState, row_key
from qjoule.reporters.power import alone, factor
from qjoule.reporters.provenance import has_energy

_NAME = 18  #: cells of the figures' names
_FIGURE = 24  #: cells of a figure, if there is room


def detail(state: ViewState, width: int) -> list[Line]:
    """Any number of lines; notes it if the row had no calls in the last interval."""
    if state.shown is None or state.selected is None:
        return []
    interval = _find(state.shown.interval, state.selected)
    total = _find(state.shown.total, state.selected)
    row = total or interval
    if row is None:
        return [Line(), flow([("this row is in no snapshot since the last reset", "dim")], width)]
    lines = [Line(), _identity(row, width), Line()]
    lines += [Line((Span(2, piece),)) for piece in wrap(query_label(row), max(8, width - 4))]
    for name, text in id_pairs(row):
        lines.append(flow([(name, "dim"), (text, "")], width, x=2))
    lines += [Line(), _history(state, width), Line()]
    room = min(_FIGURE, max(1, (width - _NAME - 5) // 2))
    lines.append(_figure("", ("last interval", "since reset"), room, "dim"))
    names = dict(_figures(row, state.shown.total))
    last = dict(_figures(interval, state.shown.interval)) if interval else {}
    whole = dict(_figures(total, state.shown.total)) if total else {}
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
    known = [value for value in series if math.isfinite(value)]
    room = max(8, width - _NAME - 26)
    peak = f"peak {fmt.watts(max(known) if known else None)} W"
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
    yield "share of energy", fmt.share(row.share if energy else None)
    for domain, domain_nj in row.energy_by_domain_nj.items():
        yield f"energy, {fmt.one_line(domain)}", _domain_energy(row, domain, domain_nj)
    if row.power_factor:
        yield "power / weight", factor(row)
    if row.alone:
        yield "ran alone", alone(row)
    if row.shared_nj:
        yield "of it shared", fmt.joules(row.shared_nj * 1e-9)
    yield "calls", fmt.count(calls)
    yield "calls per second", fmt.rate(calls / seconds if seconds > 0 else None)
    yield "CPU time", fmt.duration(row.cpu_ns)
    yield "CPU per call", fmt.duration(row.cpu_ns / calls if calls else None)
    yield "latency mean", fmt.duration(row.latency_ns_mean)
    yield "latency p50", fmt.duration(row.latency_ns_p50)
    yield "latency p95", fmt.duration(row.latency_ns_p95)
    yield "latency p99", fmt.duration(row.latency_ns_p99)
    yield "cycles", fmt.si(row.cycles, "")
    yield "instructions", fmt.si(row.instructions, "")
    ipc = row.instructions / row.cycles if row.instructions and row.cycles else None
    yield "IPC", fmt.significant(ipc)
    yield "LLC misses", fmt.si(row.llc_misses, "")


def _domain_energy(row: Row, domain: str, energy_nj: int) -> str:
    ends = row.energy_by_domain_ci95.get(domain)
    if ends is None:
        return fmt.joules(energy_nj * 1e-9)
    return fmt.with_interval(energy_nj * 1e-9, (ends[0] * 1e-9, ends[1] * 1e-9))
