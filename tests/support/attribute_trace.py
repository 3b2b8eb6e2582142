# SPDX-License-Identifier: Apache-2.0
"""A handwritten trace whose attribution can be checked with pencil and paper.

One package of two CPUs, two windows of 20 ms, 1 J and 2 J. Times are in ms.

    CPU 0   [ q1 0-10 ][ q2 10-20 ]   [ q1 20-30 ][ -- 30-40 ]
    CPU 1   [ purge 0-5 ][ idle ]     [ bash 20-30 ][ login 30-35 ]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server
from qjoule.trace.schema import TABLES, conform
from qjoule.trace.writer import TraceWriter

MS = 1_000_000
BEGIN_NS = 5_000 * MS
OWNERS = [
    {"owner": 0, "kind": "idle"},
    {"owner": 1, "kind": "query", "pid": 11, "tgid": 10, "server": 1, "comm": "connection"},
    {"owner": 2, "kind": "server", "pid": 12, "tgid": 10, "server": 1, "role": "purge"},
    {"owner": 3, "kind": "process", "pid": 20, "tgid": 20, "comm": "t", "process_comm": "bash"},
    {"owner": 4, "kind": "kernel", "pid": 2, "tgid": 2, "comm": "kworker"},
    {"owner": 5, "kind": "tracer", "pid": 30, "tgid": 30, "comm": "qjoule-tracer"},
]
#: (begin, end, query, fingerprint, command, extra)
QUERIES: list[tuple[float, float, int, str | None, str, dict[str, Any]]] = [
    (0, 12, 1, "aaaa", "query", {"tags": [("endpoint", "checkout")], "database": "shop"}),
    (10, 20, 2, "bbbb", "execute", {"executions": 3, "user": "ann", "session": 7}),
    (20, 30, 3, "aaaa", "prepare", {}),
    (30, 35, 4, None, "connect", {}),
]
#: (t0, t1, cpu, owner, query)
SEGMENTS: list[tuple[float, float, int, int, int | None]] = [
    (0, 10, 0, 1, 1),
    (0, 5, 1, 2, None),
    (10, 20, 0, 1, 2),
    (20, 30, 0, 1, 3),
    (20, 30, 1, 3, None),
    (30, 35, 1, 1, 4),
]


def rows(name: str, records: list[dict[str, Any]]) -> pa.Table:
    """Records as a table of the trace."""
    columns = {key: None for record in records for key in record}
    fields = [TABLES[name].field(column) for column in columns]
    plain = pa.schema(
        [
            pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type)
            for f in fields
        ]
    )
    return conform(name, pa.Table.from_pylist(records, plain))


def write(directory: Path, **changed: Any) -> Path:
    """Writes the trace; `changed` replaces tables (lists of records) or fields of `meta`."""
    fields = {
        "host": "box",
        "kernel": "6.1",
        "cpu": "CPU",
        "begin_ns": BEGIN_NS,
        "end_ns": BEGIN_NS + 40 * MS,
        "realtime_offset_ns": 0,
        "window_ns": 20 * MS,
        "energy": EnergyInfo("replay", "simulated", "a test"),
        "domains": (DomainInfo(0, "package", 1e-9),),
        "cpus": (Cpu(0, 0, 0, 0), Cpu(1, 0, 1, 1)),
        "servers": (Server(1, "shop-db", "mysql"),),
        "complete": True,
    }
    meta = Meta(**(fields | changed.pop("meta", {})))
    tables = {
        "shapes": [
            {"shape": 1, "fingerprint": "aaaa", "text": "select a"},
            {"shape": 2, "fingerprint": "bbbb", "text": "select b"},
        ],
        "owners": OWNERS,
        "energy": [energy(t, raw) for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))],
        "queries": [query(*row) for row in QUERIES],
        "segments": [segment(*row) for row in SEGMENTS],
    } | changed
    writer = TraceWriter(directory, meta)
    writer.write({name: rows(name, records) for name, records in tables.items() if records})
    writer.close(meta)
    return directory


def at(t_ms: float) -> int:
    return BEGIN_NS + round(t_ms * MS)


def energy(t_ms: float, raw: int | None, domain: str = "package") -> dict[str, Any]:
    """A reading in nanojoules; None: the read failed."""
    return {
        "t_ns": at(t_ms),
        "half_width_ns": 500,
        "package": 0,
        "domain": domain,
        "raw": raw,
        "unit_j": 1e-9,
        "status": 5 if raw is None else 0,
    }


def segment(t0: float, t1: float, cpu: int, owner: int, query: int | None) -> dict[str, Any]:
    return {"t0_ns": at(t0), "t1_ns": at(t1), "cpu": cpu, "owner": owner, "query": query}


def query(  # noqa: PLR0917
    begin: float, end: float, number: int, name: str | None, command: str, extra: dict[str, Any]
) -> dict[str, Any]:
    shape = {"aaaa": 1, "bbbb": 2}.get(name or "", 0)
    return {
        "query": number,
        "begin_ns": at(begin),
        "end_ns": at(end),
        "server": 1,
        "fingerprint": name,
        "shape": shape,
        "command": command,
        "status": "ok",
        "attach_mode": "symbol",
        **extra,
    }
