# SPDX-License-Identifier: Apache-2.0
"""Threads of MySQL that serve several clients, or a replica. Also: CPU time against the server's
own account.
"""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import mysql_server, or_skip
from tracing import mysql_client as wire
from tracing.cpu_time import near_kernels, seconds_by_marker
from tracing.mysql_client import mysql_client
from tracing.recording import Run, at_once, both_attach_modes, recording
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]

SESSIONS = 12
PATIENCE_S = 60.0


def _is_cached(watch: Any) -> bool:
    """No other client's session is left, and a thread waits for the next client."""
    with watch.cursor() as cursor:
        cursor.execute("show global status where variable_name like 'Threads_c%ed'")
        threads = {name: int(value) for name, value in cursor.fetchall()}
    return threads["Threads_connected"] == 1 and threads["Threads_cached"] > 0


@pytest.mark.beside
@pytest.mark.parametrize("start", [mariadb_server, mysql_server], ids=("mariadb", "mysql80"))
def test_no_query_pays_for_a_login(start: Any, tmp_path: Path) -> None:
    """After a query, a thread waits for the next one under that query's name. If its client
    vanishes, the server keeps the thread for the next client, whose login is no query's work.
    """
    with or_skip(), ExitStack() as stack:
        server = stack.enter_context(start())  # many clients leave it many cached threads
        watch = stack.enter_context(closing(server.connect()))
        watch.query("set global thread_cache_size = 8")
        with recording(tmp_path / "t", "--pid", str(server.pid), "--attach", "symbol"):
            for number in range(SESSIONS):
                connection = server.connect()
                connection.query("select 1 as l_first")
                connection.query("select 1 as l_second")
                if number % 2:
                    connection._force_close()
                else:
                    connection.close()
                until(lambda: _is_cached(watch))
    run = Run(tmp_path / "t")
    assert run.loss == {}
    first = run.having("l_first").sort_values("begin_ns")
    logins = run.trace.pandas("sessions")
    logins = logins[logins["session"].isin(first["session"])]  # not `watch`
    login_ns = logins[logins["event"] == "user"]["t_ns"].sort_values().to_numpy()
    assert len(first) == login_ns.size == SESSIONS
    segments = run.trace.pandas("segments").dropna(subset="query")
    earliest = segments.groupby("query")["t0_ns"].min()
    threads = segments.groupby("query")["owner"].first()
    for query, logged_in_ns in zip(first["query"], login_ns, strict=True):
        assert earliest[query] > logged_in_ns
    # Otherwise it tests nothing: a thread must have had several clients.
    assert threads[first["query"]].nunique() < SESSIONS


def _follow_binlog(server: DatabaseServer) -> None:
    with mysql_client(server.socket) as replica, mysql_client(server.socket) as writer:
        replica.query(b"set @master_binlog_checksum = 'CRC32'")
        replica.send(wire.COM_BINLOG_DUMP, struct.pack("<IHI", 4, 0, 99))
        for number in range(50):
            writer.query(b"insert into m_copied.t (a) values (%d)" % number)
        for _ in range(100):  # events: some for each transaction
            assert replica.next_packet()[0] == 0
    # The server notices that the replica has gone when it next sends to it.
    deadline = time.monotonic() + PATIENCE_S
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        while cursor.execute(
            "select 1 from information_schema.processlist where command = 'Binlog Dump'"
        ):
            assert time.monotonic() < deadline
            cursor.execute("insert into m_copied.t (a) values (0)")
            time.sleep(0.05)


@pytest.mark.beside
def test_a_replicas_thread_is_background(mysql80: DatabaseServer, tmp_path: Path) -> None:
    with mysql_client(mysql80.socket) as client:
        for text in (b"drop database if exists m_copied", b"create database m_copied"):
            client.query(text)
        client.query(b"create table m_copied.t (a bigint)")
    with both_attach_modes(tmp_path, mysql80.pid):
        _follow_binlog(mysql80)
    for attach_mode in ("socket", "symbol"):
        run = Run(tmp_path / attach_mode)
        owners, segments = run.trace.pandas("owners"), run.trace.pandas("segments")
        (dump,) = owners[owners["role"].isin(["binlog-dump"])].itertuples()
        of_dump = segments[segments["owner"] == dump.owner]
        assert (of_dump["t1_ns"] - of_dump["t0_ns"]).sum() > 0
        assert dump.kind == "server"
        served = run.queries[run.queries["pid"] == dump.pid]
        last_ns = of_dump["t1_ns"].max()
        assert not ((served["begin_ns"] < last_ns) & (served["end_ns"] > dump.t0_ns)).any()
        assert run.loss == {}


# ---- CPU time of MariaDB's queries against the server's own account ------------------------------

#: By user, each with one shape: the statement and how often it runs. It is long enough that clock
#: reads and the thread's work before and after are far below the tolerance.
SHAPES = {
    "m_hash": ("select benchmark(2500000, sha2('x', 256)) as m_hash", 4),
    "m_sum": ("select benchmark(10000000, 1 + 2) as m_sum", 8),
}


def _execute(server: DatabaseServer, *statements: str) -> list[tuple[Any, ...]]:
    """Executes the statements; returns the rows of the last one."""
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def test_cpu_time_is_mariadbs_own(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """MariaDB, "User Statistics": CPU_TIME by user, from the serving thread's own clock."""

    def client(name: str) -> None:
        statement, times = SHAPES[name]
        connection = mariadb.connect(user=name, ssl_disabled=True)
        with closing(connection), connection.cursor() as cursor:
            for _ in range(times):
                cursor.execute(statement)

    _execute(mariadb, *(f"create or replace user {name}" for name in SHAPES))
    _execute(mariadb, "set global userstat = 1", "flush user_statistics")
    try:
        with both_attach_modes(tmp_path, mariadb.pid):
            at_once(client, SHAPES)
        rows = _execute(mariadb, "select user, cpu_time from information_schema.user_statistics")
    finally:
        _execute(mariadb, "set global userstat = 0", *(f"drop user {name}" for name in SHAPES))
    theirs_s = {user: float(seconds) for user, seconds in rows}
    for attach_mode in ("socket", "symbol"):
        for name, seconds in seconds_by_marker(Run(tmp_path / attach_mode), SHAPES).items():
            assert seconds == near_kernels(theirs_s[name]), (attach_mode, name)
