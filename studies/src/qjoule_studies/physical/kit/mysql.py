# SPDX-License-Identifier: Apache-2.0
"""MariaDB in the kit: one thread for each connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qjoule_studies.physical import load
from qjoule_studies.physical.experiment import pin
from qjoule_studies.physical.kit.loads import KitServer, program

PRODUCT = "mariadb"
ORDER = 0
#: A quarter of a millisecond of SHA-512; and a pause, in which the core may sleep.
_BURST = ("SELECT BENCHMARK(400, SHA2('qjoule', 512)) AS burst;", "DO SLEEP(0.0007);")
_VISITS = 20_000  #: rows that one query of `memory` visits


def _memory(rows: int) -> str:
    """Load B of the short test in shorter queries, so that each run has many."""
    shorter = load.B.sql.replace(f"seq_1_to_{load.VISITS}", f"seq_1_to_{_VISITS}")
    return f"{shorter.replace('@rows', str(rows))};"


@contextmanager
def start(directory: Path, table_bytes: int, cpus: set[int]) -> Iterator[KitServer]:  # noqa: ARG001
    """See `loads.Starter`. It makes a directory of its own."""
    with load.mariadb(table_bytes) as server:
        pin(server.pid, cpus)
        load.prepare(server, table_bytes)
        rows = max(table_bytes // load.ROW_BYTES, load.VISITS)
        where = ("--host=127.0.0.1", f"--port={server.port}", f"--user={server.user}")
        yield KitServer(
            product=PRODUCT,
            pid=server.pid,
            dialect="mysql",
            statements={
                "computing": (f"{load.A.sql};",),
                "memory": (_memory(rows),),
                "bursts": _BURST,
            },
            client=(program("mariadb"), "--no-defaults", "--batch", *where, server.database),
            environment={"MYSQL_PWD": server.password},
        )
