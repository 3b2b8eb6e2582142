# SPDX-License-Identifier: Apache-2.0
"""Users and databases on MySQL's symbol rung: over TLS, in a pool, compared with the
server's list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from qjoule_drivers import tag
from servers.process import DatabaseServer
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

USERS = ("m_alice", "m_bob")
DATABASES = ("m_books", "m_games")
CLIENTS = 6
AGAIN = 15  #: connections, one after another: the server gives each the address of the last
Named = tuple[str, str | None, str | None]

SERVERS = ("mariadb_pool", "mysql80", "mysql8033")  #: test_mysql_commands.py has a plain MariaDB


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    found: DatabaseServer = request.getfixturevalue(request.param)
    _set_up(found)
    return found


def _set_up(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for database in DATABASES:
            cursor.execute(f"drop database if exists {database}")
            cursor.execute(f"create database {database}")
        cursor.execute("create procedure m_games.m_inside() begin select 1; end")
        for user in USERS:
            cursor.execute(f"drop user if exists {user}")
            cursor.execute(f"create user {user} identified with mysql_native_password")
            cursor.execute(f"grant all on *.* to {user}")


class _Asked:
    """The server's view of each session at each step; a step's name is in its statement."""

    def __init__(self) -> None:
        self.said: set[Named] = set()
        self._steps = 0

    def ask(self, connection: Any) -> None:
        self._steps += 1
        step = f"m_step_{self._steps}"
        with connection.cursor() as cursor:
            cursor.execute(
                f"select user, db, 1 as {step} from information_schema.processlist"
                " where id = connection_id()"
            )
            ((user, database, _),) = cursor.fetchall()
        self.said.add((step, user, database))


def _one_session(asked: _Asked, connection: Any, other: str) -> Iterator[None]:
    """A session's life, one step at a time."""
    asked.ask(connection)
    yield
    connection.select_db(other)
    asked.ask(connection)
    yield
    with suppress(pymysql.Error):
        connection.select_db("m_none")
    asked.ask(connection)
    with suppress(pymysql.Error):
        connection.query("use m_none")
    asked.ask(connection)
    yield
    connection.query("use m_books")
    asked.ask(connection)
    yield
    connection.query("call m_games.m_inside()")
    asked.ask(connection)


def _named(run: Run, prefix: str) -> set[Named]:
    marked = run.having(prefix)
    steps = marked["text"].str.extract(rf"({prefix}\w*)")[0]
    names = zip(steps, marked["user"], marked["database"], strict=True)
    return {
        (step, *(name if isinstance(name, str) else None for name in rest)) for step, *rest in names
    }


def _change_user(client: MysqlClient, user: bytes, database: bytes, marker: bytes) -> None:
    with suppress(MysqlError):
        client.change_user(user, database)
    with suppress(MysqlError, OSError):  # MySQL closes a session that was refused
        client.query(b"select 1 as " + marker)


def _change_users(server: DatabaseServer) -> None:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(mysql_client(server.socket, database="m_books")) for _ in range(3)
        ]
        for client in clients:
            _change_user(client, b"m_alice", b"m_games", b"m_to_alice")
            _change_user(client, b"m_bob", b"", b"m_to_bob")
            client.init_db(b"m_books")
            client.query(b"select 1 as m_bob_in_books")
        _change_user(clients[0], b"m_nobody", b"m_games", b"m_refused_user")
        _change_user(clients[1], b"m_alice", b"m_none", b"m_refused_database")


def _check_changes(run: Run) -> None:
    assert _named(run, "m_to_") | _named(run, "m_bob_") == {
        ("m_to_alice", "m_alice", "m_games"),
        ("m_to_bob", "m_bob", None),
        ("m_bob_in_books", "m_bob", "m_books"),
    }
    # If the session continues, it is either unchanged or nobody's.
    assert _named(run, "m_refused_") <= {
        ("m_refused_user", "m_bob", "m_books"),
        ("m_refused_database", None, None),
    }


def test_names_are_those_that_the_server_lists(server: DatabaseServer, tmp_path: Path) -> None:
    """Sessions one after another, so that their threads and the addresses of their states are
    reused.
    """
    asked = _Asked()
    secure: dict[str, Any] = {"ssl": {}} if server.name == "mysql" else {}

    def connection(number: int) -> Any:
        user, database = USERS[number % 2], (*DATABASES, None)[number % 3]
        return closing(server.connect(user=user, database=database, **secure))

    with ExitStack() as stack:
        before = stack.enter_context(closing(server.connect()))
        with recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol"):
            lives = [
                _one_session(asked, stack.enter_context(connection(number)), DATABASES[number % 2])
                for number in range(CLIENTS)
            ]
            while lives:
                lives = [life for life in lives if next(life, lives) is None]
            for number in range(AGAIN):
                with connection(number) as again:
                    asked.ask(again)
            _change_users(server)
            with before.cursor() as cursor:
                cursor.execute("select 1 as m_before")
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert _named(run, "m_step_") == asked.said
    assert _named(run, "m_before") == {("m_before", "root", None)}
    _check_changes(run)
    _check_attributed(tmp_path / "t", Counter(user for _, user, _ in asked.said))


def _check_attributed(trace: Path, by_user: Counter[str | None]) -> None:
    calls = Counter[str | None]()
    for row in attribute(trace, "--by", "user,fingerprint")["rows"]:
        if "m_step_" in (row["shape"] or ""):
            calls[row["user"]] += row["calls"]
    assert calls == by_user
    assert by_user.keys() == set(USERS)


def test_tags_of_sessions_that_symbols_read(
    server: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    """Also for consecutive connections to which the server gives the same address."""
    with (
        recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol"),
        ExitStack() as stack,
    ):
        kept = [stack.enter_context(closing(server.connect(tcp=n % 2 == 0))) for n in range(4)]
        for turn in range(AGAIN):
            with closing(server.connect(tcp=True)) as short:
                for connection in (short, kept[turn % 4]):
                    with tag(m=f"k{turn}"), connection.cursor() as cursor:
                        cursor.execute(f"select {turn} as m_tagged_k{turn}")
    run = Run(tmp_path / "t")
    tagged = run.having("m_tagged")
    assert Counter(tagged["text"]) == {f"select ? as m_tagged_k{n}": 2 for n in range(AGAIN)}
    assert [dict(tags or ()).get("m") for tags in tagged["tags"]] == [
        text.removeprefix("select ? as m_tagged_") for text in tagged["text"]
    ]
    assert run.loss == {}
    del tags_socket
