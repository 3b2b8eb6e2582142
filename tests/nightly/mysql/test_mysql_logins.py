# SPDX-License-Identifier: Apache-2.0
"""The symbol rung, one thread per connection: a login on a thread that served another client
before.

After a query, a thread waits for the next one under that query's name. If its client vanishes, the
server keeps the thread for the next client. The login of that client is not a query's work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from servers.mariadb import mariadb_server
from servers.mysql import mysql_server
from servers.process import DatabaseServer, Unavailable
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

SESSIONS = 12
PATIENCE_S = 60.0


@pytest.fixture(params=(mariadb_server, mysql_server), ids=("mariadb", "mysql80"))
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A separate server: one that has had many clients has a cached thread for each of these."""
    try:
        with request.param() as found:
            yield found
    except Unavailable as reason:
        pytest.skip(str(reason))


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


def _sessions(server: DatabaseServer, watch: Any) -> None:
    """Sessions one after another; every other client vanishes without COM_QUIT."""
    for number in range(SESSIONS):
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("select 1 as l_first")
            cursor.execute("select 1 as l_second")
        if number % 2:
            connection._force_close()
        else:
            connection.close()
        _wait_until_cached(watch)


def test_no_query_pays_for_a_login(server: DatabaseServer, tmp_path: Path) -> None:
    with closing(server.connect()) as watch:
        with watch.cursor() as cursor:
            cursor.execute("set global thread_cache_size = 8")
        with recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol"):
            _sessions(server, watch)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert len(run.having("l_first")) == SESSIONS
    logins = run.trace.pandas("sessions")
    logins = logins[logins["session"].isin(run.having("l_first")["session"])]  # not `watch`
    login_ns = logins[logins["event"] == "user"]["t_ns"].sort_values().to_numpy()
    assert login_ns.size == SESSIONS
    segments = run.trace.pandas("segments").dropna(subset="query")
    earliest = segments.groupby("query")["t0_ns"].min()
    threads = segments.groupby("query")["owner"].first()
    first = run.having("l_first").sort_values("begin_ns")
    for query, logged_in_ns in zip(first["query"], login_ns, strict=True):
        assert earliest[query] > logged_in_ns
    # Otherwise it tests nothing: a thread must have had several clients.
    assert threads[first["query"]].nunique() < SESSIONS
