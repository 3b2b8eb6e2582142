# SPDX-License-Identifier: Apache-2.0
"""Texts that servers are asked for take the place of what stands for their statements."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent
from qjoule.servers.registry import dialect
from qjoule.servers.texts_by_id import TextsById
from qjoule.stream.answers import MAX_ASKED, WAIT_NS, Answer, AnsweredStream
from qjoule.stream.blocks import Stream, encode_block

IDS, CQL, BATCHES, SQL = (dialect(name) for name in ("cql-id", "cql", "cql-batch", "mysql"))
KIND = TextsById(
    *(IDS, CQL, lambda text, _thread: text or None, "none", "none", "a view"),
    refer=frozenset({BATCHES}),
)


class Server:
    """Answers with its texts, at the first call of `take` after it `answers`."""

    def __init__(self, texts: Mapping[bytes, bytes], *, answers: bool = True) -> None:
        self.kinds = {1: KIND}
        self.asked: list[bytes] = []
        self.answers = answers
        self._texts, self._shapes = texts, list[tuple[int, bytes]]()

    def ask(self, server: int, shape: int, key: bytes) -> None:
        assert server == 1
        self.asked.append(key)
        self._shapes.append((shape, key))

    def take(self, wait_s: float = 0.0) -> list[Answer]:
        if not self.answers and not wait_s:
            return []
        found, self._shapes = self._shapes, []
        texts = [self._texts.get(key, b"") for _, key in found]
        return [
            Answer(shape, text, len(text)) for (shape, _), text in zip(found, texts, strict=True)
        ]


def text(shape: int, words: bytes, *, kind: int = IDS, server: int = 1) -> bytes:
    record = {"shape": shape, "dialect": kind, "server": server, "text_bytes": len(words)}
    return encode_block(Block.TEXT, ft.records(Block.TEXT, [record]), text=words)


def flush(t_ns: int) -> bytes:
    return encode_block(Block.FLUSH, t_ns=t_ns)


def shown(server: Any, *blocks: bytes) -> list[tuple[int, int, bytes]]:
    """(shape, dialect, text) of each text in the stream, in order."""
    stream = AnsweredStream(Stream(io.BytesIO(ft.head() + b"".join(blocks))), server)
    frames = [frame for frame in stream if frame.kind is Block.TEXT]
    return [
        (int(frame.records[0]["shape"]), int(frame.records[0]["dialect"]), frame.text)
        for frame in frames
    ]


def test_a_statement_is_asked_for_once() -> None:
    server = Server({b"a": b"select 1"})
    found = shown(server, text(7, b"a"), flush(1), text(7, b"a"), flush(2))
    assert found == [(7, CQL, b"select 1")] * 2
    assert server.asked == [b"a"]


def test_what_the_server_does_not_know_stays() -> None:
    server = Server({})
    assert shown(server, text(7, b"a"), flush(1)) == [(7, IDS, b"a")]
    assert shown(Server({}), text(7, b""), flush(1)) == [(7, IDS, b"")], "nothing to ask for"


def test_a_text_waits_only_so_long_and_nothing_waits_for_it() -> None:
    server = Server({b"a": b"select 1"}, answers=False)
    other = text(8, b"select 2", kind=SQL)
    early = shown(server, text(7, b"a"), other, flush(WAIT_NS - 1), flush(WAIT_NS + 1))
    assert early == [(8, SQL, b"select 2"), (7, IDS, b"a")]


def test_texts_that_refer_to_it_wait_with_it() -> None:
    batch = text(9, b"\7" + bytes(7), kind=BATCHES)
    found = shown(Server({b"a": b"select 1"}), text(7, b"a"), batch, flush(1))
    assert found == [(7, CQL, b"select 1"), (9, BATCHES, b"\7" + bytes(7))]


def test_other_servers_and_languages_pass() -> None:
    server = Server({})
    blocks = text(7, b"a", server=2), text(8, b"select 2", kind=SQL)
    assert shown(server, *blocks) == [(7, IDS, b"a"), (8, SQL, b"select 2")]
    assert server.asked == []


def test_a_stream_that_is_cut_off_loses_nothing() -> None:
    server = Server({b"a": b"select 1"}, answers=False)
    assert shown(server, text(7, b"a")) == [(7, IDS, b"a")]


def test_the_number_of_questions_is_bounded() -> None:
    server = Server({}, answers=False)
    blocks = (text(shape, b"%d" % shape) for shape in range(1, MAX_ASKED + 10))
    assert len(shown(server, *blocks)) == MAX_ASKED + 9
    assert len(server.asked) == MAX_ASKED


def test_a_session_may_be_told_after_its_statement() -> None:
    """Its thread names the statement together with the number."""

    def key(words: bytes, thread: int) -> bytes:
        return b"%d %s" % (thread, words[8:])

    server = Server({b"4711 a": b"select 1"})
    server.kinds = {1: replace(KIND, key=key, by_thread=True)}
    record = {"session": 5, "pid": 4711, "event": SessionEvent.MET}
    session = encode_block(Block.SESSION, ft.records(Block.SESSION, [record]))
    statement = text(7, b"\5" + bytes(7) + b"a")
    assert shown(server, statement, flush(1), session, flush(2)) == [(7, CQL, b"select 1")]
    assert server.asked == [b"4711 a"]
