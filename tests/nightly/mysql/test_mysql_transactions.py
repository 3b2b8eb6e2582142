# SPDX-License-Identifier: Apache-2.0
"""Transactions of MySQL and MariaDB, from the status in the server's replies."""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pymysql
import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing.mysql_client import mysql_client
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

COMMITTED, ROLLED_BACK = 40, 10
INSERTS = 5
#: What clients do, and how often: the text of each transaction, and its outcome.
EXPECTED = {
    ("begin; insert into t values (?+); select count(*) from t; commit", "committed"): COMMITTED,
    ("start transaction; update t set a = a + ?; rollback", "rolled back"): ROLLED_BACK,
    ("begin; insert into t values (?+)", "committed"): 1,  # another BEGIN follows
    ("begin; insert into t values (?+); create table ddl(a int)", "committed"): 1,
    ("begin; insert into t values (?+)", "rolled back"): 1,  # its client disconnects
    ("insert into t values (?+); commit", "committed"): 3,  # without autocommit
    ("begin; insert into missing values (?+); rollback", "rolled back"): 1,
    ("begin; insert into t values (?+)", "unfinished"): 1,  # open as the recording ends
}


def _set_up(server: DatabaseServer) -> None:
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        for statement in (
            "drop database if exists m_transactions",
            "create database m_transactions",
            "create table m_transactions.t (a int)",
        ):
            cursor.execute(statement)


def _ask(cursor: Any, *statements: str) -> None:
    for statement in statements:
        with suppress(pymysql.Error):
            cursor.execute(statement)


def _tell(server: DatabaseServer, stack: ExitStack) -> None:
    def connect() -> Any:
        options: dict[str, Any] = {
            "ssl_disabled": True,
            "database": "m_transactions",
            "autocommit": True,
        }
        return server.connect(**options)

    with closing(connect()) as connection, connection.cursor() as cursor:
        for number in range(COMMITTED):
            _ask(cursor, "begin", *[f"insert into t values ({number})"] * INSERTS)
            _ask(cursor, "select count(*) from t", "commit", "insert into t values (1)")
        for number in range(ROLLED_BACK):
            _ask(cursor, "start transaction", f"update t set a = a + {number}", "rollback")
        _ask(cursor, "begin", "insert into t values (1)", "begin", "insert into t values (2)")
        _ask(cursor, "create table ddl (a int)", "select 1")
        _ask(cursor, "begin", "insert into missing values (1)", "rollback")
        _ask(cursor, "set autocommit = 0")
        for _ in range(3):
            _ask(cursor, "insert into t values (1)", "commit")
        _ask(cursor, "set autocommit = 1", "insert into t values (1)")
    with mysql_client(server.socket, database="m_transactions") as client:
        client.query(b"begin")
        client.query(b"insert into t values (1)")
        client.quit()
    last = stack.enter_context(closing(connect()))
    _ask(stack.enter_context(last.cursor()), "begin", "insert into t values (1)")


@pytest.fixture(scope="module", params=["mariadb", "mysql80"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    server: DatabaseServer = request.getfixturevalue(request.param)
    directory = tmp_path_factory.mktemp(request.param)
    _set_up(server)
    rungs = ("socket", "symbol")
    with ExitStack() as connections, ExitStack() as recordings:
        for rung in rungs:
            options = ("--pid", str(server.pid), "--rung", rung, "--ring-mb", "32")
            recordings.enter_context(recording(directory / rung, *options))
        _tell(server, connections)
        recordings.close()
    return {rung: Run(directory / rung) for rung in rungs}


@pytest.fixture(params=["socket", "symbol"])
def run(request: pytest.FixtureRequest, both: dict[str, Run]) -> Run:
    return both[request.param]


def _transactions(run: Run) -> pd.DataFrame:
    return run.trace.pandas("transactions")


def test_transactions_are_told(run: Run) -> None:
    assert run.loss == {}
    found = _transactions(run).groupby(["text", "outcome"], observed=True).size()
    assert found.to_dict() == EXPECTED


def test_queries_of_a_transaction_are_its_sessions_in_its_time(run: Run) -> None:
    queries = run.queries
    for one in _transactions(run).itertuples():
        mine = queries[queries["transaction"] == one.transaction].sort_values("begin_ns")
        assert set(mine["session"]) == {one.session}
        assert mine["begin_ns"].iloc[0] == one.begin_ns
        assert mine["query"].iloc[0] == one.transaction
        assert mine["end_ns"].iloc[-1] == one.end_ns
        assert (mine["command"] != "other").sum() == one.statements
        last: Any = one.last
        if pd.notna(last):
            assert mine["query"].iloc[-1] == last
    inserts = queries[queries["text"] == "insert into t values (?+)"]
    assert inserts["transaction"].isna().sum() == COMMITTED + 1, "those that commit themselves"


def test_commits_are_timed(run: Run) -> None:
    queries = run.queries.set_index("query")
    ended = _transactions(run).dropna(subset=["commit_ns"])
    assert len(ended) == COMMITTED + ROLLED_BACK + 3 + 1
    last = queries.loc[ended["last"].astype("uint64")]
    assert set(last["text"]) == {"commit", "rollback"}
    assert (ended["commit_ns"].to_numpy() == (last["end_ns"] - last["begin_ns"]).to_numpy()).all()


def test_replies_with_rows_say_nothing(run: Run) -> None:
    rows = run.having("count(*)")
    told = QueryFlag.IN_TRANSACTION | QueryFlag.NO_TRANSACTION
    assert len(rows) == COMMITTED
    assert not (rows["flags"] & int(told)).any()


@pytest.mark.parametrize("name", ["mariadb", "mysql80"])
def test_transactions_that_were_open_before(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Their rows say so and have what came from the attach on; later ones are as any other."""
    server: DatabaseServer = request.getfixturevalue(name)
    _set_up(server)
    insert, before = "insert into t values (1)", "(began before tracing)"
    with ExitStack() as stack:

        def session() -> Any:
            options: dict[str, Any] = {"ssl_disabled": True, "database": "m_transactions"}
            connection = stack.enter_context(closing(server.connect(**options, autocommit=True)))
            return stack.enter_context(connection.cursor())

        goes_on, ends, idle = (session() for _ in range(3))
        _ask(goes_on, "begin", insert)
        _ask(ends, "begin", insert)
        with ExitStack() as recordings:
            for rung in ("socket", "symbol"):
                options = ("--pid", str(server.pid), "--rung", rung)
                recordings.enter_context(recording(tmp_path / rung, *options))
            _ask(goes_on, "select count(*) from t", insert, insert, "commit")
            _ask(ends, "rollback")
            _ask(idle, insert)
            for cursor in (goes_on, ends, idle, session()):
                _ask(cursor, "begin", insert, "commit")
            _ask(session(), "set autocommit = 0", insert, "commit")
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        found = _transactions(run).groupby(["text", "outcome"], observed=True).size()
        assert found.to_dict() == {
            (f"{before}; insert into t values (?+); commit", "committed"): 1,
            (f"{before}; rollback", "rolled back"): 1,
            ("begin; insert into t values (?+); commit", "committed"): 4,
            ("insert into t values (?+); commit", "committed"): 1,
        }, rung
        assert run.loss == {}, rung
