# SPDX-License-Identifier: Apache-2.0
"""A real agent's flight recorder and live page."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from qjoule.remote.wire import decode
from qjoule.trace.reader import Trace
from qjoule_studies.servers.mysql import mariadb_server
from tracing.agent import Agent
from tracing.live_top import QJOULE
from tracing.root_part import asked
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(240)]

CALLS = 200


def execute(connection: Any) -> None:
    cursor = connection.cursor()
    for number in range(CALLS):
        cursor.execute(f"select {number} + 424242")
        cursor.fetchall()


def statements(trace: Path) -> int:
    """How many of `execute` a trace has."""
    opened = Trace(trace)
    shapes = opened.table("shapes").to_pylist()
    (shape,) = (one["shape"] for one in shapes if one["text"].lower() == "select ? + ?")
    return sum(one == shape for one in opened.table("queries")["shape"].to_pylist())


def test_the_page_and_what_the_flight_recorder_held(tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    with mariadb_server() as server, server.connect() as connection:
        record = ("env", "-C", str(recordings), QJOULE, "record", "--keep", "60s")
        words = ["--recordings", str(recordings), "--", *record, "--pid", str(server.pid)]
        os.chown(recordings, Agent.uid, -1)
        agent = Agent(tmp_path, server.pid, words=words)
        try:
            agent.started()
            # It exists before its tracer is attached, and grows from then on.
            until(lambda: any(one.stat().st_size for one in recordings.glob("*/ring/spool-*")))
            time.sleep(1)
            execute(connection)
            rows = until(lambda: decode(agent.page("snapshot"))[0].interval.rows)
            assert b"</html>" in agent.page("")
            assert rows[0].server.startswith("mariadb")
            (recorder,) = recordings.iterdir()
            subprocess.run([QJOULE, "dump", str(recorder)], check=True, capture_output=True)
            (part,) = recorder.glob("kept-*")
            subprocess.run([QJOULE, "convert", str(part)], check=True, capture_output=True)
            assert statements(part) == CALLS
            processes = agent.processes()
            said = agent.stop()
        finally:
            agent.close()
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert not alive, "the flight recorder ends with the agent"
        assert "424242" not in said
        files = [one for one in recordings.rglob("*") if one.is_file()]
        assert not any(b"424242" in one.read_bytes() for one in files)


START = """
for _ in range(2):
    print(refused(Kind.RUN), flush=True)
"""


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["agent"], ["EINVAL"] * 2),  # nothing is named
        (["agent", "--recordings", "/tmp", "--", "sleep", "9"], ["granted", "EINVAL"]),  # it runs
    ],
)
def test_the_root_part_starts_nothing_but_the_words(words: list[str], answers: list[str]) -> None:
    uid = str(Agent.uid)
    assert asked(START, *words, QJOULE_UID=uid, QJOULE_GID=uid).stdout.split() == answers
