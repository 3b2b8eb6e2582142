# SPDX-License-Identifier: Apache-2.0
"""CPU time of MySQL's queries against the server's own account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.process import DatabaseServer
from tracing.at_once import at_once
from tracing.cpu_time import seconds_by_marker
from tracing.recording import Run, both_rungs
from tracing.tolerance import near_kernels

pytestmark = [pytest.mark.root, pytest.mark.server]

#: By user, each with one shape: the statement and how often it runs. It is long enough that clock
#: reads and the thread's work before and after are far below the tolerance.
SHAPES = {
    "m_hash": ("select benchmark(2500000, sha2('x', 256)) as m_hash", 4),
    "m_sum": ("select benchmark(10000000, 1 + 2) as m_sum", 8),
}


def _execute(server: DatabaseServer, *statements: str) -> list[tuple[Any, ...]]:
    """Rows of the last one."""
    with closing(server.connect(ssl_disabled=True)) as one, one.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


@contextmanager
def _users(server: DatabaseServer) -> Iterator[None]:
    _execute(
        server, *(f"create user {name} identified with mysql_native_password" for name in SHAPES)
    )
    try:
        yield
    finally:
        _execute(server, *(f"drop user {name}" for name in SHAPES))


def _record(server: DatabaseServer, directory: Path) -> None:
    def client(name: str) -> None:
        statement, times = SHAPES[name]
        connection = server.connect(user=name, ssl_disabled=True)
        with closing(connection), connection.cursor() as cursor:
            for _ in range(times):
                cursor.execute(statement)

    with both_rungs(directory, server.pid):
        at_once(client, SHAPES)


def _check(directory: Path, theirs_s: dict[str, float]) -> None:
    for rung in ("socket", "symbol"):
        for name, seconds in seconds_by_marker(Run(directory / rung), SHAPES).items():
            assert seconds == near_kernels(theirs_s[name]), (rung, name)


def test_cpu_time_is_mariadbs_own(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """MariaDB, "User Statistics": CPU_TIME by user, from the serving thread's own clock."""
    with _users(mariadb):
        _execute(mariadb, "set global userstat = 1", "flush user_statistics")
        try:
            _record(mariadb, tmp_path)
            rows = _execute(
                mariadb, "select user, cpu_time from information_schema.user_statistics"
            )
        finally:
            _execute(mariadb, "set global userstat = 0")
    _check(tmp_path, {user: float(seconds) for user, seconds in rows})


def test_cpu_time_is_mysqls_own(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    """MySQL manual, "Statement Summary Tables": SUM_CPU_TIME, in picoseconds."""
    summary = "performance_schema.events_statements_summary_by_user_by_event_name"
    with _users(mysql8033):
        _execute(
            mysql8033,
            "update performance_schema.setup_consumers set enabled = 'YES'"
            " where name = 'events_statements_cpu'",
            f"truncate {summary}",
        )
        _record(mysql8033, tmp_path)
        rows = _execute(
            mysql8033,
            f"select user, sum(sum_cpu_time) from {summary}"
            " where event_name = 'statement/sql/select' and user is not null group by user",
        )
    _check(tmp_path, {user: float(picoseconds) / 1e12 for user, picoseconds in rows})
