# SPDX-License-Identifier: Apache-2.0
"""User and database of a session over time."""

from __future__ import annotations

import io
import struct
from ipaddress import IPv6Address
from typing import Any

import numpy as np
import pytest

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.stream import sessions as module
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.sessions import Sessions
from qjoule.stream.statements import Statements

FLAGS = 0x200 | 0x8 | 0x8000  # PROTOCOL_41, CONNECT_WITH_DB, SECURE_CONNECTION
LOGIN = struct.pack("<IIB23x", FLAGS, 1 << 24, 45) + b"alice\0\0shop\0"


def event(kind: SessionEvent, t_ns: int, text: bytes = b"", session: int = 7) -> bytes:
    record = {
        "session": session,
        "t_ns": t_ns,
        "text_bytes": len(text),
        "event": kind,
        "server_kind": registry.kind_of("mysql"),
    }
    return ft.block(Block.SESSION, record, text=text)


def told(*events: bytes) -> Sessions:
    sessions = Sessions()
    for frame in Stream(io.BytesIO(ft.head() + b"".join(events))):
        if frame.kind is Block.SESSION:
            assert sessions.add(frame)
    return sessions


def at(sessions: Sessions, *times: int, session: int = 7) -> list[tuple[str | None, str | None]]:
    many = np.full(len(times), session, np.uint64)
    users, databases, _ = sessions.names_of(many, np.array(times, np.uint64))
    return list(zip(users.to_pylist(), databases.to_pylist(), strict=True))


def test_a_database_holds_from_its_change_on() -> None:
    sessions = told(
        event(SessionEvent.OPEN, 10, LOGIN),
        event(SessionEvent.DATABASE, 20, b"books"),
    )
    sessions.use(7, 30, "games")
    assert at(sessions, 15, 19, 20, 29, 30, 99) == [
        ("alice", "shop"),
        ("alice", "shop"),
        ("alice", "books"),
        ("alice", "books"),
        ("alice", "games"),
        ("alice", "games"),
    ]


def test_a_change_that_was_refused_did_not_happen() -> None:
    """In whatever order the events come: each CPU sends its own."""
    events = [
        event(SessionEvent.OPEN, 10, LOGIN),
        event(SessionEvent.DATABASE, 20, b"books"),
        event(SessionEvent.DATABASE, 30, b"missing"),
        event(SessionEvent.KEPT, 31),
    ]
    for order in ((0, 1, 2, 3), (0, 3, 2, 1), (1, 2, 3, 0), (3, 1, 0, 2)):
        sessions = told(*(events[i] for i in order))
        assert at(sessions, 25, 30, 40)[::2] == [("alice", "books"), ("alice", "books")]


def test_a_refusal_that_has_been_settled_still_is_one() -> None:
    sessions = told(
        event(SessionEvent.OPEN, 10, LOGIN),
        event(SessionEvent.DATABASE, 20, b"books"),
        event(SessionEvent.DATABASE, 30, b"missing"),
        event(SessionEvent.KEPT, 31),
        event(SessionEvent.KEPT, 32),
    )
    for now_ns in (25, 30, 31, 40, 50, 31 + module.REFUSAL_NS, 40 + module.REFUSAL_NS):
        sessions.settle(now_ns)
        assert at(sessions, 60 + module.REFUSAL_NS) == [("alice", "books")]
    assert not sessions._sessions[7].changes


def test_change_user_changes_both() -> None:
    command = b"bob\0" + b"\x02xy" + b"stock\0" + struct.pack("<H", 45) + b"plugin\0"
    sessions = told(
        event(SessionEvent.OPEN, 10, LOGIN),
        event(SessionEvent.USER, 20, command),
        event(SessionEvent.USER, 30, b"carol\0\0\0"),
    )
    assert at(sessions, 15, 25, 35) == [("alice", "shop"), ("bob", "stock"), ("carol", None)]


def test_a_session_that_was_open_before_has_only_what_it_changed() -> None:
    sessions = told(event(SessionEvent.DATABASE, 20, b"books"))
    assert at(sessions, 10, 20) == [(None, None), (None, "books")]
    assert at(sessions, 10, session=8) == [(None, None)]


def test_settled_changes_are_kept_as_the_state() -> None:
    sessions = told(event(SessionEvent.OPEN, 0, LOGIN))
    for t_ns in range(1, 1000):
        sessions.use(7, t_ns, f"d{t_ns}")
    sessions.settle(500)
    late = module.REFUSAL_NS + 2000
    assert at(sessions, 700, late) == [("alice", "d700"), ("alice", "d999")]
    sessions.settle(late)
    assert at(sessions, late) == [("alice", "d999")]
    assert not sessions._sessions[7].changes, "nothing is held for a session that changes no more"


def test_changes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHANGES", 10)
    sessions = Sessions()
    for t_ns in range(100):
        sessions.use(7, t_ns, "d")
        assert len(sessions._sessions[7].changes) <= 10


def met(t_ns: int, port: int) -> bytes:
    here = np.frombuffer(IPv6Address("::ffff:127.0.0.1").packed, np.uint8)
    ends = {"address": here, "port": port, "server_address": here, "server_port": 3306}
    record = {"session": 7, "event": SessionEvent.MET, "t_ns": t_ns, **ends}
    return ft.block(Block.SESSION, record)


def test_a_session_s_id_may_serve_a_later_connection() -> None:
    """The server gives it the same address; its earlier queries may still arrive."""

    def ports(*times: int) -> list[int | None]:
        codes, named = sessions.connections(np.full(len(times), 7, np.uint64), np.array(times))
        ends = [named[code] for code in codes.tolist()]
        return [int(name.split()[1]) if name else None for name in ends]

    sessions = told(met(10, 1001), met(30, 1003), met(20, 1002), met(21, 1002))
    assert ports(5, 10, 19, 20, 29, 30, 99) == [1001, 1001, 1001, 1002, 1002, 1003, 1003]
    sessions.settle(25)
    assert ports(24, 29, 30) == [1002, 1002, 1003]
    sessions.settle(40)
    assert ports(41) == [1003]
    codes, named = sessions.connections(np.array([7, 8], np.uint64), np.array([50, 50]))
    assert [named[code] is None for code in codes.tolist()] == [False, True]


def test_addresses() -> None:
    sessions = Sessions()
    for text in ("::ffff:192.0.2.7", "2001:db8::1", "::"):
        record: dict[str, Any] = {"session": 1, "event": SessionEvent.OPEN, "t_ns": 1}
        record["address"] = np.frombuffer(IPv6Address(text).packed, np.uint8)
        (frame,) = (
            frame
            for frame in Stream(io.BytesIO(ft.head() + ft.block(Block.SESSION, record)))
            if frame.kind is Block.SESSION
        )
        sessions.add(frame)
    found = sessions.take_rows().column("address").to_pylist()
    assert found == ["192.0.2.7", "2001:db8::1", None]


@pytest.mark.parametrize(
    ("statement", "database"),
    [
        (b"use shop", "shop"),
        (b"/* app */ USE `my shop`;", "my shop"),
        (b"select 1; use `a``b`", "a`b"),
        (b"use shop; select 1", None),
        (b"use 1st", None),
    ],
)
def test_statements_that_change_the_database(statement: bytes, database: str | None) -> None:
    statements = Statements(fingerprint)
    statements.add(text(statement))
    assert statements.databases == {1: database}


@pytest.mark.parametrize(
    "statement",
    [b"select '; use shop'", b"user shop", b"select `; use x`", b"prepare p from 'use x'"],
)
def test_statements_that_do_not(statement: bytes) -> None:
    statements = Statements(fingerprint)
    statements.add(text(statement))
    assert not any(statements.databases.values())


def text(statement: bytes) -> Frame:
    stream = ft.head() + ft.text(1, statement)
    return next(frame for frame in Stream(io.BytesIO(stream)) if frame.kind is Block.TEXT)


def postgres_event(
    kind: SessionEvent, t_ns: int, text: bytes = b"", server: int = registry.kind_of("postgres")
) -> bytes:
    record = {"session": 7, "t_ns": t_ns, "text_bytes": len(text), "event": kind}
    record["server_kind"] = server
    return ft.block(Block.SESSION, record, text=text)


def applications(sessions: Sessions, *times: int) -> list[str | None]:
    many = np.full(len(times), 7, np.uint64)
    _, _, found = sessions.names_of(many, np.array(times, np.uint64))
    names: list[str | None] = found.to_pylist()
    return names


STARTUP = b"\0\0\0\x40\0\x03\0\0user\0alice\0application_name\0shop\0\0"


def test_an_application_may_be_called_otherwise_later() -> None:
    """Poolers do that with a connection that serves another application."""
    sessions = told(
        postgres_event(SessionEvent.OPEN, 10, STARTUP),
        postgres_event(SessionEvent.SETS, 20, b"set application_name = 'games'"),
        postgres_event(SessionEvent.SETS, 30, b"set search_path to a"),
        postgres_event(SessionEvent.SETS, 40, b"set application_name = 'refused'"),
        postgres_event(SessionEvent.KEPT, 41),
        postgres_event(SessionEvent.SETS, 50, b"DISCARD ALL"),
        postgres_event(SessionEvent.SETS, 60, b"set application_name = ''"),
    )
    expected = ["shop", "games", "games", "games", "shop", "shop"]
    assert applications(sessions, 15, 25, 35, 45, 55, 65)[:5] == expected[:5]
    assert at(sessions, 65) == [("alice", "alice")]
    sessions.settle(1 << 40)
    assert at(sessions, 1 << 41) == [("alice", "alice")]


def test_an_application_is_called_what_the_servers_memory_says() -> None:
    sessions = told(
        postgres_event(SessionEvent.MET, 10),
        postgres_event(SessionEvent.APPLICATION, 11, b"shop\x1b[2J"),
        postgres_event(SessionEvent.APPLICATION, 20, b"x" * 64),
        postgres_event(SessionEvent.APPLICATION, 30),
    )
    assert applications(sessions, 10, 15, 25, 35) == [None, "shop?[2J", "x" * 63, None]
    rows = sessions.take_rows().to_pylist()
    assert [row["application"] for row in rows] == [None, "shop?[2J", "x" * 63, None]


def test_a_session_that_was_open_before_is_named_by_its_processs_title() -> None:
    sessions = told(
        postgres_event(SessionEvent.MET, 10),
        postgres_event(SessionEvent.USER, 10, b"bob\0games\0"),
        postgres_event(SessionEvent.SETS, 20, b"set application_name to lotto"),
    )
    assert at(sessions, 9, 10, 30) == [(None, None), ("bob", "games"), ("bob", "games")]
    assert applications(sessions, 15, 30) == [None, "lotto"]
    sessions = told(postgres_event(SessionEvent.USER, 10, b"bob\0cut off"))
    assert at(sessions, 10) == [("bob", None)]


def named(t_ns: int, name: bytes) -> bytes:
    return postgres_event(SessionEvent.APPLICATION, t_ns, name, registry.kind_of("redis"))


def test_a_redis_client_is_called_what_its_server_takes_for_a_name() -> None:
    refused = (b"a b", b"\n", b"caf\xc3\xa9", b"\x7f", b"\0")
    sessions = told(
        named(10, b"job=night%20ly,release=1"),
        *(named(20 + n, name) for n, name in enumerate(refused)),
        named(30, b"!" + b"~" * 255),
        named(40, b""),
    )
    expected = [None, "job=night%20ly,release=1", "job=night%20ly,release=1", "!" + "~" * 255, None]
    assert applications(sessions, 9, 10, 29, 30, 40) == expected
    rows = sessions.take_rows().to_pylist()
    assert [(row["t_ns"], row["application"]) for row in rows] == [
        (10, "job=night%20ly,release=1"),
        (30, "!" + "~" * 255),
        (40, None),
    ]
    whose = np.full(2, 7, np.uint64), np.array([10, 30], np.uint64)
    _, _, names = sessions.names_of(*whose)
    found = sessions.tags_of(*whose, names)
    assert found is not None
    codes, tags = found
    assert [tags[code] for code in codes] == [(("job", "night ly"), ("release", "1")), ()]
