# SPDX-License-Identifier: Apache-2.0
"""Threads of MySQL that serve several clients, a replica, the X Protocol, or parts of a command."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import QueryFlag, Rung
from qjoule.session.targets import plan_tracing
from servers.mariadb import mariadb_server
from servers.mysql import mysql_server
from servers.process import DatabaseServer, Unavailable
from tracing import mysql_client as wire
from tracing import mysql_story as day
from tracing.mysql_client import mysql_client
from tracing.mysql_x_client import XClient
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

SESSIONS = 12
PATIENCE_S = 60.0
STATEMENTS, PAUSE_S = 40, 0.3
START_TIMEOUT_S = 60.0
POOL, POOL_STATEMENTS = 500, 200  #: more than the kernel's table of prepared statements holds


def _wait_until_cached(watch: Any) -> None:
    """Waits until no other client's session is left and a thread waits for the next client."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with watch.cursor() as cursor:
            cursor.execute("show global status where variable_name like 'Threads_c%ed'")
            threads = {name: int(value) for name, value in cursor.fetchall()}
        if threads["Threads_connected"] == 1 and threads["Threads_cached"]:
            return
        time.sleep(0.01)
    raise AssertionError(threads)


@pytest.mark.parametrize("start", [mariadb_server, mysql_server], ids=("mariadb", "mysql80"))
def test_no_query_pays_for_a_login(start: Any, tmp_path: Path) -> None:
    """After a query, a thread waits for the next one under that query's name. If its client
    vanishes, the server keeps the thread for the next client, whose login is no query's work.
    """
    with ExitStack() as stack:
        try:
            server = stack.enter_context(start())  # many clients leave it many cached threads
        except Unavailable as reason:
            pytest.skip(str(reason))
        watch = stack.enter_context(closing(server.connect()))
        watch.query("set global thread_cache_size = 8")
        with recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol"):
            for number in range(SESSIONS):
                connection = server.connect()
                connection.query("select 1 as l_first")
                connection.query("select 1 as l_second")
                if number % 2:
                    connection._force_close()
                else:
                    connection.close()
                _wait_until_cached(watch)
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


def test_a_replicas_thread_is_background(mysql80: DatabaseServer, tmp_path: Path) -> None:
    with mysql_client(mysql80.socket) as client:
        for text in (b"drop database if exists m_copied", b"create database m_copied"):
            client.query(text)
        client.query(b"create table m_copied.t (a bigint)")
    with both_rungs(tmp_path, mysql80.pid):
        _follow_binlog(mysql80)
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        owners, segments = run.trace.pandas("owners"), run.trace.pandas("segments")
        (dump,) = owners[owners["role"].isin(["binlog-dump"])].itertuples()
        mine = segments[segments["owner"] == dump.owner]
        assert (mine["t1_ns"] - mine["t0_ns"]).sum() > 0
        assert dump.kind == "server"
        served = run.queries[run.queries["pid"] == dump.pid]
        last_ns = mine["t1_ns"].max()
        assert not ((served["begin_ns"] < last_ns) & (served["end_ns"] > dump.t0_ns)).any()
        assert run.loss == {}


def test_a_suspended_command_is_one_query(mariadb_pool: DatabaseServer, tmp_path: Path) -> None:
    """A pool of threads suspends commits that wait for the disk, and resumes them elsewhere."""
    day.prepare_server(mariadb_pool)
    with closing(mariadb_pool.connect()) as connection:
        connection.query("set global innodb_flush_log_at_trx_commit = 1")
        try:
            with recording(tmp_path / "t", "--pid", str(mariadb_pool.pid)):
                before = day.status(mariadb_pool)["Com_update"]
                text = ("--db-ps-mode=disable", "--events=2000")
                day.sysbench(mariadb_pool, "oltp_update_non_index", "run", *text)
                sent = day.status(mariadb_pool)["Com_update"] - before
        finally:
            connection.query("set global innodb_flush_log_at_trx_commit = 0")
    run = Run(tmp_path / "t")
    updates = run.having("update sbtest1")
    assert updates["executions"].sum() == len(updates) == sent
    if run.flagged(QueryFlag.RESUMED).empty:
        pytest.skip("this MariaDB suspended no command: its disk answers too fast")


def test_a_large_pool_of_prepared_statements(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Every session has every statement. All executions have their text, the first ones too."""
    with closing(mariadb.connect()) as connection:
        connection.query("set global max_prepared_stmt_count = 1000000, max_connections = 1000")
    with ExitStack() as stack:
        clients = [stack.enter_context(mysql_client(mariadb.socket)) for _ in range(POOL)]
        texts = [b"select ? as m_pool_%d" % number for number in range(POOL_STATEMENTS)]
        prepared = [[client.prepare(text) for text in texts] for client in clients]
        options = ("--pid", str(mariadb.pid), "--rung", "socket", "--ring-mb", "64")
        with recording(tmp_path / "t", *options):
            for client, statements in zip(clients, prepared, strict=True):
                for statement in statements:
                    client.execute(statement, 1)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    expected = {f"select ? as m_pool_{number}": POOL for number in range(POOL_STATEMENTS)}
    assert run.executions(command="execute") == Counter(expected)
    assert run.flagged(QueryFlag.NO_TEXT).empty


@pytest.fixture
def with_x(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[DatabaseServer, Path]]:
    """A MySQL, and where it listens for the X Protocol."""
    directory = tmp_path_factory.mktemp("x")
    directory.chmod(0o777)
    path = directory / "mysqlx.sock"
    words = ("--mysqlx=ON", "--mysqlx-port=0", f"--mysqlx-socket={path}", "--skip-ssl")
    with mysql_server(*words) as started:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not path.is_socket():  # the plugin may listen later than the server
            assert time.monotonic() < deadline, "the X Protocol is not served"
            time.sleep(0.05)
        with XClient(path):
            yield started, path


def test_the_x_protocol_is_seen_by_symbols(
    with_x: tuple[DatabaseServer, Path], tmp_path: Path
) -> None:
    """On sockets every output says that it is not."""
    server, path = with_x
    (by_itself,) = plan_tracing([server.pid], None).traced
    assert (by_itself.choice.rung, by_itself.choice.exact) == (Rung.SYMBOL, True)
    (asked,) = plan_tracing([server.pid], Rung.SOCKET).traced
    assert not asked.choice.exact
    assert "sessions of the X Protocol" in asked.choice.unseen
    with (
        both_rungs(tmp_path, server.pid),
        XClient(path) as client,
        closing(server.connect()) as connection,
    ):
        for _ in range(STATEMENTS):
            client.query(b"select 1 as m_x")
            connection.query("select 1 as m_classic")
        time.sleep(PAUSE_S)
        client.query(b"select 1 as m_last")
    socket, symbol = Run(tmp_path / "socket"), Run(tmp_path / "symbol")
    assert day.marker_counts(socket.queries) == {"m_classic": STATEMENTS}
    seen = day.marker_counts(symbol.queries)
    assert seen == {"m_x": STATEMENTS, "m_classic": STATEMENTS, "m_last": 1}
    latencies = symbol.having("m_x")["end_ns"] - symbol.having("m_x")["begin_ns"]
    assert (latencies < PAUSE_S * 1e9 / 2).all(), "a query ends before its client asks again"
    assert symbol.loss == {}
