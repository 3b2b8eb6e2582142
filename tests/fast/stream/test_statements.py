# SPDX-License-Identifier: Apache-2.0
"""Which queries get which texts of statements, and which tags that clients send."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import fake_tracer as ft
from fuzz.mongodb_library import compressed, op_msg, told
from qjoule.contract import SHAPE_OTHER, TEXT, Block, Command, OwnerKind, Rung
from qjoule.engine.attribute import attribute
from qjoule.live.source import StreamSource
from qjoule.model.labels import PREPARED_BEFORE, is_prepared_before
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.servers.unseen import unseen_text
from qjoule.snapshots import Controls
from qjoule.stream import client_tags
from qjoule.stream import statements as module
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.client_tags import ClientTags
from qjoule.stream.recording import record
from qjoule.stream.statements import MAX_UNSEEN, Statements
from qjoule.tags.definitions import Tags
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter
from qjoule_drivers import attributes as carrier

UNSEEN = registry.dialect("unseen")


def ids(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, np.uint64)


def text_frame(shape: int, text: bytes, dialect: int, *, single: bool = False) -> Frame:
    rows = np.zeros(1, TEXT)
    rows["shape"], rows["dialect"], rows["single"] = shape, dialect, single
    rows["text_bytes"] = rows["statement_bytes"] = len(text)
    return Frame(Block.TEXT, 0, rows, text)


# ---- texts of single queries ---------------------------------------------------------------------


def single(shape: int, key: str) -> Frame:
    """The text of one query: each has a hash of its own."""
    command = op_msg({"find": "orders", "filter": {key: shape}, "$db": "shop"})
    text = told(compressed(command))
    return text_frame(shape, text, registry.dialect("mongodb"), single=True)


def test_single_queries_of_one_shape_share_the_hash_of_the_first() -> None:
    statements = Statements(fingerprint)
    for shape in range(1, 9):
        statements.add(single(shape, "ab"[shape % 2]))
    ended = ids(8, 3, 1, 2, 77, 4)
    settled = statements.settled(ended)
    assert settled.tolist() == [2, 1, 1, 2, 77, 2]
    assert statements.fingerprints(settled).null_count == 1
    shapes = statements.take_shapes()
    assert shapes["shape"].to_pylist() == [1, 2]
    assert shapes["text"].to_pylist() == ["shop.orders find {b: ?}", "shop.orders find {a: ?}"]
    assert statements.settled(ids(5, 6, 7)).tolist() == [1, 2, 1]
    assert statements.settled(ended) is ended  # nothing is left to settle


def test_single_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SINGLES", 5)
    never_ended, ever_new = Statements(fingerprint), Statements(fingerprint, max_shapes=3)
    for shape in range(1, 20):
        never_ended.add(single(shape, "a"))
        ever_new.add(single(shape, f"key{shape}"))
    assert never_ended.settled(ids(2, 15, 19)).tolist() == [2, 1, 1]
    settled = ever_new.settled(ids(1, 2, 18, 19))
    assert settled.tolist() == [1, 2, SHAPE_OTHER, SHAPE_OTHER]
    assert ever_new.fingerprints(settled).null_count == 0


# ---- statements that were prepared before --------------------------------------------------------

END_NS = ft.BEGIN_NS + 100 * ft.MS
META = Meta(host="db1", servers=(Server(1, "mariadb", rung="symbol"),))


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
    assert fingerprint(unseen(5, statement), UNSEEN).text == text
    assert unseen_text(b"") == unseen_text(b"x" * 15) == PREPARED_BEFORE


def test_rows_of_unseen_statements_are_bounded_and_leave_room_for_others() -> None:
    statements = Statements(fingerprint, max_shapes=2 * MAX_UNSEEN)
    shapes = np.arange(1, MAX_UNSEEN + 11, dtype=np.uint64)
    for shape in shapes.tolist():
        statements.add(text_frame(shape, unseen(shape, 1), UNSEEN))
    named = statements.fingerprints(shapes).to_pylist()
    assert None not in named[:MAX_UNSEEN]
    assert len(set(named[:MAX_UNSEEN])) == MAX_UNSEEN
    assert set(named[MAX_UNSEEN:]) == {None}  # these share the row of all others
    statements.add(text_frame(1 << 32, b"select 1", registry.dialect("mysql")))
    assert statements.fingerprints(ids(1 << 32)).to_pylist() != [None]


def test_the_live_view_has_the_same_rows_of_them_as_a_recording(tmp_path: Path) -> None:
    head, live, recorded = ft.head() + ft.energy(ft.BEGIN_NS, 1000, 0), b"", b""
    for n in range(1, 21):
        head += ft.text(n, unseen(n % 3, n), dialect=UNSEEN)
        begin_ns = ft.BEGIN_NS + n * 2 * ft.MS
        of_server = {"owner_kind": OwnerKind.QUERY, "server": 1}
        totals = {"shape": n, "cpu_ns": ft.MS, "calls": 1, "latency_ns": ft.MS}
        live += ft.block(
            Block.AGGREGATE, {"t0_ns": ft.BEGIN_NS, "t1_ns": END_NS, **of_server, **totals}
        )
        segment = ft.segment(begin_ns, begin_ns + ft.MS, 7, query=n, **of_server)
        query = {"query": n, "shape": n, "begin_ns": begin_ns, "end_ns": begin_ns + ft.MS}
        query |= {"server": 1, "executions": 1, "command": Command.EXECUTE, "rung": Rung.SYMBOL}
        recorded += ft.block(Block.SEGMENT, segment) + ft.block(Block.QUERY, query)
    reading, end = ft.energy(END_NS, 2000, 0), ft.flush(END_NS) + ft.end(END_NS)
    source = StreamSource(Stream(io.BytesIO(head + reading + live + end)), fingerprint, META)
    shown = list(source.snapshots(Controls(0.5)))[-1].total
    stream = Stream(io.BytesIO(head + recorded + reading + end))
    record(stream, TraceWriter(tmp_path / "t"), fingerprint, META)
    attributed = attribute(Trace(tmp_path / "t"), ["fingerprint"])
    rows = [
        {(row.keys["fingerprint"], row.shape, row.calls, row.cpu_ns) for row in result.rows}
        for result in (shown, attributed)
    ]
    assert rows[0] == rows[1]
    assert {text for _, text, *_ in rows[0]} == {
        unseen_text(unseen(n % 3, n)) for n in range(1, 21)
    }
    assert shown.coverage == attributed.coverage == 0


# ---- tags that clients send to servers -----------------------------------------------------------

TAGS = pa.map_(pa.string(), pa.string())
SQL_TAGS = registry.dialect("tags")
A, B = ("n", "a"), ("n", "b")


def filled(column: pa.Array | None) -> list[list[tuple[str, str]] | None]:
    assert column is not None and column.type == TAGS
    rows: list[list[tuple[str, str]] | None] = column.to_pylist()
    return rows


def test_tags_of_calls_take_precedence_over_those_of_single_queries() -> None:
    client = ClientTags()
    for query in (1, 2, 3, 5):
        client.add(query, f"n='{query}'".encode(), SQL_TAGS, single=True)
    client.add(4, b"no tags", SQL_TAGS, single=True)
    called = pa.array([None, [("call", "x")], None, None, []], TAGS)
    both = client.fill(called, ids(1, 2, 4, 9, 5), ids(0, 0, 0, 0, 0))
    assert filled(both) == [[("n", "1")], [("call", "x")], None, None, [("n", "5")]]
    assert filled(client.fill(None, ids(1, 3), ids(0, 0))) == [None, [("n", "3")]]
    assert client.fill(None, ids(3), ids(0)) is None


def test_tags_of_many_queries_are_told_once() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", SQL_TAGS, single=False)
    block = carrier._encoded((("n", "b"),), "utf-8")
    client.add(8, block, registry.dialect("attributes"), single=False)
    client.add(9, block, SQL_TAGS, single=False)
    client.add(10, b"\0\x08qjoule.n\0\0\0\1b", registry.dialect("payload"), single=False)
    for _ in range(2):
        column = client.fill(None, ids(1, 2, 3, 4, 5, 6), ids(7, 0, 8, 9, 2**64 - 1, 10))
        assert filled(column) == [[A], None, [B], None, None, [B]]
    called = pa.array([[], None, [("call", "x")]], TAGS)
    assert filled(client.fill(called, ids(1, 2, 3), ids(7, 7, 7))) == [[A], [A], [("call", "x")]]
    assert client.fill(called, ids(1, 2, 3), ids(0, 0, 0)) is called


def test_a_statements_tags_take_precedence_over_its_connections() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", SQL_TAGS, single=False)
    tags: list[Tags] = [(("n", "c"), ("r", "1")), (("r", "2"),)]
    connections = np.array([0, 0, 1, -1, -1]), tags
    assert filled(client.fill(None, ids(1, 2, 3, 4, 5), ids(7, 0, 7, 7, 0), connections)) == [
        [A, ("r", "1")],
        [("n", "c"), ("r", "1")],
        [A, ("r", "2")],
        [A],
        None,
    ]
    assert client.fill(None, ids(1, 2), ids(0, 0), (np.array([-1, -1]), [])) is None
    assert client.fill(None, ids(), ids()) is None


@pytest.mark.parametrize("is_single", [True, False])
def test_remembered_tags_are_bounded(is_single: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tags, "MAX_QUERIES", 3)
    monkeypatch.setattr(client_tags, "MAX_HASHES", 3)
    client, used = ClientTags(), ClientTags()
    for number in range(1, 11):
        client.add(number, b"n='a'", SQL_TAGS, single=is_single)
        used.add(number, b"n='a'", SQL_TAGS, single=False)
        assert filled(used.fill(None, ids(1), ids(1))) == [[A]], "tags in use are kept"
    every = np.arange(1, 11, dtype=np.uint64)
    column = client.fill(None, every, np.zeros(10, np.uint64) if is_single else every)
    assert filled(column) == [None] * 7 + [[A]] * 3
