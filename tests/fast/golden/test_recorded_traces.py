# SPDX-License-Identifier: Apache-2.0
"""Compares `attribute`'s output for recorded traces of real servers, byte for byte.

`record_traces.py` makes the traces. After an intended change of the output, check the difference,
then regenerate it: `QJOULE_REGOLD=1 pytest tests/fast/golden/test_recorded_traces.py`.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import attribute_trace
import fake_tracer as ft
from qjoule.commands.attribute import command
from qjoule.contract import Block, Command, Loss, OwnerKind, Rung, SessionEvent, TaskEvent
from qjoule.engine.attribute import attribute
from qjoule.reporters.json_report import to_json
from qjoule.servers import registry
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace import Meta
from qjoule.trace.meta import Server
from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter

TRACES = Path(__file__).with_name("traces")


#: By the name of each result.
BY = {
    "fingerprint": "fingerprint",
    "thread": "thread",
    "labels": "server,database,user,application,session",
    "tags": "tag:endpoint,tag:tenant,fingerprint",
    "child": "fingerprint,child",
    "transaction": "transaction",
}
NAMES = sorted(path.name for path in TRACES.iterdir() if path.is_dir())


def test_every_server_has_a_trace() -> None:
    assert len(NAMES) == 13, NAMES


T0, MS = ft.BEGIN_NS, ft.MS
STARTUP = b"\0\0\0\x20\0\x03\0\0user\0ann\0application_name\0psql\0\0"


def check(text: str, golden: Path) -> None:
    """Compares a text with a file, or writes it."""
    if os.environ.get("QJOULE_REGOLD"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", NAMES)
def test_attribution_of_a_recorded_trace(name: str, by: str) -> None:
    words = [str(TRACES / name), "--by", BY[by], "--format", "json", "--calibration", "none"]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    check(done.stdout, TRACES / name / "expected" / f"{by}.json")


def test_attribution_of_the_handwritten_trace(tmp_path: Path) -> None:
    text = to_json(attribute(Trace(attribute_trace.write(tmp_path / "t"))))
    check(text, TRACES.with_name("attribution.json"))


def scripted() -> bytes:
    """A login, two queries, a background thread, a pid used twice, a loss, a failed read."""
    session = {"session": 1, "t_ns": T0, "pid": 11, "tgid": 10, "server": 1}
    session |= {"event": SessionEvent.OPEN, "server_kind": registry.kind_of("postgres")}
    query = {"query": 1, "begin_ns": T0 + MS, "end_ns": T0 + 4 * MS, "session": 1, "shape": 5}
    query |= {"server": 1, "pid": 11, "tgid": 10, "executions": 1}
    query |= {"rung": Rung.SYMBOL, "command": Command.QUERY, "statement_bytes": 31}
    serving = {"tgid": 10, "server": 1, "owner_kind": OwnerKind.QUERY}
    segments = (
        ft.segment(T0 + MS, T0 + 3 * MS, 11, query=1, **serving),
        ft.segment(T0 + 5 * MS, T0 + 6 * MS, 10, server=1, owner_kind=OwnerKind.SERVER),
        ft.segment(T0 + 2 * MS, T0 + 4 * MS, 77, cpu=1),
        ft.segment(T0 + 8 * MS, T0 + 9 * MS, 77, cpu=1),
    )
    loss = {"t_ns": T0 + 9, "count": 2, "lost_ns": 40, "cpu": 1, "cause": Loss.SEGMENT}
    cpu_time = {"t_ns": T0 + 20 * MS, "busy_ns": 3 * MS, "idle_ns": 17 * MS}
    return b"".join(
        [
            ft.head(),
            ft.task(T0, 10, TaskEvent.ALIVE, b"postgres"),
            ft.task(T0, 11, TaskEvent.ALIVE, b"backend", tgid=10),
            ft.block(Block.SESSION, session | {"text_bytes": len(STARTUP)}, text=STARTUP),
            ft.energy(T0, 100, 7),
            ft.text(5, b"SELECT * FROM t WHERE id = 4711"),
            ft.block(Block.SEGMENT, *segments),
            ft.task(T0 + 1, 77, TaskEvent.FORK, b"cron"),
            ft.task(T0 + 4 * MS, 77, TaskEvent.EXIT),
            ft.task(T0 + 7 * MS, 77, TaskEvent.FORK, b"backup"),
            ft.block(Block.QUERY, query, query | {"query": 2, "shape": 0, "flags": 3}),
            ft.block(Block.LOSS, loss),
            ft.block(Block.CPU_TIME, cpu_time),
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
    tables: dict[str, Any] = {"meta": json.loads((tmp_path / "t/meta.json").read_bytes())}
    tables["meta"].pop("qjoule")
    tables |= {name: trace.table(name).to_pylist() for name in TABLES}
    check(json.dumps(tables, indent=1) + "\n", TRACES.with_name("test_trace_tables.json"))
