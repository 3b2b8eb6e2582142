# SPDX-License-Identifier: Apache-2.0
"""More shapes than a trace distinguishes: memory stays bounded, and no call is lost silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing.mysql_client import mysql_client
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
SHAPES = 100_000  #: more than a trace distinguishes (stream/statements.py, MAX_SHAPES)


def test_very_many_shapes(mariadb: DatabaseServer, tmp_path: Path) -> None:
    with recording(tmp_path / "t", "--pid", str(mariadb.pid)) as recorder:
        with mysql_client(mariadb.socket) as client:
            for number in range(SHAPES):
                client.query(b"select 1 as m_shape_%d" % number)
        tracer_kb = _peak_kb(recorder.tracer_pid)
        reader_kb = _peak_kb(recorder.command_pid)
    run = Run(tmp_path / "t")
    lost = run.loss.get("query", 0)  # a new text takes 4 KB of the ring: a burst may fill it
    assert run.queries["executions"].sum() + lost == SHAPES
    assert run.trace.rows("shapes") < SHAPES
    assert "other" in set(run.queries["fingerprint"].dropna())
    # Rings, and a few MB waiting for the reader. The texts, at 4 KB per record, took 400 MB of
    # them.
    assert tracer_kb < 64 << 10
    assert reader_kb < 1 << 20
    document = attribute(tmp_path / "t")
    assert sum(row["calls"] for row in document["rows"]) == SHAPES - lost


def _peak_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no memory")
