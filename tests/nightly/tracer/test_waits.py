# SPDX-License-Identifier: Apache-2.0
"""What queries of real servers wait for: the parts add up to the latency of every query, and the
cause that was planted is the first one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil
import psycopg
import pymysql
import pytest

from qjoule.trace.reader import Trace
from qjoule.trace.vocabulary import WAITS
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from tracing.live_top import live_top
from tracing.planted_waits import SLOW_S, Story, busy, waits_of
from tracing.recording import Run, at_once, attribute, check_helpers, check_waits, recording
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]


# ---- the law: latency = what the thread ran + what it waited for ------------------------------


def statements(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(200):
            cursor.execute(f"select {number} as waits_plain")
            cursor.fetchall()


@pytest.mark.parametrize(
    ("name", "attach_mode"),
    [
        ("mariadb", "socket"),
        ("mariadb", "symbol"),
        ("mariadb_pool", "symbol"),
        ("mysql80", "symbol"),
        ("postgres", "socket"),
        ("postgres", "symbol"),
    ],
)
def test_parts_add_up_to_the_latency_of_every_query(
    name: str,
    attach_mode: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """Four clients on fewer CPUs, beside a busy process: their threads are preempted."""
    server: DatabaseServer = request.getfixturevalue(name)
    with busy(1), recording(tmp_path / "t", f"--pid={server.pid}", "--attach", attach_mode):
        at_once(statements, [server] * 4)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert len(check_waits(run.trace)) == len(run.queries)


# ---- planted causes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    plant: Callable[[Story], None]
    word: str  #: of the statement that waits
    kind: str  #: of its first wait


CAUSES = {
    "row lock": Cause(Story.row_lock, "update waits_rows", "wait_lock_ns"),
    "table lock": Cause(Story.table_lock, "alter table", "wait_lock_ns"),
    "sleep": Cause(Story.sleep, "sleep(", "wait_sleep_ns"),
    "busy machine": Cause(Story.busy_machine, "select", "wait_run_queue_ns"),
    "slow client": Cause(Story.slow_client, "repeat(", "wait_network_ns"),
}


@pytest.mark.parametrize("name", ["mariadb", "mysql80", "postgres"])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_planted_cause_is_first(
    name: str, cause: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with recording(tmp_path / "t", f"--pid={server.pid}"):
        CAUSES[cause].plant(Story(server))
    waits = waits_of(tmp_path / "t", CAUSES[cause].word)
    assert waits.index[0] == CAUSES[cause].kind, waits.to_string()


# ---- the disk: a server that waits for it -------------------------------------------------------

ON_DISK = (
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-flush-method=O_DIRECT",
    "--innodb-buffer-pool-size=8M",
)


@pytest.fixture(scope="module")
def on_disk(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    with or_skip(), mariadb_server(*ON_DISK) as server:
        story = Story(server)
        story.table()
        rows = "select seq, repeat(seq, 100) from seq_1_to_60000"
        story.execute(
            "use waits",
            "create table cold (id int primary key, x text)",
            f"insert into cold {rows}",
        )
        yield server


def _first_but_cpu(waits: pd.Series) -> str:
    """The disk is fast, and the machine may be busy."""
    return str(waits.drop("wait_run_queue_ns").index[0])


def test_commits_wait_for_the_disk(on_disk: DatabaseServer, tmp_path: Path) -> None:
    """If several commit at once, one writes the log and the others wait for it: a lock."""
    with (
        recording(tmp_path / "t", f"--pid={on_disk.pid}"),
        closing(on_disk.connect()) as connection,
        connection.cursor() as cursor,
    ):
        for _ in range(50):
            cursor.execute("update waits.waits_rows set n = n + 1 where id = 1")
    waits = waits_of(tmp_path / "t", "update waits")
    assert _first_but_cpu(waits) == "wait_io_ns", waits.to_string()


def test_a_cold_cache_is_io(on_disk: DatabaseServer, tmp_path: Path) -> None:
    """Rows far from each other: who reads the table from its beginning waits for other threads of
    the server, which read ahead.
    """
    far = ", ".join(str(number * 97 % 60_000) for number in range(300))
    with recording(tmp_path / "t", f"--pid={on_disk.pid}"):
        Story(on_disk).execute(f"select sum(length(x)) from waits.cold where id in ({far})")
    waits = waits_of(tmp_path / "t", "sum(length")
    assert _first_but_cpu(waits) == "wait_io_ns", waits.to_string()


# ---- what may happen to a query that waits -------------------------------------------------------


def test_a_server_that_is_killed_while_a_query_waits(tmp_path: Path) -> None:
    with or_skip(), mariadb_server() as server:
        Story(server).table()
        server.may_be_killed = True
        with recording(tmp_path / "t", f"--pid={server.pid}"), closing(server.connect()) as holder:
            holder.begin()
            holder.cursor().execute("update waits.waits_rows set n = 8 where id = 1")
            waiter = threading.Thread(target=_waits_for_ever, args=(server,))
            waiter.start()
            until(lambda: "update waits.waits_rows set n = 9" in _processes(server))
            time.sleep(SLOW_S)
            os.kill(server.pid, signal.SIGKILL)
            waiter.join()
    waits = waits_of(tmp_path / "t", "update waits")
    assert waits.index[0] == "wait_lock_ns", waits.to_string()
    assert waits["wait_lock_ns"] > SLOW_S * 0.9e9


def _waits_for_ever(server: DatabaseServer) -> None:
    with suppress(pymysql.Error):
        Story(server).execute("update waits.waits_rows set n = 9 where id = 1")


def _processes(server: DatabaseServer) -> str:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("show processlist")
        return str(cursor.fetchall())


def test_a_server_in_a_user_namespace(tmp_path: Path) -> None:
    """The programs read the kernel's own task, whoever its users are."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mariadbd", "mariadb-install-db"):
        wrapper = programs / name
        wrapper.write_text(f'#!/bin/sh\nexec unshare -U -r {shutil.which(name)} "$@"\n')
        wrapper.chmod(0o755)
    with (
        or_skip(),
        mariadb_server(programs=programs) as server,
        recording(tmp_path / "t", f"--pid={server.pid}"),
    ):
        Story(server).row_lock()
    assert waits_of(tmp_path / "t", "update waits_rows").index[0] == "wait_lock_ns"


def test_a_cursor_does_not_wait_between_its_fetches(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    with (
        recording(tmp_path / "t", f"--pid={postgres.pid}"),
        closing(postgres.connect()) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("begin")
        cursor.execute("declare c cursor for select * from generate_series(1, 1000)")
        for _ in range(2):
            cursor.execute("fetch 10 from c")
            time.sleep(SLOW_S)
        cursor.execute("commit")
    run = Run(tmp_path / "t")
    fetches = check_waits(run.trace)
    fetches = fetches[fetches["query"].isin(run.having("fetch")["query"])]
    assert len(fetches) == 2
    assert (fetches["latency_ns"] < SLOW_S * 1e9).all()


# ---- helpers: PostgreSQL's parallel workers ------------------------------------------------------

PARALLEL = (
    "set parallel_setup_cost = 0",
    "set parallel_tuple_cost = 0",
    "set min_parallel_table_scan_size = 0",
    "set parallel_leader_participation = off",
    "set jit = off",
)
WORKERS = 2
SLEEPS = 5


def _workers(server: DatabaseServer) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        of_server = psutil.Process(server.pid).children()
        return [
            process for process in of_server if "parallel worker" in " ".join(process.cmdline())
        ]
    return []


def _run_delays(server: DatabaseServer, until_set: threading.Event) -> dict[int, int]:
    """For each worker, how long it had waited for a CPU when it was seen last, in ns
    (Documentation/scheduler/sched-stats.rst).
    """
    delays: dict[int, int] = {}
    while not until_set.wait(0.005):
        for worker in _workers(server):
            with suppress(OSError):
                _, delay_ns, _ = Path(f"/proc/{worker.pid}/schedstat").read_text().split()
                delays[worker.pid] = int(delay_ns)
    return delays


def test_helpers_are_in_the_cpu_time_and_their_waits_are_thread_time(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    """The leader waits only for its workers, and these for CPUs: as long as the kernel counts."""
    done, delays = threading.Event(), dict[int, int]()
    watch = threading.Thread(target=lambda: delays.update(_run_delays(postgres, done)))
    with closing(postgres.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("create table helped as select g from generate_series(1, 4000000) g")
        for setting in PARALLEL:
            cursor.execute(setting)
        with busy(1), recording(tmp_path / "t", f"--pid={postgres.pid}"):
            watch.start()
            cursor.execute("select sum(sqrt(g)) from helped")
            done.set()
            watch.join()
    trace = Run(tmp_path / "t").trace
    assert len(check_waits(trace))
    helpers = check_helpers(trace).set_index("pid")
    assert len(helpers) == len(delays) == WORKERS
    for pid, delay_ns in delays.items():
        waited_ns = helpers["wait_run_queue_ns"][pid]
        assert waited_ns == pytest.approx(delay_ns, rel=0.1, abs=5e7), helpers.to_string()
    assert helpers["wait_run_queue_ns"].sum() > 0.2 * helpers["helped_ns"].sum()
    (row,) = (row for row in attribute(tmp_path / "t")["rows"] if "sqrt" in row["shape"])
    assert row["cpu_ns"] > 2 * row["ran_ns"]
    waits_ns = {name: row[name] for name in WAITS}
    assert max(waits_ns, key=waits_ns.__getitem__) == "wait_other_ns", waits_ns
    assert row["helpers_ns"] == helpers["helped_ns"].sum()
    assert {name: row[f"helpers_{name}"] for name in WAITS} == helpers[WAITS].sum().to_dict()


def test_the_live_view_sums_what_helpers_waited_for(postgres: DatabaseServer) -> None:
    """Each statement has one worker, which sleeps in its place."""
    with closing(postgres.connect()) as connection, live_top(f"--pid={postgres.pid}") as top:
        newer = connection.info.server_version >= 160000
        connection.execute(f"set {'debug_parallel_query' if newer else 'force_parallel_mode'} = on")
        for _ in range(SLEEPS):
            connection.execute("select pg_sleep(0.2)")
        connection.execute("select 1 as last_one")
        snapshots = top.finish(lambda row: "last_one" in row["shape"])
    rows = [row for snapshot in snapshots for row in snapshot["interval"]["rows"]]
    sleeps = [row for row in rows if "pg_sleep" in row["shape"]]
    assert sum(row["calls"] for row in sleeps) == SLEEPS
    helped = [row for row in sleeps if row["helpers_ns"]]
    slept_ns = sum(row["helpers_wait_sleep_ns"] for row in helped)
    assert slept_ns == pytest.approx(SLEEPS * 2e8, rel=0.1)
    for row in helped:
        parts = (ns for name, ns in row.items() if re.fullmatch("helpers_(ran|wait_.*)_ns", name))
        assert sum(parts) == row["helpers_ns"]


@pytest.mark.parametrize("ends", ["the helper", "the trace"])
def test_a_helper_that_is_killed_or_still_waits(
    ends: str, postgres: DatabaseServer, tmp_path: Path
) -> None:
    """A worker that sleeps is terminated, or tracing ends meanwhile."""
    with closing(postgres.connect()) as connection, ExitStack() as stack:
        newer = connection.info.server_version >= 160000
        connection.execute(f"set {'debug_parallel_query' if newer else 'force_parallel_mode'} = on")
        stack.enter_context(recording(tmp_path / "t", f"--pid={postgres.pid}"))
        sleeper = threading.Thread(target=_sleeps, args=(connection,))
        sleeper.start()
        until(lambda: _workers(postgres))
        time.sleep(SLOW_S)
        if ends == "the trace":
            stack.close()
        for worker in _workers(postgres):
            worker.terminate()
        sleeper.join()
    (helper,) = check_helpers(Trace(tmp_path / "t")).to_dict("records")
    assert helper["wait_sleep_ns"] == pytest.approx(helper["helped_ns"], rel=0.1)
    assert helper["helped_ns"] > SLOW_S * 0.9e9


def _sleeps(connection: psycopg.Connection) -> None:
    with suppress(psycopg.Error):
        connection.execute("select pg_sleep(30)")


def test_where_segments_are_lost_waits_are_still_within_the_latency(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """A small ring, which nobody empties for a while, is full in the middle of a wait."""
    with recording(tmp_path / "t", f"--pid={mariadb.pid}", "--ring-mb", "1") as recorder:
        stopped = psutil.Process(recorder.tracer_pid)
        stopped.suspend()
        try:
            at_once(_many_statements, [mariadb] * 4)
            Story(mariadb).row_lock()
        finally:
            stopped.resume()
        Story(mariadb).sleep()
    run = Run(tmp_path / "t")
    assert run.loss
    queries = run.queries.dropna(subset=WAITS)
    waited_ns = queries[WAITS].astype("int64").sum(axis=1)
    assert (waited_ns <= queries["end_ns"] - queries["begin_ns"]).all()
    assert len(run.having("sleep("))


def _many_statements(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for _ in range(8000):
            cursor.execute("select 1")
            cursor.fetchall()
