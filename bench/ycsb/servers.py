# SPDX-License-Identifier: Apache-2.0
"""Servers, their drivers in go-ycsb, and settings that make CPU the limit of throughput.

Workload A of YCSB: half reads, half updates of a field, zipfian; ten fields of 100 bytes. Cooper et
al., Benchmarking Cloud Serving Systems with YCSB, SoCC 2010; workloads/workloada of
github.com/brianfrankcooper/YCSB. Fields and their lengths are YCSB's defaults.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from qjoule.errors import QjouleError
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.redis import redis_server
from servers.databases import cassandra_server, mysql_server
from servers.fetched.go_programs import goycsb
from servers.mongodb import ferretdb_server

RECORDS = 10_000  #: small enough for memory, so CPU is the limit and not the disk
#: Several for each CPU, so that none idles while a connection waits for its turn.
CONNECTIONS = 4 * (os.cpu_count() or 1)
PROPERTIES = {
    "recordcount": RECORDS,
    "operationcount": 2_000_000_000,  # the run is ended before this
    "readallfields": "true",
    "readproportion": 0.5,
    "updateproportion": 0.5,
    "scanproportion": 0,
    "insertproportion": 0,
    "requestdistribution": "zipfian",
}
#: A line of YCSB's report: operations of each kind since the beginning, in alphabetical order.
LINE = re.compile(rb"^(READ|UPDATE|\w+_ERROR) *- .*?\bCount: (\d+)")


def reports() -> Callable[[bytes, float], float | None]:
    """Reads the reports of one run; see `bench.overhead.generator.Reports`."""
    reads = last = 0

    def read(line: bytes, _seconds: float) -> float | None:
        nonlocal reads, last
        match = LINE.match(line)
        if not match:
            return None
        if match[1].endswith(b"_ERROR"):
            raise QjouleError(f"YCSB's operations fail: {line.decode(errors='replace').strip()}")
        if match[1] == b"READ":
            reads = int(match[2])
            return None
        total = reads + int(match[2])
        done, last = total - last, total
        return float(done)

    return read


DATABASE = "ycsb"
#: Loading either fails within a second or takes a few.
_LOAD_S = 120


@dataclass(frozen=True)
class Served:
    """A server under this load. `prepare` creates what the driver expects."""

    name: str
    driver: str
    start: Callable[[], AbstractContextManager[DatabaseServer]]
    properties: Callable[[DatabaseServer], Mapping[str, object]]
    prepare: Callable[[DatabaseServer], None] | None = None
    connections: int = CONNECTIONS

    @contextmanager
    def loaded(self) -> Iterator[DatabaseServer]:
        """The server with its records loaded; removed afterwards.

        Raises:
            QjouleError: the records cannot be loaded.
            Unavailable: the server or go-ycsb is not available.
        """
        goycsb.installation()
        with self.start() as server:
            if self.prepare is not None:
                self.prepare(server)
            command = self.command(server, "load")
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=_LOAD_S
                )
            except subprocess.TimeoutExpired:
                raise QjouleError(f"{self.name}: loading did not end in {_LOAD_S} s") from None
            if done.returncode or "INSERT " not in done.stdout or "ERROR" in done.stdout:
                output = (done.stdout + done.stderr).strip()
                raise QjouleError(f"{self.name}: go-ycsb cannot load its data: {output[-500:]}")
            yield server

    def command(self, server: DatabaseServer, action: str, target: int = 0) -> list[str]:
        """go-ycsb's arguments: `load`, or `run` at full speed or at `target` operations a
        second.
        """
        command = [str(goycsb.installation() / "go-ycsb"), action, self.driver]
        command += ["--threads", str(self.connections), "--interval", "1"]
        if target:
            command += ["--target", str(target)]
        # Otherwise it would listen for a profiler on a well-known port.
        properties = {**PROPERTIES, "debug.pprof": "127.0.0.1:0", **self.properties(server)}
        for name, value in properties.items():
            command += ["-p", f"{name}={value}"]
        return command


def _mysql_database(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection:
        connection.cursor().execute(f"CREATE DATABASE {DATABASE}")


def _keyspace(server: DatabaseServer) -> None:
    with closing(server.connect()) as client:
        client.execute(
            f"CREATE KEYSPACE {DATABASE} WITH replication = {{'class': 'SimpleStrategy', "
            "'replication_factor': 1}"
        )


def _mysql(server: DatabaseServer) -> Mapping[str, object]:
    return {"mysql.port": server.port, "mysql.db": DATABASE}


def _postgres(server: DatabaseServer) -> Mapping[str, object]:
    return {"pg.port": server.port, "pg.user": "postgres", "pg.db": "postgres"}


def _redis(server: DatabaseServer) -> Mapping[str, object]:
    where = {"redis.addr": f"127.0.0.1:{server.port}", "redis.pool_size": CONNECTIONS}
    return {**where, "redis.datatype": "hash"}


def _mongodb(server: DatabaseServer) -> Mapping[str, object]:
    return {"mongodb.url": f"mongodb://127.0.0.1:{server.port}/{DATABASE}?w=1"}


def _cassandra(server: DatabaseServer) -> Mapping[str, object]:
    where = {"cassandra.cluster": f"127.0.0.1:{server.port}"}
    return {**where, "cassandra.keyspace": DATABASE, "cassandra.connections": CONNECTIONS}


# No server waits for the disk at each commit, and none keeps statistics that are not common to all.
_POSTGRES = partial(postgres_server, "shared_preload_libraries=", "ssl=off")
_MYSQL = partial(mysql_server, "--skip-ssl", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0")
SERVED = (
    Served("mariadb", "mysql", mariadb_server, _mysql, _mysql_database),
    Served("mysql", "mysql", _MYSQL, _mysql, _mysql_database),
    Served("postgres", "pg", _POSTGRES, _postgres),
    Served("redis", "redis", redis_server, _redis),
    # SQLite has one writer at a time, and fails those that have waited for too long.
    Served("ferretdb", "mongodb", ferretdb_server, _mongodb, connections=1),
    Served("cassandra", "cassandra", cassandra_server, _cassandra, _keyspace),
)
