# SPDX-License-Identifier: Apache-2.0
"""CPU time of MySQL's queries against the server's own account, and the share that has an owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servers.process import DatabaseServer
from tracing import mysql_story as day
from tracing.at_once import at_once
from tracing.recording import Run, recording
from tracing.tolerance import near_kernels

pytestmark = [pytest.mark.root, pytest.mark.server]

#: By user, each with one shape: the statement and how often it runs. It is long enough that clock
#: reads and the thread's work before and after are far below the tolerance.
SHAPES = {
    "m_hash": ("select benchmark(2500000, sha2('x', 256)) as m_hash", 4),
    "m_sum": ("select benchmark(10000000, 1 + 2) as m_sum", 8),
}


@contextmanager
def _users(server: DatabaseServer) -> Iterator[None]:
    def execute(*statements: str) -> None:
        with closing(server.connect(ssl_disabled=True)) as one, one.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    execute(*(f"create user {name} identified with mysql_native_password" for name in SHAPES))
    try:
        yield
    finally:
        execute(*(f"drop user {name}" for name in SHAPES))


def _load(server: DatabaseServer) -> None:
    def client(name: str) -> None:
        statement, times = SHAPES[name]
        connection = server.connect(user=name, ssl_disabled=True)
        with closing(connection), connection.cursor() as cursor:
            for _ in range(times):
                cursor.execute(statement)

    at_once(client, SHAPES)


def _recorded_ns(run: Run) -> dict[str, int]:
    """CPU time of the queries of each marker."""
    segments = run.trace.pandas("segments")
    queries = run.queries[["query", "text"]]
    mine = segments[segments["query"].notna()].merge(queries, on="query")
    mine["ns"] = mine["t1_ns"] - mine["t0_ns"]
    return {
        name: int(mine[mine["text"].str.endswith(name, na=False)]["ns"].sum()) for name in SHAPES
    }


def _rows(server: DatabaseServer, query: str) -> dict[Any, Any]:
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return dict(cursor.fetchall())


@pytest.mark.parametrize("rung", ["socket", "symbol"])
def test_cpu_time_is_mariadbs_own(mariadb: DatabaseServer, tmp_path: Path, rung: str) -> None:
    """MariaDB, "User Statistics": CPU_TIME by user, from the serving thread's own clock."""
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor, _users(mariadb):
        cursor.execute("set global userstat = 1")
        cursor.execute("flush user_statistics")
        try:
            with recording(tmp_path / "t", "--pid", str(mariadb.pid), "--rung", rung):
                _load(mariadb)
            theirs_s = _rows(
                mariadb, "select user, cpu_time from information_schema.user_statistics"
            )
        finally:
            cursor.execute("set global userstat = 0")
    for name, ns in _recorded_ns(Run(tmp_path / "t")).items():
        assert ns / 1e9 == near_kernels(float(theirs_s[name])), name


@pytest.mark.parametrize("rung", ["socket", "symbol"])
def test_cpu_time_is_mysqls_own(mysql8033: DatabaseServer, tmp_path: Path, rung: str) -> None:
    """MySQL manual, "Statement Summary Tables": SUM_CPU_TIME, in picoseconds."""
    with (
        closing(mysql8033.connect()) as connection,
        connection.cursor() as cursor,
        _users(mysql8033),
    ):
        cursor.execute(
            "update performance_schema.setup_consumers set enabled = 'YES'"
            " where name = 'events_statements_cpu'"
        )
        cursor.execute(
            "truncate performance_schema.events_statements_summary_by_user_by_event_name"
        )
        with recording(tmp_path / "t", "--pid", str(mysql8033.pid), "--rung", rung):
            _load(mysql8033)
        theirs_ps = _rows(
            mysql8033,
            "select user, sum(sum_cpu_time) from"
            " performance_schema.events_statements_summary_by_user_by_event_name"
            " where event_name = 'statement/sql/select' group by user",
        )
    for name, ns in _recorded_ns(Run(tmp_path / "t")).items():
        assert ns / 1e9 == near_kernels(float(theirs_ps[name]) / 1e12), name


@pytest.mark.parametrize("server", ["mariadb", "mysql80"])
def test_what_a_server_uses_has_an_owner_by_name(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """At least 98 % of a busy server's CPU time belongs to a statement, its session or a named
    thread.
    """
    running: DatabaseServer = request.getfixturevalue(server)
    day.prepare_server(running)
    with recording(tmp_path / "t", "--pid", str(running.pid), "--ring-mb", "64"):
        day.sysbench(running, "oltp_read_write", "run", "--events=400", "--mysql-ssl=off")
    run = Run(tmp_path / "t")
    owners = run.trace.pandas("owners")[["owner", "kind", "tgid", "role"]]
    segments = run.trace.pandas("segments").merge(owners, on="owner")
    segments = segments[segments["tgid"] == running.pid].merge(
        run.queries[["query", "text", "command"]], on="query", how="left"
    )
    ns = segments["t1_ns"] - segments["t0_ns"]
    statement = segments["text"].notna()
    overhead = segments["command"].isin(["other", "connect"])
    role = (segments["kind"] == "server") & segments["role"].notna()
    share = ns[statement | overhead | role].sum() / ns.sum()
    assert share >= 0.98, _by_owner(segments, ns)
    assert ns[statement].sum() / ns.sum() > 0.5, _by_owner(segments, ns)


def _by_owner(segments: pd.DataFrame, ns: pd.Series) -> str:
    keys = [segments[name].astype(str) for name in ("kind", "command", "role")]
    return str(ns.groupby(keys).sum())
