# SPDX-License-Identifier: Apache-2.0
"""What requests cost over several hosts, as a table and as JSON (`qjoule.requests/1`)."""

from __future__ import annotations

import json
from typing import Any

from qjoule.api.screen import Page, page_width, ruled_table
from qjoule.api.screen import format as fmt
from qjoule_fleet.requests.clocks import Offset
from qjoule_fleet.requests.join import At, Request
from qjoule_fleet.requests.run import Answer, TraceSum

SCHEMA = "qjoule.requests/1"
_WIDTH = 100
_FLAGS = {
    "id_reused": "queries too far apart to be one request",
    "clock_unknown": "the clocks of its hosts cannot be compared",
    "several_grades": "has a row for each grade or policy: they are never added",
    "server_missing": "a client called a server that no trace has",
}


def row_json(one: Request) -> dict[str, Any]:
    """One request as plain data."""
    return {
        "id": one.id,
        "grade": one.grade,
        "idle": one.policy,
        "energy_j": _joules(one, one.energy_nj),
        "energy_j_ci95": [_joules(one, end) for end in one.ends_nj],
        "cpu_ns": one.cpu_ns,
        "calls": one.calls,
        "hosts": list(one.hosts),
        "begin_ns": one.begin_ns,
        "end_ns": one.end_ns,
        "flags": list(one.flags),
        "parts": [_part_json(one, part) for part in one.parts],
    }


def to_json(answer: Answer) -> str:
    """The whole answer."""
    out = {
        "schema": SCHEMA,
        "tag": answer.tag,
        "reference_host": answer.reference,
        "clocks": {host: _clock_json(one) for host, one in sorted(answer.clocks.items())},
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
        "traces": [_trace_json(one) for one in answer.traces],
        "notes": list(answer.notes),
        "rows": [row_json(one) for one in answer.rows],
    }
    return json.dumps(out, indent=1, ensure_ascii=True) + "\n"


def render(answer: Answer, *, color: bool = False, width: int | None = None) -> str:
    """The answer for people."""
    page = Page(page_width(width, 60, _WIDTH), color)
    for (grade, policy), sums in answer.totals.items():
        rows = [one for one in answer.rows if (one.grade, one.policy) == (grade, policy)]
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
    for host, one in sorted(answer.clocks.items()):
        clocks.add_row(host, *_clock_cells(one))
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
    for one in rows:
        known = one.grade != "none"
        low, high = (end * 1e-9 for end in one.ends_nj)
        table.add_row(
            one.id,
            f"{one.energy_nj * 1e-9:.4g}" if known else "unknown",
            f"{low:.3g} to {high:.3g}" if known else "",
            f"{one.calls:,}",
            ", ".join(one.hosts),
            ", ".join(sorted({part.server for part in one.parts})),
            ", ".join(one.flags),
        )
    return table


def _clock_cells(one: Offset) -> tuple[str, str, str, str]:
    if one.by == "reference":
        return "0", "", "", "reference"
    if not one.told:
        why = f"{one.agree} of {one.shared} requests agree" if one.shared else "no shared requests"
        return "unknown", "", "", why
    through = f", through {one.through}" if one.through else ""
    return (
        _seconds(one.middle_ns),
        _seconds(one.low_ns),
        _seconds(one.high_ns),
        f"{one.agree} of {one.shared} {one.by}{through}",
    )


def _seconds(ns: int) -> str:
    return f"{ns * 1e-9:.6f} s" if abs(ns) < 10**9 else f"{ns * 1e-9:.3f} s"


def _clock_json(one: Offset) -> dict[str, Any]:
    return {
        "told": one.told,
        "ahead_ns": one.middle_ns if one.told else None,
        "ahead_ns_bounds": [one.low_ns, one.high_ns] if one.told else None,
        "by": one.by,
        "shared": one.shared,
        "agree": one.agree,
        "through": one.through,
    }


def _trace_json(one: TraceSum) -> dict[str, Any]:
    def joules(nj: int | None) -> float | None:
        return None if nj is None else nj * 1e-9

    return {
        "trace": one.name,
        "host": one.host,
        "grade": one.grade,
        "measured_j": joules(one.measured_nj),
        "total_error": one.total_error,
        "tagged_j": joules(one.tagged_nj),
        "untagged_queries_j": joules(one.untagged_nj),
        "notes": list(one.notes),
    }


def _part_json(one: Request, part: At) -> dict[str, Any]:
    return {
        "trace": part.trace,
        "host": part.host,
        "server": part.server,
        "energy_j": _joules(one, part.energy_nj),
        "energy_j_ci95": [_joules(one, end) for end in part.ends_nj],
        "cpu_ns": part.cpu_ns,
        "calls": part.calls,
    }


def _joules(one: Request, nj: float) -> float | None:
    return None if one.grade == "none" else nj * 1e-9
