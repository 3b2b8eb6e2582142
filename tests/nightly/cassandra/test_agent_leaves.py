# SPDX-License-Identifier: Apache-2.0
"""The agent leaves a real Cassandra when its qjoule is killed, and can come again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule_studies.servers.cassandra import Client
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import cassandra_server, or_skip
from tracing import cql_story as day
from tracing.recording import Recorder, Run, recording
from waiting import until

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

AGENT_THREAD = "qjoule-agent"
SELECT = "SELECT note FROM shop.orders WHERE id = 1"


@pytest.fixture(scope="module")
def cassandra(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """One of its own: each agent stays mapped until its class loader is collected."""
    with or_skip(), cassandra_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(cassandra: DatabaseServer) -> Iterator[Client]:
    with cassandra.connect() as client:
        day.set_up(client)
        yield client


def has_agent(pid: int) -> bool:
    names = Path(f"/proc/{pid}/task").glob("*/comm")
    return any(name.read_text().rstrip() == AGENT_THREAD for name in names)


@pytest.mark.parametrize("victim", ["root part", "command", "tracer"])
def test_agent_leaves_and_comes_again(
    cassandra: DatabaseServer, client: Client, tmp_path: Path, victim: str
) -> None:
    options = ("--agent", "--pid", str(cassandra.pid), "--ring-mb", "64")
    until(lambda: not has_agent(cassandra.pid), "the agent's end")
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
    until(lambda: not has_agent(cassandra.pid), "the agent's end")
    client.execute(SELECT)  # between two recordings: not seen
    with recording(tmp_path / "again", *options):
        client.execute(SELECT)
    assert Run(tmp_path / "again").executions(command="query") == {day.SELECT: 1}
    assert not [p for p in Path("/tmp").glob("qjoule-*") if (p / "hooks.jar").exists()]
