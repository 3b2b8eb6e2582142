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
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer

TABLE_ROWS = 10_000  #: small enough for the buffer pool, so CPU is the limit and not the disk
#: Some 70 MB, of which the buffer pool holds a tenth; each commit waits for the disk.
DISK_ROWS = 300_000
DISK_BOUND = (
    "--innodb-flush-method=O_DIRECT",
    "--innodb-buffer-pool-size=8M",
    "--innodb-flush-log-at-trx-commit=1",
)
DISK_THREADS = 8  #: so that some always wait for the disk
PGBENCH_SCALE = 10  #: 10 branches, so that few clients rarely wait for one another


@dataclass(frozen=True)
class Workload:
    """A load. `target`: the share of its throughput that recording may cost."""

    name: str
    server: str
    script: tuple[str, ...]
    target: float
    statements: int = 1  #: of a transaction, BEGIN and COMMIT included
    #: Also compared with empty programs on the same hooks, and with options and attach modes.
    extreme: bool = False
    disk: bool = False  #: the server's disk is the limit, not the CPU


WORKLOADS = (
    Workload("oltp_read_only", "mariadb", ("oltp_read_only",), 0.02, 16),
    Workload("oltp_read_write", "mariadb", ("oltp_read_write",), 0.02, 20),
    Workload("oltp_point_select", "mariadb", ("oltp_point_select",), 0.04, extreme=True),
    Workload("oltp_disk_bound", "mariadb", ("oltp_read_write",), 0.02, 20, disk=True),
    Workload("tpcb-like", "postgres", ("-b", "tpcb-like"), 0.02, 7),
    Workload(
        "select-only-prepared",
        "postgres",
        ("-b", "select-only", "-M", "prepared"),
        0.04,
        extreme=True,
    ),
)


@contextmanager
def started(kind: str, *, disk: bool = False) -> Iterator[DatabaseServer]:
    """A server with its data loaded; removed afterwards. `disk`: as for disk-bound loads."""
    if kind == "mariadb":
        with mariadb_server(*(DISK_BOUND if disk else ())) as server:
            _load_sysbench(server, DISK_ROWS if disk else TABLE_ROWS)
            yield server
    else:
        # Its own statistics would be a cost that not every server pays.
        with postgres_server("shared_preload_libraries=", "ssl=off") as server:
            _run(_pgbench(server, "-i", "-q", "-s", str(PGBENCH_SCALE)))
            yield server


def command(workload: Workload, server: DatabaseServer, rate: int = 0) -> list[str]:
    """The generator's command: at full speed on all CPUs, or at `rate` a second."""
    threads = DISK_THREADS if workload.disk else os.cpu_count() or 1
    if workload.server == "mariadb":
        options = [f"--threads={threads}", "--time=0", "--report-interval=1", f"--rate={rate}"]
        rows = DISK_ROWS if workload.disk else TABLE_ROWS
        return _sysbench(server, workload.script[0], rows, *options, "run")
    limit = ["-R", str(rate)] if rate else []
    clients = ["-c", str(threads), "-j", str(threads)]
    return _pgbench(server, "-n", *workload.script, *clients, "-T", "86400", "-P", "1", *limit)


def _load_sysbench(server: DatabaseServer, rows: int) -> None:
    connection = server.connect()
    connection.cursor().execute("CREATE DATABASE sbtest")
    connection.close()
    _run(_sysbench(server, "oltp_read_write", rows, "prepare"))


def _sysbench(server: DatabaseServer, script: str, rows: int, *options: str) -> list[str]:
    program = shutil.which("sysbench")
    if program is None:
        raise QjouleError("sysbench is not installed: run 'make install'")
    where = ["--db-driver=mysql", f"--mysql-socket={server.socket}", "--mysql-user=root"]
    data = ["--mysql-db=sbtest", "--tables=1", f"--table-size={rows}"]
    return [program, script, *where, *data, *options]


def _pgbench(server: DatabaseServer, *options: str) -> list[str]:
    # Next to the server: the one on PATH is a wrapper that first looks for clusters.
    program = Path(server.argv[0]).with_name("pgbench")
    where = ["-h", str(server.directory), "-p", str(server.port), "-U", "postgres"]
    return [str(program), *options, *where, "postgres"]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()
        raise QjouleError(f"{command[0]} cannot load its data: {output[-500:]}")
