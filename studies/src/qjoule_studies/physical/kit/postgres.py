# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL in the kit: one process for each connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qjoule_studies.physical.kit.loads import ROW_BYTES, STRIDE, KitServer, program, run_statements
from qjoule_studies.physical.machine import pin
from qjoule_studies.servers import start as start_server

PRODUCT = "postgres"
ORDER = 1
_VISITS = 8_000  #: rows that one query of `memory` visits
_SETTINGS: dict[str, str | int | bool] = {
    "autovacuum": False,
    "jit": False,
    "max_parallel_workers_per_gather": 0,
    "enable_hashjoin": False,
    "enable_mergejoin": False,
    "enable_seqscan": False,
}


@contextmanager
def start(directory: Path, table_bytes: int, cpus: set[int]) -> Iterator[KitServer]:  # noqa: ARG001
    """See `loads.Starter`. It makes a directory of its own."""
    rows = max(table_bytes // ROW_BYTES, _VISITS)
    settings = _SETTINGS | {"shared_buffers": f"{2 * table_bytes >> 20}MB"}
    with start_server(PRODUCT, settings) as target:
        pin(target.pid, cpus)
        where = ("-h", target.host, "-p", str(target.port), "-U", target.user, "-d", "postgres")
        server = KitServer(
            product=PRODUCT,
            pid=target.pid,
            dialect="postgres",
            statements=_statements(rows),
            client=(
                program("psql", "/usr/lib/postgresql/*/bin/psql"),
                *("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *where),
            ),
            environment={"PGPASSWORD": target.password},
        )
        run_statements(
            server,
            "CREATE UNLOGGED TABLE rows_far_apart AS "
            f"SELECT id, 'qjoule'::char(40) AS filler FROM generate_series(0, {rows - 1}) AS id;\n"
            "CREATE UNIQUE INDEX ON rows_far_apart (id);\nANALYZE rows_far_apart;\n",
        )
        yield server


def _statements(rows: int) -> dict[str, tuple[str, ...]]:
    """A hash of numbers; a row of an index at each far jump; a short hash and a pause."""
    return {
        "computing": (
            "SELECT max(length(sha512(n::text::bytea))) FROM generate_series(1, 30000) AS n;",
        ),
        "memory": (
            f"SELECT count(far.filler) FROM generate_series(1, {_VISITS}) AS visit "
            f"JOIN rows_far_apart AS far ON far.id = (visit::bigint * {STRIDE}) % {rows};",
        ),
        "bursts": (
            "SELECT max(length(sha512(n::text::bytea))) AS burst FROM generate_series(1, 99) AS n;",
            "SELECT pg_sleep(0.0007);",
        ),
    }
