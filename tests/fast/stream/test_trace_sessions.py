# SPDX-License-Identifier: Apache-2.0
"""User, database, application, tags and connection of a session over time."""

from __future__ import annotations

import io
import struct
from ipaddress import IPv6Address
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.servers.decoding_types import RESET, Startup
from qjoule.servers.mysql.wire import change_user, login
from qjoule.servers.postgres.wire import application_set, first_message
from qjoule.stream import sessions as module
from qjoule.stream.blocks import Stream
from qjoule.stream.sessions import Sessions
from qjoule.stream.statements import Statements

#: PROTOCOL_41, CONNECT_WITH_DB, SECURE_CONNECTION; and PLUGIN_AUTH, CONNECT_ATTRS.
FLAGS, WITH_ATTRIBUTES = 0x200 | 0x8 | 0x8000, 1 << 19 | 1 << 20
LOGIN = struct.pack("<IIB23x", FLAGS, 1 << 24, 45) + b"alice\0\0shop\0"
STARTUP = b"\0\0\0\x40\0\x03\0\0user\0alice\0application_name\0shop\0\0"
OPEN, DATABASE, USER = SessionEvent.OPEN, SessionEvent.DATABASE, SessionEvent.USER
KEPT, MET = SessionEvent.KEPT, SessionEvent.MET
SETS, APPLICATION = SessionEvent.SETS, SessionEvent.APPLICATION
Event = tuple[SessionEvent, int, bytes]  #: kind, time and text


def block(kind: SessionEvent, t_ns: int, text: bytes = b"", **fields: Any) -> bytes:
    record = {"session": 7, "t_ns": t_ns, "text_bytes": len(text), "event": kind} | fields
    return ft.block(Block.SESSION, record, text=text)


def sessions_after(*blocks: bytes) -> Sessions:
    sessions = Sessions()
    for frame in Stream(io.BytesIO(ft.head() + b"".join(blocks))):
        if frame.kind is Block.SESSION:
            assert sessions.add(frame)
    return sessions


def sessions_of(*events: Event, server: str = "mysql") -> Sessions:
    kind = registry.kind_of(server)
    return sessions_after(*(block(*event, server_kind=kind) for event in events))


def who(*times: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    return np.full(len(times), 7, np.uint64), np.array(times, np.uint64)


def at(sessions: Sessions, *times: int) -> list[tuple[str | None, str | None]]:
    """User and database at these times."""
    users, databases, _ = sessions.names_of(*who(*times))
    return list(zip(users.to_list(), databases.to_list(), strict=True))


def applications(sessions: Sessions, *times: int) -> list[str | None]:
    names: list[str | None] = sessions.names_of(*who(*times))[2].to_list()
    return names


def tags(sessions: Sessions, *times: int) -> list[dict[str, str]]:
    of_sessions = sessions.tags_of(*who(*times), sessions.names_of(*who(*times))[2])
    if of_sessions is None:
        return [{}] * len(times)
    codes, sets = of_sessions
    return [dict(sets[code]) if code >= 0 else {} for code in codes.tolist()]


def test_a_database_holds_from_its_change_on() -> None:
    sessions = sessions_of((OPEN, 10, LOGIN), (DATABASE, 20, b"books"))
    sessions.use(7, 30, "games")
    expected = ["shop", "shop", "books", "books", "games", "games"]
    assert at(sessions, 15, 19, 20, 29, 30, 99) == [("alice", name) for name in expected]


def test_a_change_that_was_refused_did_not_happen() -> None:
    """In whatever order the events come: each CPU sends its own."""
    events = [(OPEN, 10, LOGIN), (DATABASE, 20, b"books"), (DATABASE, 30, b"missing")]
    for order in permutations([*events, (KEPT, 31, b"")]):
        assert at(sessions_of(*order), 25, 40) == [("alice", "books"), ("alice", "books")]


def test_a_refusal_that_has_been_settled_still_is_one() -> None:
    events = [(OPEN, 10, LOGIN), (DATABASE, 20, b"books"), (DATABASE, 30, b"missing")]
    sessions = sessions_of(*events, (KEPT, 31, b""), (KEPT, 32, b""))
    for now_ns in (25, 30, 31, 40, 50, 31 + module.REFUSAL_NS, 40 + module.REFUSAL_NS):
        sessions.settle(now_ns)
        assert at(sessions, 60 + module.REFUSAL_NS) == [("alice", "books")]
    assert not sessions._sessions[7].changes


def test_change_user_changes_user_and_database() -> None:
    command = b"bob\0" + b"\x02xy" + b"stock\0" + struct.pack("<H", 45) + b"plugin\0"
    sessions = sessions_of((OPEN, 10, LOGIN), (USER, 20, command), (USER, 30, b"carol\0\0\0"))
    assert at(sessions, 15, 25, 35) == [("alice", "shop"), ("bob", "stock"), ("carol", None)]


def test_a_session_s_id_may_serve_a_later_connection() -> None:
    """The server gives it the same address; its earlier queries may still arrive."""
    here = np.frombuffer(IPv6Address("::ffff:127.0.0.1").packed, np.uint8)
    ends: dict[str, Any] = {"address": here, "server_address": here, "server_port": 3306}
    met = ((10, 1001), (30, 1003), (20, 1002), (21, 1002))
    sessions = sessions_after(*(block(MET, t_ns, port=port, **ends) for t_ns, port in met))

    def ports(*times: int) -> list[int | None]:
        codes, named = sessions.connections(*who(*times))
        names = [named[code] for code in codes.tolist()]
        return [int(name.split()[1]) if name else None for name in names]

    assert ports(5, 10, 19, 20, 29, 30, 99) == [1001, 1001, 1001, 1002, 1002, 1003, 1003]
    sessions.settle(25)
    assert ports(24, 29, 30) == [1002, 1002, 1003]
    sessions.settle(40)
    assert ports(41) == [1003]
    codes, named = sessions.connections(np.array([7, 8], np.uint64), np.array([50, 50]))
    assert [named[code] is None for code in codes.tolist()] == [False, True]


@pytest.mark.parametrize(
    ("statement", "database"),
    [
        (b"/* app */ USE `my shop`;", "my shop"),
        (b"select 1; use `a``b`", "a`b"),
        (b"use shop; select 1", None),
        (b"select '; use shop'", None),
        (b"select `; use x`", None),
    ],
)
def test_statements_that_change_the_database(statement: bytes, database: str | None) -> None:
    statements = Statements(fingerprint)
    for frame in Stream(io.BytesIO(ft.head() + ft.text(1, statement))):
        if frame.kind is Block.TEXT:
            statements.add(frame)
    assert statements.databases.get(1) == database


# ---- names of applications -----------------------------------------------------------------------


def test_an_application_may_be_called_otherwise_later() -> None:
    """Poolers do that with a connection that serves another application."""
    sessions = sessions_of(
        (OPEN, 10, STARTUP),
        (SETS, 20, b"set application_name = 'games'"),
        (SETS, 30, b"set search_path to a"),
        (SETS, 40, b"set application_name = 'refused'"),
        (KEPT, 41, b""),
        (SETS, 50, b"DISCARD ALL"),
        server="postgres",
    )
    assert applications(sessions, 15, 25, 35, 45, 55) == ["shop", "games", "games", "games", "shop"]
    assert at(sessions, 65) == [("alice", "alice")]
    sessions.settle(1 << 40)
    assert at(sessions, 1 << 41) == [("alice", "alice")]


def test_a_session_that_was_open_before_is_named_by_its_processs_title() -> None:
    events = [(MET, 10, b""), (USER, 10, b"bob\0games\0"), (SETS, 20, b"set application_name to b")]
    sessions = sessions_of(*events, server="postgres")
    assert at(sessions, 9, 10, 30) == [(None, None), ("bob", "games"), ("bob", "games")]
    assert applications(sessions, 15, 30) == [None, "b"]
    assert at(sessions_of((USER, 10, b"bob\0cut off"), server="postgres"), 10) == [("bob", None)]


# ---- tags of connections -------------------------------------------------------------------------


def attributes(release: str) -> bytes:
    pairs = [b"_pid", b"7", b"qjoule.release", release.encode()]
    strings = b"".join(bytes([len(string)]) + string for string in pairs)
    return bytes([len(strings)]) + strings


def test_a_connections_attributes_hold_until_another_login() -> None:
    names = b"alice\0\0shop\0mysql_native_password\0"
    login = struct.pack("<IIB23x", FLAGS | WITH_ATTRIBUTES, 1 << 24, 45) + names + attributes("1")
    change = b"bob\0\0books\0" + b"\x2d\0" + b"mysql_native_password\0"
    sessions = sessions_of(
        (OPEN, 10, login),
        (DATABASE, 15, b"books"),
        (USER, 20, change + attributes("2")),
        (USER, 30, change + attributes("refused")),
        (KEPT, 31, b""),
        (USER, 40, change),
        (USER, 50, change + attributes("3")),
    )
    releases = [
        session_tags.get("release") for session_tags in tags(sessions, 11, 16, 21, 29, 35, 45, 55)
    ]
    assert releases == ["1", "1", "2", "2", "2", None, "3"]
    sessions.settle(1 << 40)
    assert tags(sessions, 1 << 41) == [{"release": "3"}]


# ---- messages that begin or change a session -----------------------------------------------------

PROTOCOL_41, CONNECT_WITH_DB, SECURE = 0x200, 0x8, 0x8000
PLUGIN, ATTRS, LENENC = 0x80000, 0x100000, 0x200000
PROGRAM = b"\x0cprogram_name\x05mysql"
TAGS = PROGRAM + b"\x0eqjoule.release\x031.4" + b"\x08qjoule.k\x01v"
PASSWORD = b"\x14" + bytes(20)


def mysql(flags: int, tail: bytes) -> bytes:
    return struct.pack("<IIB", flags | PROTOCOL_41, 1 << 24, 45) + bytes(23) + tail


def sized(block: bytes, size: int | None = None) -> bytes:
    return bytes([len(block) if size is None else size]) + block


def postgres(*pairs: bytes, code: int = 3 << 16) -> bytes:
    body = struct.pack(">I", code) + b"".join(pair + b"\0" for pair in pairs) + b"\0"
    return struct.pack(">I", len(body) + 4) + body


MYSQL_LOGIN = mysql(
    CONNECT_WITH_DB | SECURE | PLUGIN | ATTRS | LENENC,
    b"alice\0" + PASSWORD + b"shop\0mysql_native_password\0" + sized(PROGRAM),
)
CHANGE = b"bob\0" + b"\x03xyz" + b"stock\0" + struct.pack("<H", 45) + b"plugin\0" + sized(PROGRAM)
OLD_LOGIN = struct.pack("<H", CONNECT_WITH_DB) + b"\0\0\0" + b"old\0pw\0base\0"
CAROL = (b"user", b"carol", b"database", b"books")


@pytest.mark.parametrize(
    ("message", "startup"),
    [
        (MYSQL_LOGIN, Startup("alice", "shop", "mysql")),
        (mysql(SECURE, b"bob\0\x00"), Startup("bob", None)),
        (OLD_LOGIN, Startup("old", "base")),  # before 4.1
        (mysql(LENENC, b"eve\0" + b"\xfe" + b"\xff" * 8), Startup("eve")),  # a false length
    ],
)
def test_logins_of_mysql(message: bytes, startup: Startup) -> None:
    assert login(message) == startup


@pytest.mark.parametrize(
    ("message", "startup"),
    [
        (postgres(*CAROL, b"application_name", b"psql"), Startup("carol", "books", "psql")),
        (postgres(b"user", b"carol"), Startup("carol", "carol")),
        (postgres(*CAROL)[:-4], Startup("carol", None)),
        (postgres(code=80877103), Startup()),  # a request for TLS
    ],
)
def test_first_messages_of_postgresql(message: bytes, startup: Startup) -> None:
    assert first_message(message) == startup


def test_every_cut_of_a_message_is_parsed_as_far_as_it_goes() -> None:
    assert change_user(CHANGE) == Startup("bob", "stock", "mysql")
    for size in range(len(MYSQL_LOGIN)):
        startup = login(MYSQL_LOGIN[:size])
        assert startup.user in (None, "alice") and startup.database in (None, "shop")
    for size in range(len(CHANGE)):
        startup = change_user(CHANGE[:size])
        assert startup.user in (None, "bob") and startup.database in (None, "stock")


def test_tags_of_mysqls_attributes_are_all_there_or_none() -> None:
    message = mysql(ATTRS, b"alice\0\0" + sized(TAGS))
    assert login(message).tags == (("k", "v"), ("release", "1.4"))
    for size in range(len(message)):
        assert login(message[:size]).tags == ()
    odd = mysql(ATTRS, b"alice\0\0" + sized(TAGS, len(TAGS) - 3))
    assert login(odd).tags == (("release", "1.4"),)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (b"set application_name = 'shop'", "shop"),
        (b"SET Application_Name='o''clock' ;", "o'clock"),
        (b"set session application_name to shop", "shop"),
        (b"SET client_encoding='UTF8';SET application_name='shop';", "shop"),
        (b"set application_name = 'a'; set application_name = 'b'", "b"),
        (b"set application_name='a'; reset all", RESET),
        (b"set application_name = default", RESET),
        (b"DISCARD ALL", RESET),
        (b"set application_name = 'sch\xc3\xb6n\x1b[2J'", "sch??n?[2J"),
        (b"set application_name = '" + b"x" * 90 + b"'", "x" * 63),
        # Not for the session, of another parameter, or cut off.
        (b"set local application_name = 'shop'", None),
        (b"set application_names = 'shop'", None),
        (b"discard plans", None),
        (b"set application_name = 'cut off", None),
        (b"set application_name = E'a\\'b'", None),
        (b"", None),
    ],
)
def test_statements_that_name_their_application(statement: bytes, name: str | None) -> None:
    assert application_set(statement) == name
