# SPDX-License-Identifier: Apache-2.0
"""CPU time of PostgreSQL's queries against the server's own account, and the share with an
owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from servers.postgres import postgres_server
from servers.process import DatabaseServer, Unavailable
from tracing.at_once import at_once
from tracing.postgres_story import pgbench
from tracing.recording import Run, recording
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
#: The names of a server's processes.
ROLES = {
    "backend",
    "checkpointer",
    "bgwriter",
    "walwriter",
    "autovac launch",
    "autovac worker",
    "parallel worker",
    "logical launch",
    "postgres",
}


@pytest.fixture(scope="module")
def accounting(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """A PostgreSQL with pg_stat_kcache, which asks the kernel how much CPU time each statement
    used.
    """
    libraries = "shared_preload_libraries=pg_stat_statements,pg_stat_kcache"
    vacuum = ("autovacuum_naptime=1", "autovacuum_vacuum_threshold=50", "jit=off")
    try:
        with postgres_server(libraries, *vacuum) as server:
            with server.connect() as connection:
                connection.execute("create extension pg_stat_statements")
                connection.execute("create extension pg_stat_kcache")
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def _load(server: DatabaseServer) -> None:
    def client(shape: tuple[str, int]) -> None:
        statement, times = shape
        with closing(server.connect()) as connection:
            connection.execute("set max_parallel_workers_per_gather = 0")
            for _ in range(times):
                connection.execute(statement)

    at_once(client, SHAPES.values())


def _recorded_ns(run: Run) -> dict[str, int]:
    """CPU time of the queries of each marker."""
    segments = run.trace.pandas("segments").merge(run.queries[["query", "text"]], on="query")
    segments["ns"] = segments["t1_ns"] - segments["t0_ns"]
    return {
        name: int(segments[segments["text"].str.contains(name, na=False)]["ns"].sum())
        for name in SHAPES
    }


@pytest.mark.parametrize("rung", ["socket", "symbol"])
def test_cpu_time_is_postgresqls_own(accounting: DatabaseServer, tmp_path: Path, rung: str) -> None:
    """pg_stat_kcache records getrusage(2) before and after the executor, by statement."""
    with accounting.connect() as connection:
        connection.execute("select pg_stat_kcache_reset(), pg_stat_statements_reset()")
        with recording(tmp_path / "t", "--pid", str(accounting.pid), "--rung", rung):
            _load(accounting)
        rows = connection.execute(
            "select query, exec_user_time + exec_system_time from pg_stat_kcache_detail"
        ).fetchall()
    ours = _recorded_ns(Run(tmp_path / "t"))
    for name in SHAPES:
        theirs_s = sum(seconds for text, seconds in rows if name in text)
        assert ours[name] / 1e9 == near_kernels(theirs_s), name


def test_what_a_server_uses_has_an_owner_by_name(
    accounting: DatabaseServer, tmp_path: Path
) -> None:
    """At least 98 % of a busy server's CPU time belongs to a statement, its session or a role."""
    pgbench(accounting, "-i", "-s", "2", "-q")
    with recording(tmp_path / "t", "--pid", str(accounting.pid), "--ring-mb", "64"):
        for protocol in ("simple", "extended", "prepared"):
            pgbench(accounting, "-c", "8", "-M", protocol, "-t", "200")
        with accounting.connect() as connection:
            connection.execute("vacuum analyze pgbench_accounts")
            connection.execute("checkpoint")
        pgbench(accounting, "-c", "4", "-C", "-S", "-t", "25")
    run = Run(tmp_path / "t")
    owners = run.trace.pandas("owners")[["owner", "kind", "server", "role"]]
    segments = run.trace.pandas("segments").merge(owners, on="owner")
    segments = segments[segments["server"].notna()].merge(
        run.queries[["query", "text", "command"]], on="query", how="left"
    )
    ns = segments["t1_ns"] - segments["t0_ns"]
    statement = segments["text"].notna()
    overhead = segments["command"].isin(["other", "connect"])
    role = (segments["kind"] == "server") & segments["role"].isin(ROLES)
    share = ns[statement | overhead | role].sum() / ns.sum()
    assert share >= 0.98, _by_owner(segments, ns)
    found = set(segments[segments["kind"] == "server"]["role"])
    assert found <= ROLES
    assert {"backend", "checkpointer", "walwriter"} <= found
    unresolved = ns[role & (segments["role"] == "postgres")].sum()
    assert unresolved / ns.sum() < 0.1, _by_owner(segments, ns)


def _by_owner(segments: pd.DataFrame, ns: pd.Series) -> str:
    keys = [segments[name].astype(str) for name in ("kind", "command", "role")]
    return str(ns.groupby(keys).sum())
