# SPDX-License-Identifier: Apache-2.0
"""CPU time of MariaDB's queries against the server's own account."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.cpu_time import near_kernels, seconds_by_marker
from tracing.recording import Run, at_once, both_attach_modes

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
