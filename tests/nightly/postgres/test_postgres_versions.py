# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL of Debian's newer suites: `make test-versions`. Also: io workers of PostgreSQL 18.

Half of the sessions are open and half of the statements prepared before tracing begins. The
executables are stripped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import psycopg
import pytest

from qjoule.contract import AttachMode
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import offer_tls
from servers.newer import Release
from tracing.cpu_time import needs_perf, task_clock
from tracing.mysql_story import marker_counts
from tracing.recording import (
    Run,
    at_once,
    attribute,
    both_attach_modes,
    check_helpers,
    recording,
)
from tracing.releases import (
    CLIENTS,
    DATABASE,
    STATEMENTS,
    USER,
    Trial,
    check_documented_and_stripped,
    check_names,
    check_sockets,
    planned,
    releases,
    running,
)

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.versions]


@pytest.fixture(scope="module", params=releases("postgres"))
def trial(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trial]:
    with running(request.param) as server:
        assert planned(server).choice.attach_mode is AttachMode.SOCKET, "in plain text"
        with server.connect() as connection:
            connection.execute(f"create database {DATABASE}")
            connection.execute(f"create user {USER}")
            connection.execute("create user m_scram password 'secret'")
            offer_tls(server, connection)
        yield _record_release(request.param, server, tmp_path_factory.mktemp("versions"))


def _record_release(release: Release, server: DatabaseServer, directory: Path) -> Trial:
    sent = Counter[str]()
    with ExitStack() as stack:
        connections = [stack.enter_context(_session(server)) for _ in range(CLIENTS)]
        for connection in connections:
            connection.execute("select %s::int as m_before", [1], prepare=True)
        with both_attach_modes(directory, server.pid):
            for connection in connections:
                for value in range(STATEMENTS):
                    connection.execute("select %s::int as m_before", [value], prepare=True)
            later = [stack.enter_context(_session(server)) for _ in range(CLIENTS)]
            for connection in [*connections, *later]:
                for value in range(STATEMENTS):
                    connection.execute(f"select {value} as m_text")
                    connection.execute("select %s::int as m_prepared", [value], prepare=True)
                sent.update(m_text=STATEMENTS, m_prepared=STATEMENTS)
            with _session(server, sslmode="require") as secure:
                for value in range(STATEMENTS):
                    secure.execute(f"select {value} as m_tls")
            sent["m_tls"] = STATEMENTS
    symbol, socket = (Run(directory / attach_mode) for attach_mode in ("symbol", "socket"))
    return Trial(release, server, symbol, socket, sent=sent)


def _session(server: DatabaseServer, sslmode: str = "disable") -> psycopg.Connection:
    options = {"user": USER, "dbname": DATABASE, "sslmode": sslmode}
    connection: psycopg.Connection = server.connect(tcp=True, **options)
    return connection


def test_its_plan_is_exact_with_tls(trial: Trial) -> None:
    check_documented_and_stripped(trial)
    plan = planned(trial.server)
    assert plan.server.version == trial.release.version
    assert (plan.choice.attach_mode, plan.choice.exact) == (AttachMode.SYMBOL, True)


def test_every_statement_counts(trial: Trial) -> None:
    assert trial.symbol.loss == {}
    expected = trial.sent + Counter(m_before=CLIENTS * STATEMENTS)
    assert marker_counts(trial.symbol.queries) == expected
    check_sockets(trial)
    early = marker_counts(trial.socket.queries)["m_before"]
    unnamed = trial.socket.queries[trial.socket.queries["text"].isna()]["executions"].sum()
    assert early + unnamed == CLIENTS * STATEMENTS
    for run in (trial.symbol, trial.socket):
        check_names(run, "m_text")


# --------------------------------------------------------------------------------------------------
#
# PostgreSQL 18's io workers work for the query whose pages they read: `make test-versions`.
#
# The referee is perf, which counts each process from switch to switch.

SCAN = "select count(*) as m_scan from m_big where t like 'y%'"
#: It reads no page, so no io worker may be counted for it.
COMPUTE = "select count(md5(i::text)) as m_compute from generate_series(1, 400000) i"
TIMES = 4
TOLERANCE = 0.07  #: logins, parsing, choosing the next task, and what runs while it begins and ends
#: Of the io workers' time, what they do for no query: others have taken what they woke up for.
UNJOINED = 0.25

#: Few buffers, so that the scan's pages must be read each time.
OPTIONS = ("shared_buffers=16MB", "max_parallel_workers_per_gather=0", "autovacuum=off", "jit=off")


def _with_io_workers(release: Release) -> bool:
    return int(release.packages[0].rpartition("-")[2]) >= 18


@pytest.fixture(
    scope="module",
    params=[release for release in releases("postgres") if _with_io_workers(release.values[0])],
)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with running(request.param, *OPTIONS) as started:
        with started.connect() as connection:
            connection.execute(
                "create table m_big as select repeat('x', 400) as t from generate_series(1, 250000)"
            )
            connection.execute("vacuum m_big")
            connection.execute("checkpoint")
        yield started


def _io_workers(server: DatabaseServer) -> list[int]:
    return [pid for pid in server.tgids if "io worker" in " ".join(psutil.Process(pid).cmdline())]


@needs_perf
@pytest.mark.parametrize("attach_mode", ["socket", "symbol"])
def test_io_workers_work_for_the_query_that_reads(
    server: DatabaseServer, attach_mode: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        scans, computes = (stack.enter_context(closing(server.connect())) for _ in range(2))
        pids = {
            "m_scan": [scans.info.backend_pid, *_io_workers(server)],
            "m_compute": [computes.info.backend_pid],
        }
        workers = pids["m_scan"][1:]
        assert workers

        def client(work: tuple[psycopg.Connection, str]) -> None:
            for _ in range(TIMES):
                work[0].execute(work[1], prepare=False)

        which = ("--pid", str(server.pid), "--attach", attach_mode, "--ring-mb", "64")
        with recording(tmp_path / "t", *which):
            with ExitStack() as clocks:
                counted = {
                    pid: clocks.enter_context(task_clock(pid))
                    for some in pids.values()
                    for pid in some
                }
                at_once(client, [(scans, SCAN), (computes, COMPUTE)])
            ran_ns = {pid: ns for pid, (ns,) in counted.items()}
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert set(check_helpers(run.trace)["pid"]) <= set(workers)
    result = attribute(tmp_path / "t")
    of_workers = sum(ran_ns[pid] for pid in workers)
    assert of_workers > 0.2 * ran_ns[pids["m_scan"][0]], "they have read much of it"
    for marker, some in pids.items():
        (row,) = (row for row in result["rows"] if marker in row["shape"])
        expected = sum(ran_ns[pid] for pid in some)
        shapes = [
            (other["shape"], other["cpu_ns"]) for other in (*result["rows"], *result["fixed"])
        ]
        figures = f"{marker}: {ran_ns}, {shapes}"
        assert row["cpu_ns"] == pytest.approx(expected, rel=TOLERANCE), figures
    unjoined = sum(row["cpu_ns"] for row in result["fixed"] if "io worker" in row["shape"])
    assert unjoined < UNJOINED * of_workers
