# SPDX-License-Identifier: Apache-2.0
"""What queries of real servers wait for: the parts add up to the latency of every query, and the
cause that was planted is the first one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from qjoule.trace.vocabulary import WAITS
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import Run, at_once, check_waits, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

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
            "insert into waits_rows values (1, 1), (2, 2)",
        )

    @property
    def is_postgres(self) -> bool:
        return self.server.name == "postgres"

    @property
    def database(self) -> tuple[str, ...]:
        return () if self.is_postgres else ("create database if not exists waits", "use waits")

    def held(self, *texts: str) -> None:
        """Executes the planted statement while another session holds what it needs."""
        self.table()
        holder = self.server.connect()
        with closing(holder), holder.cursor() as cursor:
            for text in (*self.database, *texts):
                cursor.execute(text)
            timer = threading.Timer(HOLD_S, lambda: cursor.execute("rollback"))
            timer.start()
            update = "update waits_rows set n = n + 1 where id = 1 /* planted */"
            self.execute(*self.database, update)
            timer.join()

    def row_lock(self) -> None:
        self.held("begin", "update waits_rows set n = 7 where id = 1")

    def table_lock(self) -> None:
        """In MySQL a lock of the table's definition, for which it waits in pieces of a second."""
        how = ("lock table waits_rows in access exclusive mode",)
        self.held("begin", *(how if self.is_postgres else ("select n from waits_rows",)))

    def sleep(self) -> None:
        self.execute("select pg_sleep(0.5)" if self.is_postgres else "select sleep(0.5)")


def first(trace_of: Path, word: str) -> str:
    run = Run(trace_of)
    whole = check_waits(run.trace)
    texts = run.trace.pandas("shapes").set_index("shape")["text"]
    planted = whole[whole["shape"].map(texts).str.contains(word, regex=False).fillna(value=False)]
    assert len(planted)
    print(planted[["latency_ns", *WAITS]].to_string())
    return str(planted[WAITS].astype("int64").sum().idxmax())


SERVERS = ("mariadb", "mysql80", "postgres")


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(
    ("plant", "word", "kind"),
    [
        (Story.row_lock, "update waits_rows", "wait_lock_ns"),
        (Story.sleep, "sleep(", "wait_sleep_ns"),
    ],
    ids=("row-lock", "sleep"),
)
def test_the_planted_cause_is_first(
    name: str,
    plant: Callable[[Story], None],
    word: str,
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with recording(tmp_path / "t", f"--pid={server.pid}"):
        plant(Story(server))
    assert first(tmp_path / "t", word) == kind
