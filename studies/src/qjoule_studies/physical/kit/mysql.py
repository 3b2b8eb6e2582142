# SPDX-License-Identifier: Apache-2.0
"""MariaDB in the kit: one thread for each connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from qjoule_studies.physical.kit.loads import ROW_BYTES, STRIDE, KitServer, program
from qjoule_studies.physical.machine import pin
from qjoule_studies.servers import start as start_server
from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.workload import Target, Value

PRODUCT = "mariadb"
ORDER = 0
_DATABASE = "physical"
_LEAST_ROWS = 100_000
_VISITS = 20_000  #: rows that one query of `memory` visits


@contextmanager
def start(directory: Path, table_bytes: int, cpus: set[int]) -> Iterator[KitServer]:  # noqa: ARG001
    """See `loads.Starter`. It makes a directory of its own."""
    rows = max(table_bytes // ROW_BYTES, _LEAST_ROWS)
    settings: dict[str, Value] = {
        # Twice the size, because a hash index grows in steps.
        "max-heap-table-size": 2 * rows * ROW_BYTES,
        "innodb-buffer-pool-size": "16M",
    }
    with start_server(PRODUCT, settings) as server:
        pin(server.pid, cpus)
        _fill(server, rows)
        where = ("--host=127.0.0.1", f"--port={server.port}", f"--user={server.user}")
        yield KitServer(
            product=PRODUCT,
            pid=server.pid,
            dialect="mysql",
            statements=_statements(rows),
            client=(program("mariadb"), "--no-defaults", "--batch", *where, _DATABASE),
            environment={"MYSQL_PWD": server.password},
        )


def _fill(server: Target, rows: int) -> None:
    """Makes the table that `memory` visits."""
    with closing(connect_target(server, _DATABASE)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE rows_far_apart (id INT UNSIGNED NOT NULL, filler CHAR(64) NOT NULL, "
            "PRIMARY KEY (id) USING HASH) CHARACTER SET latin1 ENGINE=MEMORY "
            f"MAX_ROWS={rows}"
        )
        cursor.execute(f"INSERT INTO rows_far_apart SELECT seq, 'qjoule' FROM seq_0_to_{rows - 1}")


def _statements(rows: int) -> dict[str, tuple[str, ...]]:
    """SHA-512 of one short text, repeated: everything is in registers and the first-level cache.
    Rows of a hash table that are far apart: it is larger than the cache, so they wait for memory.
    A quarter of a millisecond of SHA-512; and a pause, in which the core may sleep.
    """
    return {
        "computing": ("SELECT BENCHMARK(100000, SHA2('qjoule', 512));",),
        "memory": (
            f"SELECT COUNT(*) FROM seq_1_to_{_VISITS} AS visit STRAIGHT_JOIN rows_far_apart AS far "
            f"ON far.id = (visit.seq * {STRIDE}) % {rows};",
        ),
        "bursts": ("SELECT BENCHMARK(400, SHA2('qjoule', 512)) AS burst;", "DO SLEEP(0.0007);"),
    }
