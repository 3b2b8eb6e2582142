# SPDX-License-Identifier: Apache-2.0
"""Sessions that were opened, and statements that were prepared, before the recording began."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing.mysql_client import MysqlClient, mysql_client
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

STATEMENTS = 12  #: of each session; the kernel keeps the last few of them at hand
SESSIONS = 4
TURNS = 3
POOL, POOL_STATEMENTS = 500, 200  #: more than the kernel's table of prepared statements holds
LONG = b"select ? as m_long, " + b"1 as m_column, " * 400 + b"2"  #: longer than is read of a text


CASES = [(name, rung) for name in ("mariadb", "mysql80") for rung in ("socket", "symbol")]
CASES += [("mariadb_pool", "symbol")]


@dataclass(frozen=True)
class Case:
    server: DatabaseServer
    rung: str


@pytest.fixture(params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    name, rung = request.param
    found: DatabaseServer = request.getfixturevalue(name)
    with closing(found.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("create database if not exists m_books")
    return Case(found, rung)


def _statement(number: int) -> bytes:
    return b"select ? as m_before_%d, 'secret' as m_literal" % number


def _shape(number: int) -> str:
    return f"select ? as m_before_{number}, ? as m_literal"


def test_statements_prepared_before_have_their_text(case: Case, tmp_path: Path) -> None:
    """From the first execution on, whatever its outcome; so do ids that are used again."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(mysql_client(case.server.socket, database="m_books"))
            for _ in range(SESSIONS)
        ]
        prepared = [[one.prepare(_statement(n)) for n in range(STATEMENTS)] for one in clients]
        long = clients[0].prepare(LONG)
        again = clients[1].prepare(b"select ? as m_closed")
        with recording(tmp_path / "t", "--pid", str(case.server.pid), "--rung", case.rung):
            for turn in range(TURNS):
                for client, statements in zip(clients, prepared, strict=True):
                    for statement in statements:
                        client.execute(statement, turn)
            clients[0].execute(long, 1)
            clients[1].close_statement(again)
            new = clients[1].prepare(b"select ? as m_new")
            clients[1].execute(new, 1)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert run.executions(command="execute") == Counter(
        {_shape(n): SESSIONS * TURNS for n in range(STATEMENTS)}
        | {"select ? as m_new": 1, run.having("m_long")["text"].iloc[0]: 1}
    )
    assert not run.flagged(QueryFlag.NO_TEXT)["executions"].any()  # only the one that is closed
    assert set(run.flagged(QueryFlag.TRUNCATED)["text"]) == set(run.having("m_long")["text"])
    assert set(run.having("m_before")["user"]) == {"root"}
    assert set(run.having("m_before")["database"]) == {"m_books"}


def test_a_text_is_the_one_that_was_prepared(case: Case, tmp_path: Path) -> None:
    """Also where the server has the statement's values in its text for the general log."""
    with closing(case.server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("set global log_output = 'NONE'")
        cursor.execute("set global general_log = 1")
    try:
        with mysql_client(case.server.socket) as client:
            statement = client.prepare(_statement(7))
            client.execute(statement, 1)
            with recording(tmp_path / "t", "--pid", str(case.server.pid), "--rung", case.rung):
                for turn in range(TURNS):
                    client.execute(statement, 1000 + turn)
    finally:
        with closing(case.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("set global general_log = 0")
    run = Run(tmp_path / "t")
    assert run.executions(command="execute") == {_shape(7): TURNS}
    assert "secret" not in str(run.text_of)


def test_names_of_sessions_change(case: Case, tmp_path: Path) -> None:
    """A session without a database, and one that changes it after the recording began."""
    with ExitStack() as stack:
        nowhere: MysqlClient = stack.enter_context(mysql_client(case.server.socket))
        changes: MysqlClient = stack.enter_context(
            mysql_client(case.server.socket, database="m_books")
        )
        with recording(tmp_path / "t", "--pid", str(case.server.pid), "--rung", case.rung):
            nowhere.query(b"select 1 as m_nowhere")
            changes.query(b"select 1 as m_books_first")
            changes.init_db(b"mysql")
            changes.query(b"select 1 as m_then_mysql")
    run = Run(tmp_path / "t")
    found = {
        text: (user, database if isinstance(database, str) else None)
        for text, user, database in zip(
            run.queries["text"], run.queries["user"], run.queries["database"], strict=True
        )
    }
    assert found["select ? as m_nowhere"] == ("root", None)
    assert found["select ? as m_books_first"] == ("root", "m_books")
    assert found["select ? as m_then_mysql"] == ("root", "mysql")


def test_a_large_pool(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Every session has every statement. All executions have their text, the first ones too."""
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("set global max_prepared_stmt_count = 1000000, max_connections = 1000")
    with ExitStack() as stack:
        clients = [stack.enter_context(mysql_client(mariadb.socket)) for _ in range(POOL)]
        prepared = [[one.prepare(_statement(n)) for n in range(POOL_STATEMENTS)] for one in clients]
        options = ("--pid", str(mariadb.pid), "--rung", "socket", "--ring-mb", "64")
        with recording(tmp_path / "t", *options):
            for turn in range(2):
                for client, statements in zip(clients, prepared, strict=True):
                    for statement in statements:
                        client.execute(statement, turn)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    expected = {_shape(n): 2 * POOL for n in range(POOL_STATEMENTS)}
    assert run.executions(command="execute") == Counter(expected)
    assert run.flagged(QueryFlag.NO_TEXT).empty


@pytest.mark.parametrize("name", ["mariadb", "mysql80"])
def test_client_addresses_by_symbols(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of sessions from before, encrypted ones too, and of new ones: as the clients see them."""
    server: DatabaseServer = request.getfixturevalue(name)
    ways: list[dict[str, Any]] = [{"tcp": True}, {"tcp": True}, {"tcp": False}]
    if name == "mysql80":
        ways.append({"tcp": True, "ssl": {}})
    expected = Counter[str]()
    with ExitStack() as stack:
        before = [stack.enter_context(closing(server.connect(**way))) for way in ways]
        with recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol"):
            after = [stack.enter_context(closing(server.connect(**way))) for way in ways]
            for _ in range(2):
                for one in (*before, *after):
                    with one.cursor() as cursor:
                        cursor.execute("select 1 as m_where")
        for one, way in zip((*before, *after), ways * 2, strict=True):
            end = one._sock.getsockname()
            expected[f"{end[0]} {end[1]}" if way["tcp"] else "unix"] += 2
    run = Run(tmp_path / "t")
    told = run.trace.pandas("sessions")
    told = told[told["connection"].notna()].drop_duplicates("session")
    where = dict(zip(told["session"], told["connection"], strict=True))
    found = Counter(_client(where[session]) for session in run.having("m_where")["session"])
    assert found == expected
    assert run.loss == {}


def _client(connection: str) -> str:
    return "unix" if connection.startswith("unix ") else connection.partition(" > ")[0]
