# SPDX-License-Identifier: Apache-2.0
"""`qjoule top`, attached while pgbench already executes the statements that it has prepared."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.process import DatabaseServer
from tracing.live_top import live_top
from tracing.postgres_story import pgbench

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(180)]

CLIENTS, SNAPSHOTS = 4, 6
SHAPE = "select abalance from pgbench_accounts"  #: as it begins


@contextmanager
def _prepared_load(server: DatabaseServer) -> Iterator[None]:
    """pgbench -M prepared, with all of its statements prepared."""
    binary = Path(server.argv[0]).with_name("pgbench")
    where = ["-h", str(server.directory), "-p", str(server.port), "-U", "postgres"]
    how = ["-n", "-S", "-M", "prepared", "-c", str(CLIENTS), "-T", "120", "-R", "400"]
    load = subprocess.Popen(
        [str(binary), *where, *how, "postgres"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with closing(server.connect()) as observer:
            deadline = time.monotonic() + 30
            while _working(observer) < CLIENTS:
                assert time.monotonic() < deadline, "pgbench does not work"
                time.sleep(0.1)
        time.sleep(1)
        yield
    finally:
        load.kill()
        load.wait()


def _working(observer: Any) -> int:
    found = observer.execute(
        "select count(*) from pg_stat_activity where application_name = 'pgbench' and query <> ''"
    )
    (row,) = found.fetchall()
    return int(row[0])


@pytest.mark.parametrize("rung", ["socket", "symbol"])
def test_rows_of_statements_prepared_before_have_texts(postgres: DatabaseServer, rung: str) -> None:
    """In every snapshot, the first one included: at least 99 % of the calls.

    Not of the CPU time: the server's own processes may use some of it at any time.
    """
    pgbench(postgres, "-i", "-s", "1", "-q")
    options = "--pid", str(postgres.pid), "--rung", rung, "--energy", "none"
    with _prepared_load(postgres), live_top(*options) as top:
        top.wait_for(SNAPSHOTS)
        snapshots = top.snapshots[:SNAPSHOTS]
    for snapshot in snapshots:
        calls = Counter[str]()
        for row in snapshot["interval"]["rows"]:
            calls[row["shape"]] += row.get("calls") or 0
        known = sum(n for shape, n in calls.items() if shape.startswith(SHAPE))
        assert known >= 0.99 * calls.total() > 0, calls
