# SPDX-License-Identifier: Apache-2.0
"""The agent with the capabilities and the filter of system calls that the packaged service has,
and the image.

`make test-vm` runs the service under systemd itself.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from metrics_pages import total
from qjoule_studies.servers.process import DatabaseServer
from syscall_filter import profile
from tracing import as_service
from tracing.agent import Agent

pytestmark = [pytest.mark.root, pytest.mark.server]
PACKAGING = Path(__file__).parents[3] / "packaging"
UNIT = PACKAGING / "systemd/qjoule-agent.service"
FILTER = PACKAGING / "oci/seccomp.json"
CALLS = 40


AS_UNIT = (sys.executable, as_service.__file__, str(UNIT), str(FILTER))


def _execute(server: DatabaseServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(CALLS):
            cursor.execute(f"select {number} as served")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_image_s_filter_is_the_unit_s() -> None:
    assert json.loads(FILTER.read_text()) == profile(UNIT.read_text())


def test_it_confines_itself_and_leaves_out_what_needs_uprobes(
    mariadb: DatabaseServer, mariadb_pool: DatabaseServer, postgres: DatabaseServer, tmp_path: Path
) -> None:
    """The kernel wants CAP_SYS_ADMIN for uprobes, which the unit has not. PostgreSQL has optional
    ones on the socket mode; a thread pool cannot do without."""
    pids = (mariadb.pid, mariadb_pool.pid, postgres.pid)
    agent = Agent(tmp_path, *pids, before=AS_UNIT)
    try:
        agent.started()
        for process in agent.processes():
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
            if process.pid != agent.process.pid:
                assert "CapEff:\t0000000000000000" in status, process.name()
        for server in (mariadb, postgres):
            _execute(server)
        agent.until(
            lambda found: total(found, "qjoule_query_calls_total") >= 2 * CALLS, "not all calls"
        )
        words = agent.stop()
    finally:
        agent.close()
    assert f"left out: mariadb:{mariadb_pool.port} (a thread pool" in words
    assert "cannot attach" not in words and "cannot confine" not in words
