# SPDX-License-Identifier: Apache-2.0
"""No value that a client sent is on the disk, in whichever position it was sent."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from qjoule.spool.files import is_captured
from qjoule_studies.servers.process import DatabaseServer
from tracing.canaries import (
    Canaries,
    in_files,
    in_tables,
    plant_in_mariadb,
    plant_in_postgres,
    plant_in_redis,
)
from tracing.recording import Run, qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
PLANTS = {"mariadb": plant_in_mariadb, "postgres": plant_in_postgres, "redis": plant_in_redis}


@pytest.mark.parametrize(
    "options", [(), ("--rung", "symbol", "--children", "--ids"), ("--keep", "30s")]
)
def test_no_canary_is_on_the_disk(
    mariadb: DatabaseServer,
    postgres: DatabaseServer,
    redis: DatabaseServer,
    tmp_path: Path,
    options: tuple[str, ...],
) -> None:
    servers = {"mariadb": mariadb, "postgres": postgres, "redis": redis}
    traced = {n: s for n, s in servers.items() if "symbol" not in options or n != "redis"}
    pids = [f"--pid={server.pid}" for server in traced.values()]
    later = () if "--keep" in options else ("--convert", "later")
    canaries = Canaries()
    with recording(tmp_path / "t", *pids, *later, *options) as recorder:
        for name, server in traced.items():
            PLANTS[name](server, canaries)
        assert len(canaries) > 50
        time.sleep(1)
        assert in_files(canaries, tmp_path) == [], "while it is recorded"
    assert canaries.found_in(recorder.said.encode()) == []
    trace = tmp_path / "t"
    if "--keep" in options:
        dumped = qjoule("dump", str(trace))
        assert dumped.returncode == 0, dumped.stderr
        trace = Path(dumped.stdout.strip())
    assert is_captured(trace)
    assert in_files(canaries, tmp_path) == []
    done = qjoule("convert", str(trace))
    assert done.returncode == 0, done.stderr
    assert in_files(canaries, tmp_path) == []
    assert in_tables(canaries, trace) == []
    run = Run(trace)
    for marker in ("m_single", "m_comment", "m_line"):
        assert len(run.having(marker)), f"{marker} was not recorded"
