# SPDX-License-Identifier: Apache-2.0
"""A trace's figures for the page: plain objects for JSON, safe to show as text.

Energies are whole nanojoules, times seconds or nanoseconds as the names say; an unknown is null.
Text that clients chose is sanitised and bounded here, and never becomes markup in the page.

The icicle shows energy as a tree: machine, server, database, statement; and the rest. Every node is
the sum of its children, in whole nanojoules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qjoule.model.labels import NONE_LABEL, SEVERAL
from qjoule.model.result import PARTS, Attribution, Row
from qjoule.model.row_sums import added, fold_rows
from qjoule.report.gather import Detail, Gathered
from qjoule.reporters import format as fmt
from qjoule.reporters import missing, provenance
from qjoule.reporters.labels import (
    FIXED_NAMES,
    fingerprint,
    fixed_label,
    id_pairs,
    key_cells,
    query_label,
)
from qjoule.reporters.missing import alarm
from qjoule.reporters.provenance import power_factor
from qjoule.reporters.result_columns import COUNTERS, FIGURES, WAITS
from qjoule.shapes.safe_text import sanitise, shorten

CHILDREN_MAX = 40  #: of a node; the others are merged
_TEXT = 120

Node = dict[str, Any]  #: name, kind, nj, and children or the number of a row
TEXT_MAX = 4000  #: characters of one statement
TEXTS_MAX = 1_500_000  #: characters of all statements; later ones are cut to SHORT_TEXT_MAX
SHORT_TEXT_MAX = 160
#: Columns of a result that are integers in the page.
_WHOLE = [column for column in (*FIGURES, *COUNTERS) if not column.energy]


def tree(rows: Sequence[Row], machine: str, *, energy_known: bool) -> Node | None:
    """Returns the tree of a table's rows, which are numbered in order; None without energy."""
    if not energy_known:
        return None
    root: Node = {"name": machine, "kind": "machine", "children": []}
    for number, row in enumerate(rows):
        if not row.energy_nj:
            continue
        node = root
        for name, kind in _path(row):
            node = _child(node, name, kind)
        node["children"].append(
            {"name": _leaf(row), "kind": row.kind, "nj": row.energy_nj, "row": number}
        )
    _sum(root)
    return root


def _path(row: Row) -> list[tuple[str, str]]:
    """Returns the nodes above a row, from the outermost."""
    if row.kind == "queries" or (row.kind == "background" and row.server):
        path = [(row.server or "(unknown server)", "server")]
        if row.kind == "background":
            return [*path, ("background", "background")]
        database = row.keys.get("database")
        return [*path, (database, "database")] if database else path
    if row.kind == "other_processes":
        return [(FIXED_NAMES[row.kind], row.kind)]
    return []


def _leaf(row: Row) -> str:
    if row.kind == "queries":
        return shorten(sanitise(row.shape[: 2 * _TEXT] or query_label(row)), _TEXT)
    name = row.shape or row.keys.get("role") or row.keys.get("process") or ""
    return shorten(sanitise(name[: 2 * _TEXT]), _TEXT) or FIXED_NAMES[row.kind]


def _child(node: Node, name: str, kind: str) -> Node:
    name = shorten(sanitise(name[: 2 * _TEXT]), _TEXT)
    for child in reversed(node["children"]):
        if child["name"] == name and child["kind"] == kind:
            existing: Node = child
            return existing
    new: Node = {"name": name, "kind": kind, "children": []}
    node["children"].append(new)
    return new


def _sum(node: Node) -> int:
    """Sums energy from the leaves, sorts the largest first, and merges nodes beyond the limit."""
    if "children" not in node:
        return int(node["nj"])
    node["nj"] = sum(_sum(child) for child in node["children"])
    children = sorted(node["children"], key=lambda child: -child["nj"])
    rest = children[CHILDREN_MAX:]
    if len(rest) > 1:
        others = {"name": f"({len(rest)} others)", "kind": rest[0]["kind"]}
        children = [*children[:CHILDREN_MAX], others | {"nj": sum(child["nj"] for child in rest)}]
    node["children"] = children
    return int(node["nj"])


def trace_data(name: str, gathered: Gathered, top: int) -> dict[str, Any]:
    """Data of one trace. At most `top` rows of queries, and of each other kind; others are
    folded."""
    attribution = gathered.attribution
    energy_known = provenance.has_energy(attribution)
    rows = _shown_rows(attribution, top)
    count = len(attribution.rows)
    alone = count if count <= top + 1 else top  # rows that are not folded
    main = attribution.main if energy_known else None
    return {
        "name": clean(name),
        "grade": attribution.energy_source.grade,
        "known": energy_known,
        "measured_nj": main.measured_nj if main else None,
        "parts_nj": [main.parts_nj[part] for part in PARTS] if main else None,
        "duration_s": attribution.trace.duration_s,
        "power": _power(gathered, alone) if energy_known else None,
        "rows": _rows_by_column(rows, energy_known),
        "by": list(dict.fromkeys(name for row in rows if key_cells(row) for name, _ in _keys(row))),
        "statements": count,
        "tree": tree(rows, clean(attribution.trace.host) or "machine", energy_known=energy_known),
        "details": {
            n: _detail(detail, energy_known) for n, detail in gathered.details.items() if n < alone
        },
        "detail_t_s": _seconds(gathered.detail_edges_ns),
        "detail_known_s": _seconds(gathered.detail_known_ns),
    }


def about(name: str, attribution: Attribution) -> dict[str, Any]:
    """The always visible facts of a trace, and notes on the source of its figures."""
    energy_known = provenance.has_energy(attribution)
    return {
        "name": clean(name),
        "grade": attribution.energy_source.grade,
        "source": clean(attribution.energy_source.name),
        "idle": attribution.policy.get("idle", ""),
        "idle_text": provenance.IDLE_POLICIES.get(attribution.policy.get("idle", ""), ""),
        "loss": missing.loss(attribution),
        "alarm": alarm(attribution),
        "complete": attribution.trace.complete,
        "calibrated": attribution.model.calibrated,
        "coverage": fmt.share(attribution.coverage) if attribution.rows else "",
        "measured": fmt.joules(attribution.main.measured_nj / 1e9) if energy_known else fmt.UNKNOWN,
        "graded": clean(provenance.graded(attribution)),
        "mean_power": _mean_power(attribution) if energy_known else fmt.UNKNOWN,
        "duration": fmt.duration(attribution.trace.duration_s * 1e9),
        "lines": [*provenance.heading(attribution), *provenance.footing(attribution)],
    }


def clean(text: str, most: int = TEXT_MAX) -> str:
    """Text on one line without control or directional characters; truncation is marked."""
    shown = sanitise(text[: most + 1])
    if len(text) <= most:
        return shown
    return f"{shown[:most]}… ({len(text):,} characters in all)"


def _mean_power(attribution: Attribution) -> str:
    seconds = attribution.trace.duration_s
    return fmt.si(attribution.main.measured_nj / 1e9 / seconds, "W") if seconds else fmt.UNKNOWN


def _shown_rows(attribution: Attribution, top: int) -> list[Row]:
    """Rows of queries and other kinds: of each the first `top`, and one that sums up the others."""
    rows = list(fold_rows(attribution, top).rows)
    for part in PARTS[1:]:
        kind = [row for row in attribution.fixed if row.kind == part]
        rest = kind[top:]
        if len(rest) > 1:
            text = f"({len(rest)} others)"
            kind = [*kind[:top], replace(added(rest, {}, apart=False), shape=text, flags=())]
        rows += kind
    return rows


def _power(gathered: Gathered, rows: int) -> dict[str, Any]:
    """Power over time, with series for at most the first `rows` rows."""
    power = gathered.power
    return {
        "t_s": _seconds(power.edges_ns),
        "known_s": _seconds(power.known_ns),
        "measured_nj": power.measured_nj.tolist(),
        "parts_nj": {part: power.parts_nj[part].tolist() for part in PARTS},
        "rows": [
            {"row": row, "nj": nj.tolist()} for row, nj in power.rows_nj.items() if row < rows
        ],
    }


def _rows_by_column(rows: Sequence[Row], energy_known: bool) -> dict[str, list[Any]]:
    """Rows as columns, which is shorter in JSON. Energies are in nJ, and add up."""
    texts = _bounded(query_text(row) if row.kind == "queries" else fixed_label(row) for row in rows)
    nothing: list[Any] = [None] * len(rows)
    waits = WAITS if any(row.waits for row in rows) else ()
    return {
        "text": texts,
        "kind": [PARTS.index(row.kind) for row in rows],
        "server": [clean(_server(row), 200) for row in rows],
        "keys": [_keys(row) + _ids(row) for row in rows],
        "fingerprint": [clean(fingerprint(row), 200) for row in rows],
        "nj": [row.energy_nj for row in rows] if energy_known else nothing,
        "low_nj": [_whole(row.energy_nj_ci95[0]) for row in rows] if energy_known else nothing,
        "high_nj": [_whole(row.energy_nj_ci95[1]) for row in rows] if energy_known else nothing,
        "energy": [_with_interval(row) for row in rows] if energy_known else nothing,
        "per_call": [
            fmt.with_interval(row.j_per_call, row.j_per_call_ci95)
            if energy_known and row.calls
            else None
            for row in rows
        ],
        "share": [None if row.share is None else round(row.share, 6) for row in rows]
        if energy_known
        else nothing,
        "share_text": [
            fmt.share_with_interval(row.share, row.share_ci95)
            if energy_known and row.share
            else None
            for row in rows
        ],
        **{
            column.name: [_whole(column.of(row, energy_known)) for row in rows]
            for column in (*_WHOLE, *waits)
        },
        "helpers": [
            fmt.duration(waited_ns / row.calls)
            if row.calls and row.helpers and (waited_ns := sum(row.helpers[1:]))
            else None
            for row in rows
        ],
        "factor": [power_factor(row) if row.power_factor else None for row in rows],
        "attach_mode": [clean(row.attach_mode, 40) for row in rows],
        "flags": [clean(" ".join(row.flags), 200) for row in rows],
    }


def query_text(row: Row) -> str:
    """A row's statement, or its label without one; not yet bounded."""
    return row.shape if row.shape and not row.not_selected else query_label(row)


def _keys(row: Row) -> list[list[str]]:
    """Keys with values that are shown nowhere else: [name, value]. If there is a statement, each
    has a column."""
    elsewhere = ("fingerprint", "server", "role", "process")
    others = {k: v for k, v in row.keys.items() if k not in elsewhere and v and v != NONE_LABEL}
    return [[clean(k, 100), clean(v, 200)] for k, v in others.items()]


def _ids(row: Row) -> list[list[str]]:
    """Ids of other tools: [name, id]."""
    return [[clean(name, 100), clean(text, 200)] for name, text in id_pairs(row)]


def _server(row: Row) -> str:
    return "" if row.server == SEVERAL and row.shape.startswith("(") else row.server


def _bounded(texts: Iterable[str]) -> list[str]:
    out, remaining = [], TEXTS_MAX
    for text in texts:
        shown = clean(text, TEXT_MAX if remaining > 0 else SHORT_TEXT_MAX)
        remaining -= len(shown)
        out.append(shown)
    return out


def _with_interval(row: Row) -> str:
    low, high = row.energy_nj_ci95
    return fmt.with_interval(row.energy_nj / 1e9, (low / 1e9, high / 1e9))


def _detail(detail: Detail, energy_known: bool) -> dict[str, Any]:
    sampled = len(detail.call_nj) if energy_known else 0
    return {
        "nj": detail.energy_nj.tolist() if energy_known else None,
        "calls": detail.calls.tolist(),
        "call_nj": np.rint(detail.call_nj).astype(int).tolist()[:sampled],
        "call_ns": [ns if ns >= 0 else None for ns in detail.latency_ns.tolist()][:sampled],
    }


def _seconds(ns: Any) -> list[float]:
    return [round(value * 1e-9, 6) for value in ns.tolist()]


def _whole(value: float | None) -> int | None:
    return round(value) if fmt.is_known(value) else None
