# SPDX-License-Identifier: Apache-2.0
"""MySQL's compressed and encrypted sessions: read by symbols, counted on sockets, never guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing import mysql_story as day
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

SESSIONS = 10
AHEAD = 20  #: commands in flight; more would fill both sockets and cause a deadlock
#: `set` has a reply too short to be compressed, so no client here needs zstd.
STATEMENTS = [b"set @m_hidden = %d" % number for number in range(20)]


@pytest.fixture(params=["mariadb", "mysql80", "mysql8033"])
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


def _kinds(server: DatabaseServer) -> tuple[int, ...]:
    """The kinds of sessions; MySQL has zstd since 8.0.18."""
    zstd = server.name == "mysql" and "8.0.33" in str(server.executable)
    return (wire.ZLIB, wire.ZSTD) if zstd else (wire.ZLIB,)


def test_compressed_sessions(server: DatabaseServer, tmp_path: Path) -> None:
    kinds = _kinds(server)
    with both_rungs(tmp_path, server.pid):
        for flags in kinds * SESSIONS:
            with mysql_client(server.socket, flags=flags) as client:
                _talk(client)
            with mysql_client(server.socket) as client:
                client.query(b"set @m_plain = 1")
    socket, symbol = Run(tmp_path / "socket"), Run(tmp_path / "symbol")
    sessions = SESSIONS * len(kinds)
    assert day.marker_counts(socket.queries) == {"m_plain": sessions}
    assert socket.loss == {"opaque_session": sessions}
    expected = Counter(m_plain=sessions, m_hidden=sessions * len(STATEMENTS))
    expected += Counter(m_one=2 * sessions, m_two=2 * sessions)
    assert day.marker_counts(symbol.queries) == expected
    assert symbol.loss == {}


def _talk(client: MysqlClient) -> None:
    for text in STATEMENTS:
        client.query(text)
    one, two = (client.prepare(b"set @m_%s = 1" % name) for name in (b"one", b"two"))
    for statement in (one, two, two, one):
        client.execute(statement)


@pytest.fixture
def open_before(mysql80: DatabaseServer) -> Iterator[tuple[Any, list[MysqlClient]]]:
    with ExitStack() as stack:
        encrypted = stack.enter_context(closing(mysql80.connect(ssl={})))
        clients = [
            stack.enter_context(mysql_client(mysql80.socket, flags=flags))
            for flags in (wire.ZLIB, 0)
        ]
        for client in clients:
            client.query(b"do 1")
        yield encrypted, clients


def test_sessions_that_were_open_before(
    open_before: tuple[Any, list[MysqlClient]], mysql80: DatabaseServer, tmp_path: Path
) -> None:
    """Plain sessions are joined at their next command; hidden ones are recognised and counted."""
    encrypted, (compressed, plain) = open_before
    with recording(tmp_path / "t", "--pid", str(mysql80.pid), "--rung", "socket"):
        for number in range(200):
            with encrypted.cursor() as cursor:
                cursor.execute(f"select {number} as m_encrypted, repeat('x', {number})")
            compressed.query(b"set @m_compressed = %d" % number)
            plain.query(b"select %d as m_plain" % number)
    run = Run(tmp_path / "t")
    assert day.marker_counts(run.queries) == {"m_plain": 200}
    assert run.loss == {"opaque_session": 2}
    assert set(run.queries["text"].dropna()) == {"select ? as m_plain"}


def test_a_client_that_sends_in_pieces(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Byte by byte: a packet is read once it has arrived, never the stale bytes there."""
    with both_rungs(tmp_path, mariadb.pid), mysql_client(port=mariadb.port) as client:
        one = client.prepare(b"select ? as m_first")
        two = client.prepare(b"select ? as m_second")
        # The reply to a preparation is read with the next command. If that command's first byte
        # comes alone and before the server looks for it, the statement's id is not seen
        # (`prepared`).
        client.query(b"select 1 as m_whole")
        client.pause_s = 0.002
        for statement in (one, two, one, two):
            client.execute(statement, 7)
        client.query(b"select 'a', 1 as m_text")
        client.init_db(b"mysql")
        client.query(b"select 1 as m_database")
        client.pause_s = 0
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        expected = {"m_first": 2, "m_second": 2, "m_whole": 1, "m_text": 1, "m_database": 1}
        assert day.marker_counts(run.queries) == expected
        assert run.loss == {}
    databases = Run(tmp_path / "socket").having("m_database")["database"]
    assert list(databases) == ["mysql"]


def test_a_client_that_does_not_wait(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Commands sent before their replies: the server finds the next one without waiting."""
    texts = [b"select %d as m_ahead" % number for number in range(500)]
    texts += [b"set @m_done = 1", b"select * from m_missing"] * 100
    with (
        both_rungs(tmp_path, mariadb.pid),
        mysql_client(mariadb.socket, database="mysql") as client,
    ):
        for first in range(0, len(texts), AHEAD):
            for text in texts[first : first + AHEAD]:
                client.send(wire.COM_QUERY, text)
            for _ in texts[first : first + AHEAD]:
                with suppress(MysqlError):
                    client.results()
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        expected = {"m_ahead": 500, "m_done": 100, "m_missing": 100}
        assert day.marker_counts(run.queries) == expected
        assert set(run.having("m_missing")["status"]) == {"error"}
        assert set(run.having("m_done")["status"]) == {"ok"}
