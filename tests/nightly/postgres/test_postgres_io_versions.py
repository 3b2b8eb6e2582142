# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL 18's io workers work for the query whose pages they read: `make test-versions`.

The referee is perf, which counts each process from switch to switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import psycopg
import pytest

from qjoule_studies.servers.process import DatabaseServer
from servers.newer import Release
from tracing.cpu_time import needs_perf, task_clock
from tracing.recording import Run, at_once, attribute, recording
from tracing.releases import releases, running

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.versions, needs_perf]

SCAN = "select count(*) as m_scan from m_big where t like 'y%'"
#: It reads no page, so no io worker may be counted for it.
COMPUTE = "select count(md5(i::text)) as m_compute from generate_series(1, 400000) i"
TIMES = 4
TOLERANCE = 0.07  #: logins, parsing, choosing the next task, and what runs while it begins and ends
UNJOINED = 0.1  #: of the io workers' time: what they do before a request and for no query

#: Few buffers, so that the scan's pages must be read each time.
OPTIONS = ("shared_buffers=16MB", "max_parallel_workers_per_gather=0", "autovacuum=off", "jit=off")


def _with_io_workers(release: Release) -> bool:
    return int(release.packages[0].rpartition("-")[2]) >= 18


@pytest.fixture(
    scope="module",
    params=[one for one in releases("postgres") if _with_io_workers(one.values[0])],
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
            ran = {pid: ns for pid, (ns,) in counted.items()}
    assert Run(tmp_path / "t").loss == {}
    found = attribute(tmp_path / "t")
    of_workers = sum(ran[pid] for pid in workers)
    assert of_workers > 0.2 * ran[pids["m_scan"][0]], "they have read much of it"
    for marker, some in pids.items():
        (row,) = (row for row in found["rows"] if marker in row["shape"])
        expected = sum(ran[pid] for pid in some)
        shapes = [(one["shape"], one["cpu_ns"]) for one in (*found["rows"], *found["fixed"])]
        said = f"{marker}: {ran}, {shapes}"
        assert row["cpu_ns"] == pytest.approx(expected, rel=TOLERANCE), said
    unjoined = sum(row["cpu_ns"] for row in found["fixed"] if "io worker" in row["shape"])
    assert unjoined < UNJOINED * of_workers
