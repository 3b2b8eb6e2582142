# SPDX-License-Identifier: Apache-2.0
"""`record --via` and `top --via`: another qjoule traces, and sends what it saw through pipes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.live_top import QJOULE, live_top
from tracing.recording import Run, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CALLS = 300
VIA = ("--via", f"env PATH={Path(QJOULE).parent}:{os.environ['PATH']}")


def test_a_recording_comes_whole_when_it_is_stopped(redis: DatabaseServer, tmp_path: Path) -> None:
    before = set(Path("/var/tmp").glob("qjoule-*"))
    output = tmp_path / "t"
    with redis.connect() as client, recording(output, *VIA, "--pid", str(redis.pid)) as recorder:
        for number in range(CALLS):
            client.set(f"via:{number}", "secret")
    assert Run(output).executions()["SET via:?"] == CALLS
    assert Run(output).trace.complete
    assert "MB from env" in recorder.said
    assert output.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [output]
    assert set(Path("/var/tmp").glob("qjoule-*")) == before


def test_a_program_there_prints_nothing_into_the_trace(
    redis: DatabaseServer, tmp_path: Path
) -> None:
    words = ["--pid", str(redis.pid), "--energy", "none", "-o", str(tmp_path / "t")]
    done = qjoule("record", *VIA, *words, "--", "sh", "-c", "cat; echo 'hello  you'; exit 7")
    assert done.returncode == 7, done.stderr
    assert "hello  you" in done.stderr and not done.stdout
    assert Run(tmp_path / "t").trace.complete


def test_the_view_counts_what_the_server_did(redis: DatabaseServer) -> None:
    with redis.connect() as client, live_top(*VIA, "--pid", str(redis.pid)) as top:
        for number in range(CALLS):
            client.set(f"seen:{number}", "secret")
        client.set("last", "")
        found = top.finish(lambda row: row["shape"] == "SET last")
    rows = [row for one in found for row in one["interval"]["rows"]]
    assert sum(row["calls"] for row in rows if row["shape"] == "SET seen:?") == CALLS
