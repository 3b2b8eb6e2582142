# SPDX-License-Identifier: Apache-2.0
"""The loads: sysbench on MariaDB and pgbench on PostgreSQL, each with its server and data."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from servers.mariadb import mariadb_server
from servers.postgres import postgres_server
from servers.process import DatabaseServer

TABLE_ROWS = 10_000  #: small enough for the buffer pool, so CPU is the limit and not the disk
PGBENCH_SCALE = 10  #: 10 branches, so that few clients rarely wait for one another


@dataclass(frozen=True)
class Workload:
    """A load. `target`: the share of its throughput that tracing may cost."""

    name: str
    server: str
    script: tuple[str, ...]
    target: float
    extreme: bool = False  #: also compared with empty programs on the same hooks


WORKLOADS = (
    Workload("oltp_read_only", "mariadb", ("oltp_read_only",), 0.01),
    Workload("oltp_read_write", "mariadb", ("oltp_read_write",), 0.01),
    Workload("oltp_point_select", "mariadb", ("oltp_point_select",), 0.04, extreme=True),
    Workload("tpcb-like", "postgres", ("-b", "tpcb-like"), 0.01),
    Workload(
        "select-only-prepared", "postgres", ("-b", "select-only", "-M", "prepared"), 0.04, True
    ),
)


@contextmanager
def started(kind: str) -> Iterator[DatabaseServer]:
    """A server with its data loaded; removed afterwards."""
    if kind == "mariadb":
        with mariadb_server() as server:
            _load_sysbench(server)
            yield server
    else:
        # Its own statistics would be a cost that not every server pays.
        with postgres_server("shared_preload_libraries=", "ssl=off") as server:
            _run(_pgbench(server, "-i", "-q", "-s", str(PGBENCH_SCALE)))
            yield server


def command(workload: Workload, server: DatabaseServer, rate: int = 0) -> list[str]:
    """The generator's command: at full speed on all CPUs, or at `rate` a second."""
    threads = os.cpu_count() or 1
    if workload.server == "mariadb":
        options = [f"--threads={threads}", "--time=0", "--report-interval=1", f"--rate={rate}"]
        return _sysbench(server, workload.script[0], *options, "run")
    limit = ["-R", str(rate)] if rate else []
    clients = ["-c", str(threads), "-j", str(threads)]
    return _pgbench(server, "-n", *workload.script, *clients, "-T", "86400", "-P", "1", *limit)


def queries(server: DatabaseServer) -> int:
    """Statements that the server has executed, by its own count (PostgreSQL: transactions)."""
    connection = server.connect()
    try:
        cursor = connection.cursor()
        if server.name == "mariadb":
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(cursor.fetchone()[1])
        cursor.execute("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
        return int(cursor.fetchone()[0])
    finally:
        connection.close()


def _load_sysbench(server: DatabaseServer) -> None:
    connection = server.connect()
    connection.cursor().execute("CREATE DATABASE sbtest")
    connection.close()
    _run(_sysbench(server, "oltp_read_write", "prepare"))


def _sysbench(server: DatabaseServer, script: str, *options: str) -> list[str]:
    program = shutil.which("sysbench")
    if program is None:
        raise QjouleError("sysbench is not installed: run 'make install'")
    where = ["--db-driver=mysql", f"--mysql-socket={server.socket}", "--mysql-user=root"]
    data = ["--mysql-db=sbtest", "--tables=1", f"--table-size={TABLE_ROWS}"]
    return [program, script, *where, *data, *options]


def _pgbench(server: DatabaseServer, *options: str) -> list[str]:
    # Next to the server: the one on PATH is a wrapper that first looks for clusters.
    program = Path(server.argv[0]).with_name("pgbench")
    where = ["-h", str(server.directory), "-p", str(server.port), "-U", "postgres"]
    return [str(program), *options, *where, "postgres"]


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()
        raise QjouleError(f"{words[0]} cannot load its data: {output[-500:]}")
