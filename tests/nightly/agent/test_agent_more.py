# SPDX-License-Identifier: Apache-2.0
"""The agent beside real servers: tags, reloading, a second agent, starting again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from exclusive.test_agent import CALLS, execute, running, settled, warmed
from qjoule_studies.servers.mysql import mariadb_server
from tracing.agent import Agent, fingerprint_of, value
from tracing.live_top import QJOULE, live_top
from tracing.mysql_client import ZLIB, mysql_client

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(240)]


def test_hours_are_summed_by_tags_that_clients_send(tmp_path: Path) -> None:
    statement = "select {n} + 41 /*tenant='%s',endpoint='x'*/"
    with mariadb_server() as server, server.connect() as connection:
        agent = Agent(tmp_path, server.pid, more='tags = ["tenant"]\n')
        try:
            agent.started()
            fingerprint = warmed(agent, connection, statement % "first", "select ? + ?")
            for tenant, times in (("a", CALLS), ("b", 2 * CALLS)):
                execute(connection, statement % tenant, times)
            settled(agent, ("calls", fingerprint))
            agent.stop()
        finally:
            agent.close()
    found = ds.dataset(agent.store / "tags", partitioning="hive").to_table().to_pylist()
    ours = [row for row in found if row["fingerprint"] == fingerprint]
    assert {row["tag"] for row in found} == {"tenant"}
    counted = {row["value"]: row["calls"] for row in ours}
    assert (counted["a"], counted["b"]) == (CALLS, 2 * CALLS)
    assert all(row["energy_nj"] > 0 and row["server"] for row in ours if row["value"] in "ab")


def test_reload_second_agent_and_top_beside_it(tmp_path: Path) -> None:
    with mariadb_server() as server, running(tmp_path, server.pid) as agent:
        windows = value(agent.samples(), "qjoule_windows_total") or 0
        with live_top("--pid", str(server.pid)) as top:
            top.wait_for(2)
        again = subprocess.run(
            [QJOULE, "agent", "--config", str(agent.config), "--pid", str(server.pid)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert again.returncode == 1
        assert again.stderr.splitlines()[-1].endswith("Address already in use")
        agent.configure(shapes=7)
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(2)
        agent.config.write_text("[metrics]\nshape = 7\n")
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(2)
        found = agent.until(
            lambda one: (value(one, "qjoule_windows_total") or 0) > windows + 30, "windows go on"
        )
        assert value(found, "qjoule_unattributed_windows_total") == 0
        words = agent.stop()
    assert "the configuration was read again" in words
    assert "the configuration stays as it was" in words and "metrics.shape" in words
    assert len([line for line in words.splitlines() if "Traceback" in line]) == 0


def test_the_agent_changes_to_the_attach_mode_that_shows_compressed_sessions(
    tmp_path: Path,
) -> None:
    with (
        mariadb_server() as server,
        running(tmp_path, server.pid) as agent,
        mysql_client(server.socket, flags=ZLIB) as client,
    ):
        assert value(agent.samples(), "qjoule_server_info", attach_mode="socket")
        client.query(b"do 1")
        agent.until(
            lambda found: bool(value(found, "qjoule_server_info", attach_mode="symbol")), "symbol"
        )
        found = agent.until(
            lambda one: bool(client.query(b"do 1 + 1") or fingerprint_of(one, "do ? + ?")), "do"
        )
        calls = "calls", fingerprint_of(found, "do ? + ?")
        (before,) = settled(agent, calls)
        for _ in range(CALLS):
            client.query(b"do 2 + 2")
        (after,) = settled(agent, calls)
        words = agent.stop()
    assert after - before == CALLS
    assert words.count("the attach mode symbol shows what TLS or compression hides of mariadb") == 1
    assert words.count("starting again") == 1
