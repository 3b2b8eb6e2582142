# SPDX-License-Identifier: Apache-2.0
"""Formats the cost of requests over several hosts as a table and as JSON (`qjoule.requests/1`)."""

from __future__ import annotations

import json
from typing import Any

from qjoule.api.screen import Page, page_width, ruled_table
from qjoule.api.screen import format as fmt
from qjoule_fleet.requests.clocks import Offset
from qjoule_fleet.requests.join import Request, ServerPart
from qjoule_fleet.requests.run import Answer, TraceSum

SCHEMA = "qjoule.requests/1"
_WIDTH = 100
_FLAGS = {
    "id_reused": "queries too far apart to be one request",
    "clock_unknown": "the clocks of its hosts cannot be compared",
    "several_grades": "has a row for each grade or policy: they are never added",
    "server_missing": "a client called a server that no trace has",
}


def row_json(request: Request) -> dict[str, Any]:
    """Returns one request as plain objects."""
    return {
        "id": request.id,
        "grade": request.grade,
        "idle": request.policy,
        "energy_j": _joules(request, request.energy_nj),
        "energy_j_ci95": [_joules(request, end) for end in request.ends_nj],
        "cpu_ns": request.cpu_ns,
        "calls": request.calls,
        "hosts": list(request.hosts),
        "begin_ns": request.begin_ns,
        "end_ns": request.end_ns,
        "flags": list(request.flags),
        "parts": [_part_json(request, part) for part in request.parts],
    }


def to_json(answer: Answer) -> str:
    """Returns the whole answer as JSON."""
    out = {
        "schema": SCHEMA,
        "tag": answer.tag,
        "reference_host": answer.reference,
        "clocks": {host: _clock_json(clock) for host, clock in sorted(answer.clocks.items())},
        "totals": [
            {
                "grade": grade,
                "idle": policy,
                "requests": sums.requests,
                "over_several_hosts": sums.several_hosts,
                "energy_j": None if grade == "none" else fmt.in_joules(sums.energy_nj),
                "total_error": sums.error.relative,
                **({"error_in_rows": sums.error.in_rows} if sums.error.relative else {}),
                "flags": dict(sorted(sums.flags.items())),
            }
            for (grade, policy), sums in answer.totals.items()
        ],
        "traces": [_trace_json(trace) for trace in answer.traces],
        "notes": list(answer.notes),
        "rows": [row_json(request) for request in answer.rows],
    }
    return json.dumps(out, indent=1, ensure_ascii=True) + "\n"


def render(answer: Answer, *, color: bool = False, width: int | None = None) -> str:
    """Returns the answer as text with tables."""
    page = Page(page_width(width, 60, _WIDTH), color)
    for (grade, policy), sums in answer.totals.items():
        rows = [
            request for request in answer.rows if (request.grade, request.policy) == (grade, policy)
        ]
        energy = "energy unknown" if grade == "none" else f"{sums.energy_nj * 1e-9:.6g} J"
        page.print(
            f"Requests by tag '{answer.tag}': {sums.requests:,}, {sums.several_hosts:,} of them on "
            f"several hosts. {energy}, {fmt.graded(grade, sums.error.relative)}, idle: {policy}"
        )
        page.print(_table(rows))
        hidden = sums.requests - len(rows)
        if hidden > 0:
            page.print(f"{hidden:,} more requests: see --top, or -o requests.parquet")
        for flag, count in sorted(sums.flags.items()):
            page.print(f"{flag}: {count:,} rows. {_FLAGS.get(flag, '')}")
        page.print("")
    if len(answer.totals) > 1:
        page.print("Energies of different grades or idle policies are not added up.")
    page.print(f"Clocks, relative to {answer.reference}")
    clocks = ruled_table()
    for heading in ("host", "ahead by", "at least", "at most", "from"):
        clocks.add_column(heading, justify="left" if heading in ("host", "from") else "right")
    for host, clock in sorted(answer.clocks.items()):
        clocks.add_row(host, *_clock_cells(clock))
    page.print(clocks)
    for trace in answer.traces:
        for note in trace.notes:
            page.print(f"{trace.name}: {note}")
    for note in answer.notes:
        page.print(note)
    return page.text()


def _table(rows: list[Request]) -> Any:
    table = ruled_table()
    for heading in ("request", "J", "95 %", "calls", "hosts", "servers", "flags"):
        left = heading in ("request", "hosts", "servers", "flags")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for request in rows:
        has_energy = request.grade != "none"
        low, high = (end * 1e-9 for end in request.ends_nj)
        table.add_row(
            request.id,
            f"{request.energy_nj * 1e-9:.4g}" if has_energy else "unknown",
            f"{low:.3g} to {high:.3g}" if has_energy else "",
            f"{request.calls:,}",
            ", ".join(request.hosts),
            ", ".join(sorted({part.server for part in request.parts})),
            ", ".join(request.flags),
        )
    return table


def _clock_cells(clock: Offset) -> tuple[str, str, str, str]:
    if clock.by == "reference":
        return "0", "", "", "reference"
    if not clock.bounded:
        why = (
            f"{clock.agree} of {clock.shared} requests agree"
            if clock.shared
            else "no shared requests"
        )
        return "unknown", "", "", why
    through = f", through {clock.through}" if clock.through else ""
    return (
        _seconds(clock.middle_ns),
        _seconds(clock.low_ns),
        _seconds(clock.high_ns),
        f"{clock.agree} of {clock.shared} {clock.by}{through}",
    )


def _seconds(ns: int) -> str:
    return f"{ns * 1e-9:.6f} s" if abs(ns) < 10**9 else f"{ns * 1e-9:.3f} s"


def _clock_json(clock: Offset) -> dict[str, Any]:
    return {
        "told": clock.bounded,
        "ahead_ns": clock.middle_ns if clock.bounded else None,
        "ahead_ns_bounds": [clock.low_ns, clock.high_ns] if clock.bounded else None,
        "by": clock.by,
        "shared": clock.shared,
        "agree": clock.agree,
        "through": clock.through,
    }


def _trace_json(trace: TraceSum) -> dict[str, Any]:
    def joules(nj: int | None) -> float | None:
        return None if nj is None else nj * 1e-9

    return {
        "trace": trace.name,
        "host": trace.host,
        "grade": trace.grade,
        "measured_j": joules(trace.measured_nj),
        "total_error": trace.total_error,
        "tagged_j": joules(trace.tagged_nj),
        "untagged_queries_j": joules(trace.untagged_nj),
        "notes": list(trace.notes),
    }


def _part_json(request: Request, part: ServerPart) -> dict[str, Any]:
    return {
        "trace": part.trace,
        "host": part.host,
        "server": part.server,
        "energy_j": _joules(request, part.energy_nj),
        "energy_j_ci95": [_joules(request, end) for end in part.ends_nj],
        "cpu_ns": part.cpu_ns,
        "calls": part.calls,
    }


def _joules(request: Request, nj: float) -> float | None:
    return None if request.grade == "none" else nj * 1e-9
