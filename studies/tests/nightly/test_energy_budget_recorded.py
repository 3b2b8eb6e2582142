# SPDX-License-Identifier: Apache-2.0
"""The marker `energy_budget` on a real Redis, with estimated energy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import redis as driver

from qjoule_studies.servers.process import DatabaseServer

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

PLUGIN = "qjoule.testing.pytest_plugin"
CALLS = 1500
TESTS = """
    import pytest
    import redis

    client = redis.Redis(port={port}, single_connection_client=True)

    @pytest.mark.energy_budget(j_per_call=100.0, pid={pid})
    def test_kept():
        for _ in range({calls}):
            client.get("budget:1")

    @pytest.mark.energy_budget(j_per_call=1e-9, pid={pid})
    def test_exceeded():
        for _ in range({calls}):
            client.get("budget:2")

    def test_without_a_budget():
        client.get("budget:3")
"""


def test_calls_of_a_test_are_held_to_its_budget(
    redis: DatabaseServer, recorder_socket: Path, tmp_path: Path
) -> None:
    file = tmp_path / "test_budget.py"
    file.write_text(textwrap.dedent(TESTS.format(port=redis.port, pid=redis.pid, calls=CALLS)))
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    command = [
        *(sys.executable, "-m", "pytest", str(file), "-rA", "-p", "no:cacheprovider"),
        *([] if installed else ["-p", PLUGIN]),
        *("--energy-source", "estimated:10,20,30,40", "-c", os.devnull, f"--rootdir={tmp_path}"),
    ]
    environment = {**os.environ, "QJOULE_TAGS_SOCKET": str(recorder_socket), "COLUMNS": "300"}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as running:
        with driver.Redis(port=redis.port, single_connection_client=True) as stranger:
            while running.poll() is None:
                stranger.get("stranger:1")
        output = running.stdout.read() if running.stdout else ""
    assert "1 failed, 2 passed" in output, output
    for status in ("kept", "exceeded"):
        match = re.search(rf"^{status}: .* over ([\d,]+) calls \((.*)\), budget", output, re.M)
        assert match, output
        assert int(match[1].replace(",", "")) == CALLS
        assert re.fullmatch(r"by tag, [\d,]+ calls of others not counted", match[2])
    assert "energy estimated, idle separate" in output
