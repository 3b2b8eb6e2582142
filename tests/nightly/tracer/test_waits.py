# SPDX-License-Identifier: Apache-2.0
"""What queries of real servers wait for: the parts add up to the latency of every query, and the
cause that was planted is the first one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil
import pymysql
import pytest

from qjoule.trace.vocabulary import WAITS
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from tracing.postgres_client import postgres_client, query
from tracing.recording import Run, at_once, check_waits, recording
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]

SLOW_S = 0.7
HOLD_S = 1.3  #: a lock is held; longer than the pieces of a second in which MySQL waits for some
BUSY = "while True: pass"


# ---- the law: latency = what the thread ran + what it waited for ------------------------------


def statements(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(200):
            cursor.execute(f"select {number} as waits_plain")
            cursor.fetchall()


@pytest.mark.parametrize(
    ("name", "attach_mode", "work"),
    [
        ("mariadb", "socket", statements),
        ("mariadb", "symbol", statements),
        ("mariadb_pool", "symbol", statements),
        ("mysql80", "symbol", statements),
        ("postgres", "socket", statements),
        ("postgres", "symbol", statements),
    ],
)
def test_parts_add_up_to_the_latency_of_every_query(
    name: str,
    attach_mode: str,
    work: Callable[[DatabaseServer], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """Four clients on fewer CPUs, beside a busy process: their threads are preempted."""
    server: DatabaseServer = request.getfixturevalue(name)
    with busy(1), recording(tmp_path / "t", f"--pid={server.pid}", "--attach", attach_mode):
        at_once(work, [server] * 4)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert len(check_waits(run.trace)) == len(run.queries)


# ---- planted causes ----------------------------------------------------------------------------


@contextmanager
def busy(per_cpu: int) -> Iterator[None]:
    """Processes that keep every CPU busy."""
    with ExitStack() as stack:
        for cpu in sorted(os.sched_getaffinity(0)) * per_cpu:
            loop = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}])\n{BUSY}"]
            process = stack.enter_context(subprocess.Popen(loop))
            stack.callback(process.kill)
        yield


class Story:
    """Plants a cause for the one statement with the word `planted`."""

    def __init__(self, server: DatabaseServer) -> None:
        self.server = server

    def execute(self, *texts: str) -> None:
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            for text in texts:
                cursor.execute(text)
            connection.commit()

    def table(self) -> None:
        self.execute(
            *self.database,
            "drop table if exists waits_rows",
            "create table waits_rows (id int primary key, n int)",
            "insert into waits_rows values (1, 1), (2, 2), (3, 3), (4, 4)",
        )

    @property
    def is_postgres(self) -> bool:
        return self.server.name == "postgres"

    @property
    def database(self) -> tuple[str, ...]:
        return () if self.is_postgres else ("create database if not exists waits", "use waits")

    def held(self, wanting: str, *texts: str) -> None:
        """Executes the statement `wanting` while another session holds what it needs."""
        self.table()
        holder = self.server.connect()
        with closing(holder), holder.cursor() as cursor:
            for text in (*self.database, *texts):
                cursor.execute(text)
            timer = threading.Timer(HOLD_S, lambda: cursor.execute("rollback"))
            timer.start()
            self.execute(*self.database, wanting)
            timer.join()

    def row_lock(self) -> None:
        update = "update waits_rows set n = {} where id = 1"
        self.held(update.format(8), "begin", update.format(7))

    def table_lock(self) -> None:
        """In MySQL a metadata lock, for which it waits in pieces of a second."""
        self.held("alter table waits_rows add m int", "begin", "select n from waits_rows")

    def sleep(self) -> None:
        self.execute("select pg_sleep(0.5)" if self.is_postgres else "select sleep(0.5)")

    def busy_machine(self) -> None:
        """Three processes on each CPU. The kernel's schedstats may be off, or not built."""
        with busy(2):
            work = "count(*) from generate_series(1, 3000000)"
            self.execute(f"select {work if self.is_postgres else 'benchmark(3000000, md5(1))'}")

    def slow_client(self) -> None:
        """It reads 1 KB, then nothing for a while, and then the rest of some 30 MB."""
        if self.is_postgres:
            with postgres_client(self.server.port) as client:
                client.send(query(b"select repeat('x', 1000) from generate_series(1, 30000)"))
                time.sleep(SLOW_S)
                client.replies()
            return
        columns = "information_schema.columns"
        with (
            closing(self.server.connect()) as connection,
            connection.cursor(pymysql.cursors.SSCursor) as cursor,
        ):
            cursor.execute(f"select repeat('x', 1000) from {columns} a, {columns} b limit 30000")
            cursor.fetchone()
            time.sleep(SLOW_S)
            cursor.fetchall()


def waits_of(directory: Path, word: str) -> pd.Series:
    """What the statements with this word waited for, in ns by kind, the first one first."""
    run = Run(directory)
    waited = check_waits(run.trace)
    planted = waited[waited["query"].isin(run.having(word)["query"])]
    assert len(planted)
    return planted[WAITS].astype("int64").sum().sort_values(ascending=False)


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
    """Of several at once, those that do not write the log wait for the one that does: a lock."""
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
