# SPDX-License-Identifier: Apache-2.0
"""Statements that were prepared before tracing began and have no text."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

import fake_tracer as ft
from qjoule.contract import TEXT, Block, Command, OwnerKind, Rung
from qjoule.engine.attribute import attribute
from qjoule.live.source import StreamSource
from qjoule.model.labels import PREPARED_BEFORE, is_prepared_before
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.servers.unseen import unseen_text
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.recording import record
from qjoule.stream.statements import MAX_UNSEEN, Statements
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter

DIALECT = registry.dialect("unseen")


def unseen(session: int, statement: int) -> bytes:
    return struct.pack("<QQ", session, statement)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (17, "statement 17"),
        (0xDEADBEEF_00000001, "statement 0xdeadbeef00000001"),
        ((1 << 64) - 1, "the unnamed statement"),
    ],
)
def test_a_row_says_which_statement_of_which_session(statement: int, words: str) -> None:
    text = unseen_text(unseen(5, statement))
    assert text == f"(prepared before tracing began: {words} of session 5)"
    assert is_prepared_before(text)
    assert fingerprint(unseen(5, statement), DIALECT).text == text


def test_other_bytes_say_nothing() -> None:
    assert unseen_text(b"") == unseen_text(b"x" * 15) == PREPARED_BEFORE


def test_the_rows_are_bounded_and_leave_room_for_statements() -> None:
    statements = Statements(fingerprint, max_shapes=2 * MAX_UNSEEN)
    shapes = np.arange(1, MAX_UNSEEN + 11, dtype=np.uint64)
    for shape in shapes.tolist():
        statements.add(_frame(shape, unseen(shape, 1), DIALECT))
    named = statements.fingerprints(shapes).to_pylist()
    assert None not in named[:MAX_UNSEEN]
    assert len(set(named[:MAX_UNSEEN])) == MAX_UNSEEN
    assert set(named[MAX_UNSEEN:]) == {None}  # these share the row of all others
    other = 1 << 32
    statements.add(_frame(other, b"select 1", registry.dialect("mysql")))
    assert statements.fingerprints(np.array([other], np.uint64)).to_pylist() != [None]


def test_the_live_view_has_the_same_rows_as_a_recording(tmp_path: Path) -> None:
    """Each statement of each session has its own row, with the same name, calls and CPU time."""
    shapes = range(1, 21)
    texts = [ft.text(n, unseen(n % 3, n), dialect=DIALECT) for n in shapes]
    stream = ft.head() + b"".join(texts) + ft.energy(ft.BEGIN_NS, 1000, 0)
    live = StreamSource(Stream(io.BytesIO(stream + _live())), fingerprint, META)
    shown = list(live.snapshots(Controls(0.5)))[-1].total
    record(Stream(io.BytesIO(stream + _recorded())), TraceWriter(tmp_path / "t"), fingerprint, META)
    found = attribute(Trace(tmp_path / "t"), ["fingerprint"])
    rows = [
        {(row.keys["fingerprint"], row.shape, row.calls, row.cpu_ns) for row in one.rows}
        for one in (shown, found)
    ]
    assert rows[0] == rows[1]
    assert {text for _, text, *_ in rows[0]} == {unseen_text(unseen(n % 3, n)) for n in shapes}
    assert shown.coverage == found.coverage == 0


END_NS = ft.BEGIN_NS + 100 * ft.MS
META = Meta(host="db1", servers=(Server(1, "mariadb", rung="symbol"),))


def _live() -> bytes:
    sums = [
        {
            **{"t0_ns": ft.BEGIN_NS, "t1_ns": END_NS, "owner_kind": OwnerKind.QUERY, "server": 1},
            **{"shape": shape, "cpu_ns": ft.MS, "calls": 1, "latency_ns": ft.MS},
        }
        for shape in range(1, 21)
    ]
    return ft.energy(END_NS, 2000, 0) + ft.block(Block.AGGREGATE, *sums) + _end()


def _recorded() -> bytes:
    times = [(n, ft.BEGIN_NS + n * 2 * ft.MS) for n in range(1, 21)]
    segments = [
        ft.segment(t0_ns, t0_ns + ft.MS, 7, query=n, owner_kind=OwnerKind.QUERY, server=1)
        for n, t0_ns in times
    ]
    queries = [
        {
            **{"query": n, "shape": n, "begin_ns": t0_ns, "end_ns": t0_ns + ft.MS, "server": 1},
            **{"executions": 1, "command": Command.EXECUTE, "rung": Rung.SYMBOL, "pid": 7},
        }
        for n, t0_ns in times
    ]
    blocks = ft.block(Block.SEGMENT, *segments) + ft.block(Block.QUERY, *queries)
    return blocks + ft.energy(END_NS, 2000, 0) + _end()


def _end() -> bytes:
    return ft.flush(END_NS) + ft.end(END_NS)


def _frame(shape: int, text: bytes, dialect: int) -> Frame:
    record = np.zeros(1, TEXT)
    record["shape"], record["dialect"] = shape, dialect
    record["statement_bytes"] = record["text_bytes"] = len(text)
    return Frame(Block.TEXT, 0, record, text)
