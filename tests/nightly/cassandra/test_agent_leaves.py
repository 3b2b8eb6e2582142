# SPDX-License-Identifier: Apache-2.0
"""The agent leaves a real Cassandra when its qjoule is killed, and can come again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.cassandra import Client, cassandra_server
from servers.process import DatabaseServer, Unavailable
from tracing import cql_story as day
from tracing.recording import Recorder, Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

TIMEOUT_S = 60.0
AGENT_THREAD = "qjoule-agent"
SELECT = "SELECT note FROM shop.orders WHERE id = 1"


@pytest.fixture(scope="module")
def cassandra(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """One of its own: each agent stays mapped until its class loader is collected."""
    try:
        with cassandra_server() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def client(cassandra: DatabaseServer) -> Iterator[Client]:
    with cassandra.connect() as client:
        day.set_up(client)
        yield client


def has_agent(pid: int) -> bool:
    names = Path(f"/proc/{pid}/task").glob("*/comm")
    return any(name.read_text().rstrip() == AGENT_THREAD for name in names)


def wait_until_left(pid: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while has_agent(pid):
        assert time.monotonic() < deadline, "the agent did not leave"
        time.sleep(0.05)


@pytest.mark.parametrize("victim", ["root part", "command", "tracer"])
def test_agent_leaves_and_comes_again(
    cassandra: DatabaseServer, client: Client, tmp_path: Path, victim: str
) -> None:
    options = ("--agent", "--pid", str(cassandra.pid), "--ring-mb", "64")
    wait_until_left(cassandra.pid)
    recorder = Recorder(tmp_path / "first", "--energy", "none", *options)
    try:
        recorder.attached()
        assert has_agent(cassandra.pid)
        client.execute(SELECT)
        pids = {
            "root part": recorder.process.pid,
            "command": recorder.command_pid,
            "tracer": recorder.tracer_pid,
        }
        os.kill(pids[victim], signal.SIGKILL)
        recorder.wait()
    finally:
        recorder.end()
    wait_until_left(cassandra.pid)
    client.execute(SELECT)  # between two recordings: not seen
    with recording(tmp_path / "again", *options):
        client.execute(SELECT)
    assert Run(tmp_path / "again").executions(command="query") == {day.SELECT: 1}
    assert not [p for p in Path("/tmp").glob("qjoule-*") if (p / "hooks.jar").exists()]
