# SPDX-License-Identifier: Apache-2.0
"""Texts and names that qjoule queries from servers take their places in the stream."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent
from qjoule.servers.client import NamedConnection, NamesBefore, TextsById
from qjoule.servers.mongodb.client import named_connections as operations_named
from qjoule.servers.redis.client import named_connections as clients_named
from qjoule.servers.registry import dialect
from qjoule.stream.before_tracing import OFTEN, PAUSE_NS, NamedStream, Names
from qjoule.stream.blocks import Stream
from qjoule.stream.prepared_texts import WAIT_NS, PreparedTextStream, StatementText

IDS, CQL, BATCHES, SQL = (dialect(name) for name in ("cql-id", "cql", "cql-batch", "mysql"))
BY_ID = TextsById(
    *(IDS, CQL, lambda text, _thread: text or None, "none", "none", "a view"),
    refer=frozenset({BATCHES}),
)


def stream_of(*blocks: bytes) -> Stream:
    return Stream(io.BytesIO(ft.head() + b"".join(blocks) + ft.end(1 << 50)))


# ---- texts of statements -------------------------------------------------------------------------


class TextServer:
    """Answers with its texts, at the first call of `take` after it `answers`."""

    def __init__(self, texts: Mapping[bytes, bytes], *, answers: bool = True) -> None:
        self.kinds = {1: BY_ID}
        self.asked: list[bytes] = []
        self.answers = answers
        self._texts, self._open = texts, list[tuple[int, bytes]]()

    def ask(self, server: int, shape: int, key: bytes) -> None:
        assert server == 1
        self.asked.append(key)
        self._open.append((shape, key))

    def take(self, wait_s: float = 0.0) -> list[StatementText]:
        if not self.answers and not wait_s:
            return []
        answered, self._open = self._open, []
        texts = [(shape, self._texts.get(key, b"")) for shape, key in answered]
        return [StatementText(shape, text, len(text)) for shape, text in texts]


def text(shape: int, content: bytes, *, kind: int = IDS, server: int = 1) -> bytes:
    return ft.text(shape, content, dialect=kind, server=server, statement_bytes=0)


def shown(server: TextServer, *blocks: bytes) -> list[tuple[int, int, bytes]]:
    """(shape, dialect, text) of each text in the stream, in order."""
    frames = [frame for frame in PreparedTextStream(stream_of(*blocks), server) if frame.text]
    return [
        (int(frame.records[0]["shape"]), int(frame.records[0]["dialect"]), frame.text)
        for frame in frames
        if frame.kind is Block.TEXT
    ]


def test_a_statement_is_asked_for_once() -> None:
    server = TextServer({b"a": b"select 1"})
    blocks = text(7, b"a"), ft.flush(1), text(7, b"a"), ft.flush(2)
    assert shown(server, *blocks) == [(7, CQL, b"select 1")] * 2
    assert server.asked == [b"a"]


def test_a_text_waits_for_a_bounded_time_and_no_other_waits_for_it() -> None:
    server = TextServer({b"a": b"select 1"}, answers=False)
    other = text(8, b"select 2", kind=SQL)
    early = shown(server, text(7, b"a"), other, ft.flush(WAIT_NS - 1), ft.flush(WAIT_NS + 1))
    assert early == [(8, SQL, b"select 2"), (7, IDS, b"a")]


def test_texts_that_refer_to_it_wait_with_it() -> None:
    batch = text(9, b"\7" + bytes(7), kind=BATCHES)
    texts = shown(TextServer({b"a": b"select 1"}), text(7, b"a"), batch, ft.flush(1))
    assert texts == [(7, CQL, b"select 1"), (9, BATCHES, b"\7" + bytes(7))]


# ---- names of sessions that were open before -----------------------------------------------------

BY_ADDRESS = NamesBefore("none", "none", "a view")
BY_THREAD = NamesBefore("none", "none", "a view", by_thread=True)
CLIENT = bytes(10) + b"\xff\xff\x0a\x00\x00\x07"  # ::ffff:10.0.0.7
MET, OPEN = SessionEvent.MET, SessionEvent.OPEN


class NameServer:
    """Answers each question with the names that it has by then, if it `answers`."""

    def __init__(
        self, *connections: NamedConnection, kind: NamesBefore = BY_ADDRESS, answers: bool = True
    ) -> None:
        self.named: Mapping[int, NamesBefore] = {1: kind, 2: kind}
        self.connections, self.answers = connections, answers
        self.asked = 0
        self._open = False

    def ask_names(self, server: int) -> None:
        assert server == 1
        self.asked += 1
        self._open = True

    def take_names(self, wait_s: float = 0.0) -> list[Names]:
        if not self._open or not (self.answers or wait_s):
            return []
        self._open = False
        return [Names(1, self.connections)]


def session(number: int, event: SessionEvent, t_ns: int = 1, **fields: Any) -> bytes:
    record: dict[str, Any] = {"session": number, "event": event, "server": 1, "t_ns": t_ns}
    record |= {"pid": 70, "port": 5, "address": list(CLIENT), **fields}
    return ft.block(Block.SESSION, record, t_ns=t_ns)


def given(server: NameServer, *blocks: bytes) -> list[tuple[int, int, int, bytes]]:
    """(session, event, time, text) of each block that brings a name."""
    frames = [frame for frame in NamedStream(stream_of(*blocks), server) if frame.text]
    return [
        (int(frame.records[0]["session"]), int(frame.records[0]["event"]), frame.t_ns, frame.text)
        for frame in frames
    ]


def test_a_session_gets_the_names_of_its_connection_once() -> None:
    server = NameServer(
        NamedConnection("10.0.0.7 5", "app", "shop"), NamedConnection("10.0.0.7 6", "x", "y")
    )
    names = given(server, session(9, MET, 3), ft.flush(4), session(9, MET, 5), ft.flush(6))
    assert names == [(9, SessionEvent.USER, 3, b"app"), (9, SessionEvent.APPLICATION, 3, b"shop")]
    assert server.asked == 1


@pytest.mark.parametrize("port", [5, 0])
def test_a_session_is_known_by_its_thread_and_port(port: int) -> None:
    server = NameServer(
        NamedConnection("70 5", "", "tcp"), NamedConnection("70 0", "", "local"), kind=BY_THREAD
    )
    names = given(server, session(9, MET, port=port), ft.flush(4))
    assert [text for *_, text in names] == [b"tcp" if port else b"local"]


def test_a_session_whose_login_was_seen_keeps_its_own_names() -> None:
    server = NameServer(NamedConnection("10.0.0.7 5", "", "shop"))
    assert not given(server, session(9, OPEN), session(9, MET), ft.flush(PAUSE_NS))
    assert not server.asked
    server = NameServer(NamedConnection("10.0.0.7 5", "", "former"), answers=False)
    assert not given(server, session(9, MET), ft.flush(2), session(10, OPEN, 3), ft.flush(4))


def test_a_session_met_after_the_question_waits_for_the_next() -> None:
    """The connection in the answer may be one that had its address before."""
    server = NameServer(NamedConnection("10.0.0.7 6", "", "shop"), answers=False)
    sessions = session(9, MET, 1), session(10, MET, 2, port=6)
    names = given(server, *sessions, ft.flush(PAUSE_NS // 2), ft.flush(PAUSE_NS))
    assert [text for *_, text in names] == [b"shop"]
    assert server.asked == 2, "the second question comes at the end"


def test_questions_become_rare() -> None:
    server = NameServer()
    blocks = [
        session(at, MET, at * PAUSE_NS, port=at) + ft.flush(at * PAUSE_NS + 1)
        for at in range(1, 300)
    ]
    given(server, *blocks)
    assert OFTEN < server.asked < OFTEN + 10


# ---- answers of servers --------------------------------------------------------------------------


def test_a_client_list_of_redis_is_read() -> None:
    answer = (
        "id=3 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name=shop age=2 user=default\n"
        "id=4 addr=[::1]:4712 fd=9 name=v6 age=2\n"
        "id=5 addr=[::ffff:10.0.0.7]:5 fd=9 name=mapped age=2\n"
        "id=7 addr=127.0.0.1:4713 fd=11 name= age=2\n"
        "id=8 addr=127.0.0.1:x name=bad\n\nnonsense\n"
    )
    assert [(client.key, client.application) for client in clients_named(answer)] == [
        ("127.0.0.1 4711", "shop"),
        ("::1 4712", "v6"),
        ("10.0.0.7 5", "mapped"),
    ]


def test_operations_of_mongodb_are_read() -> None:
    shop = {"desc": "conn5", "client": "10.0.0.7:5", "appName": "shop"}
    user = [{"user": "app", "db": "admin"}, {"user": "other", "db": "admin"}]
    operations: list[dict[str, Any]] = [
        {**shop, "effectiveUsers": user},
        {"desc": "conn6", "client": "[::1]:6", "effectiveUsers": user},
        {"desc": "conn7", "client": "anonymous unix socket", "appName": "local"},
        {"desc": 9, "client": None, "appName": ["x"], "effectiveUsers": [3]},
    ]
    assert list(operations_named(operations)) == [
        NamedConnection("10.0.0.7 5", "app", "shop"),
        NamedConnection("conn5", "app", "shop"),
        NamedConnection("::1 6", "app", ""),
        NamedConnection("conn6", "app", ""),
        NamedConnection("conn7", "", "local"),
    ]
