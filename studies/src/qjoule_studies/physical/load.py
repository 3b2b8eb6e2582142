# SPDX-License-Identifier: Apache-2.0
"""The two loads: one computes, the other waits for memory. Each is a client that repeats a query.

The clients are the server's own command-line client. Each has one connection, hence one thread of
the server, and sends the next query as soon as it has its answer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from qjoule.api import QjouleError
from qjoule.api.servers import fingerprint, registry
from qjoule_studies.servers import start
from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.workload import Target, Value

DATABASE = "physical"
#: A row of the table that B visits, with its share of the hash index, in bytes.
ROW_BYTES = 100
VISITS = 100_000  #: rows that one query of B visits
STRIDE = 2_654_435_761  #: prime, near 2**32 / golden ratio (Knuth, TAOCP 3, 6.4): far jumps
_STOP_S = 10.0


@dataclass(frozen=True)
class Query:
    """A load: its name, and the statement that it repeats."""

    name: str
    does: str
    sql: str

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.sql.encode(), registry.dialect("mysql")).fingerprint


#: SHA-512 of one short text, repeated: everything is in registers and the first-level cache.
A = Query("A", "computes", "SELECT BENCHMARK(100000, SHA2('qjoule', 512))")
#: Reads rows of a hash table that are far apart; it is larger than the cache, so B waits for
#: memory.
B = Query(
    "B",
    "reads memory",
    f"SELECT COUNT(*) FROM seq_1_to_{VISITS} AS visit STRAIGHT_JOIN rows_far_apart AS far "
    f"ON far.id = (visit.seq * {STRIDE}) % @rows",
)


@dataclass(frozen=True)
class Run:
    """A finished load: its begin and end (CLOCK_MONOTONIC, ns), and number of queries by name."""

    t0_ns: int
    t1_ns: int
    calls: dict[str, int]

    def rate(self, name: str) -> float:
        """Queries per second."""
        return self.calls.get(name, 0) / max((self.t1_ns - self.t0_ns) * 1e-9, 1e-9)


class Client:
    """One connection of the command-line client. Use it as a context: it ends the process."""

    def __init__(self, server: Target) -> None:
        program = shutil.which("mariadb") or shutil.which("mysql")
        if program is None:
            raise QjouleError("the client mariadb is not installed: package mariadb-client-core")
        where = ["--host=127.0.0.1", f"--port={server.port}", f"--user={server.user}"]
        form = ["--no-defaults", "--batch", "--skip-column-names", "--unbuffered"]
        self._process = subprocess.Popen(
            [program, form[0], *where, *form[1:], server.database],
            env={**os.environ, "MYSQL_PWD": server.password},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only us
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def query(self, sql: str) -> str:
        """Runs one statement with one row of answer. Raises `QjouleError` with the server's
        message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(sql.encode() + b";\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = b""
        if not answer:
            raise QjouleError(f"the server did not answer: {self._last_message()}")
        return answer.decode(errors="replace").strip()

    def _last_message(self) -> str:
        self._process.kill()
        output = self._process.communicate()[1] if self._process.returncode is None else b""
        return output.decode(errors="replace").strip() or "it ended"


def prepare(server: Target, table_bytes: int) -> None:
    """Makes the table that B visits: about `table_bytes` of the server's memory."""
    rows = max(table_bytes // ROW_BYTES, VISITS)
    with Client(server) as client:
        client.query(
            "CREATE TABLE rows_far_apart (id INT UNSIGNED NOT NULL, filler CHAR(64) NOT NULL, "
            "PRIMARY KEY (id) USING HASH) CHARACTER SET latin1 ENGINE=MEMORY "
            f"MAX_ROWS={rows}; INSERT INTO rows_far_apart "
            f"SELECT seq, 'qjoule' FROM seq_0_to_{rows - 1}; SELECT COUNT(*) FROM rows_far_apart"
        )


@contextmanager
def mariadb(table_bytes: int) -> Iterator[Target]:
    """A MariaDB of our own, with room for what `prepare` makes, and a database for it.

    Raises `QjouleError` if it is not installed or does not start.
    """
    settings: dict[str, Value] = {
        # Twice the size, because a hash index grows in steps.
        "max-heap-table-size": 2 * max(table_bytes, VISITS * ROW_BYTES),
        "innodb-buffer-pool-size": "16M",
    }
    with start("mariadb", settings) as server:
        connect_target(server, DATABASE).close()
        yield replace(server, database=DATABASE)


def run(server: Target, queries: Iterable[Query], rows: int, seconds: float) -> Run:
    """Runs the loads at the same time for `seconds`. Raises `QjouleError` if one of them fails."""
    chosen = list(queries)
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server)) for _ in chosen]
        for client in clients:
            client.query(f"SET @rows = {rows}; SELECT 1")
        start_ns = time.monotonic_ns()
        end_ns = start_ns + round(seconds * 1e9)
        workers = [_Worker(c, q, end_ns) for c, q in zip(clients, chosen, strict=True)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(seconds + _STOP_S)
    if failed := [w.error for w in workers if w.error is not None]:
        raise QjouleError(str(failed[0]))
    return Run(start_ns, end_ns, {w.query.name: w.calls for w in workers})


class _Worker(threading.Thread):
    """Repeats one query until the time is over."""

    def __init__(self, client: Client, query: Query, end_ns: int) -> None:
        super().__init__(name=f"qjoule-load-{query.name}", daemon=True)
        self.client, self.query, self.end_ns = client, query, end_ns
        self.calls = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while time.monotonic_ns() < self.end_ns:
                self.client.query(self.query.sql)
                self.calls += 1
        except Exception as error:  # reported by the thread that waits for us
            self.error = error
