# SPDX-License-Identifier: Apache-2.0
"""One scripted stream, and every row that results from it (test_trace_tables.json).

To regenerate the file after an intended change: QJOULE_GOLDEN=write pytest tests/fast/golden
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import fake_tracer as ft
from qjoule.contract import Block, Command, Loss, OwnerKind, Rung, SessionEvent, TaskEvent
from qjoule.servers import registry
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace import Meta, Trace
from qjoule.trace.meta import Server
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter

GOLDEN = Path(__file__).with_suffix(".json")
T0, MS = ft.BEGIN_NS, ft.MS
STARTUP = b"\0\0\0\x20\0\x03\0\0user\0ann\0application_name\0psql\0\0"


def scripted() -> bytes:
    """A login, two queries, a background thread, a pid used twice, a loss, a failed read."""
    session = {"session": 1, "t_ns": T0, "pid": 11, "tgid": 10, "server": 1}
    session |= {"event": SessionEvent.OPEN, "server_kind": registry.kind_of("postgres")}
    query = {"query": 1, "begin_ns": T0 + MS, "end_ns": T0 + 4 * MS, "session": 1, "shape": 5}
    query |= {"server": 1, "pid": 11, "tgid": 10, "executions": 1}
    query |= {"rung": Rung.SYMBOL, "command": Command.QUERY, "statement_bytes": 31}
    serving = {"tgid": 10, "server": 1, "owner_kind": OwnerKind.QUERY}
    return b"".join(
        [
            ft.head(),
            ft.task(T0, 10, TaskEvent.ALIVE, b"postgres"),
            ft.task(T0, 11, TaskEvent.ALIVE, b"backend", tgid=10),
            ft.block(Block.SESSION, session | {"text_bytes": len(STARTUP)}, text=STARTUP),
            ft.energy(T0, 100, 7),
            ft.text(5, b"SELECT * FROM t WHERE id = 4711"),
            ft.block(
                Block.SEGMENT,
                ft.segment(T0 + MS, T0 + 3 * MS, 11, query=1, **serving),
                ft.segment(T0 + 5 * MS, T0 + 6 * MS, 10, server=1, owner_kind=OwnerKind.SERVER),
                ft.segment(T0 + 2 * MS, T0 + 4 * MS, 77, cpu=1),
                ft.segment(T0 + 8 * MS, T0 + 9 * MS, 77, cpu=1),
            ),
            ft.task(T0 + 1, 77, TaskEvent.FORK, b"cron"),
            ft.task(T0 + 4 * MS, 77, TaskEvent.EXIT),
            ft.task(T0 + 7 * MS, 77, TaskEvent.FORK, b"backup"),
            ft.block(Block.QUERY, query, query | {"query": 2, "shape": 0, "flags": 3}),
            ft.block(
                Block.LOSS,
                {"t_ns": T0 + 9, "count": 2, "lost_ns": 40, "cpu": 1, "cause": Loss.SEGMENT},
            ),
            ft.block(Block.CPU_TIME, {"t_ns": T0 + 20 * MS, "busy_ns": 3 * MS, "idle_ns": 17 * MS}),
            ft.block(Block.ENERGY, {"t_ns": T0 + 20 * MS, "status": 5, "half_width_ns": 3}),
            ft.flush(T0 + 20 * MS),
            ft.end(T0 + 20 * MS),
        ]
    )


def test_tables_of_the_scripted_stream(tmp_path: Path) -> None:
    meta = Meta(host="golden", servers=(Server(1, "postgres", "postgres", rung="symbol"),))
    record(Stream(io.BytesIO(scripted())), TraceWriter(tmp_path / "t"), ft.fingerprint, meta)
    trace = Trace(tmp_path / "t")
    assert trace.complete
    found: dict[str, Any] = {"meta": json.loads((tmp_path / "t/meta.json").read_bytes())}
    found["meta"].pop("qjoule")
    found |= {name: trace.table(name).to_pylist() for name in TABLES}
    text = json.dumps(found, indent=1) + "\n"
    if os.environ.get("QJOULE_GOLDEN") == "write":
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8")
