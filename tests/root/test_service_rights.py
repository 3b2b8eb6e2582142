# SPDX-License-Identifier: Apache-2.0
"""The agent with the capabilities and the filter of system calls that the packaged service has.

`make test-vm` runs the service under systemd itself.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from metrics_pages import Key, total
from packaged import MONITORING
from root.support import as_service
from root.support.agent import Agent
from servers.process import DatabaseServer

pytestmark = [
    pytest.mark.root,
    pytest.mark.server,
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed"),
]
UNIT = MONITORING.parent / "systemd/qjoule-agent.service"
CALLS = 40


def _served(found: Mapping[Key, float]) -> bool:
    """In `other`, as they all came in one interval, or in a series of their own."""
    return total(found, "qjoule_query_calls_total") >= CALLS


def test_it_counts_and_confines_itself(mariadb: DatabaseServer, tmp_path: Path) -> None:
    as_unit = [sys.executable, as_service.__file__, str(UNIT)]
    agent = Agent(tmp_path, mariadb.pid, before=as_unit)
    try:
        agent.started()
        for process in agent.processes():
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "NoNewPrivs:\t1" in status
            assert "Seccomp:\t2" in status
            if process.pid != agent.process.pid:
                assert "CapEff:\t0000000000000000" in status, process.name()
        with mariadb.connect() as connection, connection.cursor() as cursor:
            for number in range(CALLS):
                cursor.execute(f"select {number} as served")

        agent.until(_served, "not all calls")
        words = agent.stop()
    finally:
        agent.close()
    assert "cannot confine" not in words
