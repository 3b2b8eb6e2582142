# SPDX-License-Identifier: Apache-2.0
"""Causes for which a statement of a real server has to wait."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pandas as pd
import pymysql

from qjoule.commands.frame_names import trace_frame_names
from qjoule.engine.attribute import AttributionRequest
from qjoule.engine.flame import flame
from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stacks import RowStacks
from qjoule.trace.reader import Trace
from qjoule.trace.vocabulary import WAITS
from qjoule_studies.servers.process import DatabaseServer
from tracing.postgres_client import postgres_client, query
from tracing.recording import Run, check_waits

SLOW_S = 0.7
HOLD_S = 1.3  #: a lock is held; longer than the pieces of a second in which MySQL waits for some
BUSY = "while True: pass"


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

    def hold_lock(self, wanting: str, *texts: str) -> None:
        """Executes the statement `wanting` while another session holds the lock that it needs."""
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
        self.hold_lock(update.format(8), "begin", update.format(7))

    def table_lock(self) -> None:
        """In MySQL a metadata lock, for which it waits in pieces of a second."""
        self.hold_lock("alter table waits_rows add m int", "begin", "select n from waits_rows")

    def sleep(self) -> None:
        self.execute("select pg_sleep(0.5)" if self.is_postgres else "select sleep(0.5)")

    def busy_machine(self) -> None:
        """Runs three processes on each CPU. The kernel's schedstats may be off, or not built."""
        with busy(2):
            work = "count(*) from generate_series(1, 3000000)"
            self.execute(f"select {work if self.is_postgres else 'benchmark(3000000, md5(1))'}")

    def slow_client(self) -> None:
        """A client that reads 1 KB, pauses, and then reads the rest of some 30 MB."""
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


def waits_by_node(trace: Path, word: str) -> tuple[dict[str, dict[str, float]], RowStacks]:
    """What the nodes of the statement with this word waited for, in s, and its row."""
    read = Trace(trace)
    names = trace_frame_names(read, None)
    rows = flame(read, AttributionRequest(("fingerprint",)), names).rows
    row = max(
        (row for row in rows if word in row.row.shape and row.waits),
        key=lambda row: sum(wait_sum.total_ns for wait_sum in row.waits.values()),
    )
    return {
        str(node.name): {kind: ns / 1e9 for kind, ns in node.waits.by_kind_ns.items()}
        for node in plan_nodes(row)
    }, row
