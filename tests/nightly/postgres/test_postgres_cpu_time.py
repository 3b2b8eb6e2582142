# SPDX-License-Identifier: Apache-2.0
"""CPU time of PostgreSQL's queries against the server's own account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from servers.postgres import postgres_server
from servers.process import DatabaseServer, Unavailable
from tracing.at_once import at_once
from tracing.cpu_time import seconds_by_marker
from tracing.recording import Run, both_rungs
from tracing.tolerance import near_kernels

pytestmark = [pytest.mark.root, pytest.mark.server]

#: Each long enough that parsing and a process's work before and after are far below the tolerance:
#: pg_stat_kcache counts only the executor.
SHAPES = {
    "m_hash": ("select count(md5(i::text)) as m_hash from generate_series(1, 400000) i", 4),
    "m_sum": ("select sum(i * 2.5) as m_sum from generate_series(1, 400000) i", 6),
    "m_sort": (
        "select max(i) as m_sort from (select random() i from generate_series(1, 200000)"
        " order by 1) s",
        5,
    ),
}


@pytest.fixture(scope="module")
def accounting(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """A PostgreSQL with pg_stat_kcache, which asks the kernel how much CPU time each statement
    used.
    """
    libraries = "shared_preload_libraries=pg_stat_statements,pg_stat_kcache"
    try:
        with postgres_server(libraries, "jit=off") as server:
            with server.connect() as connection:
                connection.execute("create extension pg_stat_statements")
                connection.execute("create extension pg_stat_kcache")
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_cpu_time_is_postgresqls_own(accounting: DatabaseServer, tmp_path: Path) -> None:
    """pg_stat_kcache records getrusage(2) before and after the executor, by statement."""

    def client(shape: tuple[str, int]) -> None:
        statement, times = shape
        with closing(accounting.connect()) as connection:
            connection.execute("set max_parallel_workers_per_gather = 0")
            for _ in range(times):
                connection.execute(statement)

    with accounting.connect() as connection:
        connection.execute("select pg_stat_kcache_reset(), pg_stat_statements_reset()")
        with both_rungs(tmp_path, accounting.pid):
            at_once(client, SHAPES.values())
        rows = connection.execute(
            "select query, exec_user_time + exec_system_time from pg_stat_kcache_detail"
        ).fetchall()
    for rung in ("socket", "symbol"):
        for name, ours_s in seconds_by_marker(Run(tmp_path / rung), SHAPES).items():
            theirs_s = sum(seconds for text, seconds in rows if name in text)
            assert ours_s == near_kernels(theirs_s), (rung, name)
