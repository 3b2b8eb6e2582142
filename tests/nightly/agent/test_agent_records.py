# SPDX-License-Identifier: Apache-2.0
"""A real agent's flight recorder and live page. Also: the agent with the rights of the packaged
service.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from metrics_pages import total
from qjoule.remote.wire import decode
from qjoule.trace.reader import Trace
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from syscall_filter import profile
from tracing import as_service
from tracing.agent import Agent
from tracing.live_top import QJOULE
from tracing.root_part import run_code
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]

CALLS = 200


def execute(connection: Any) -> None:
    cursor = connection.cursor()
    for number in range(CALLS):
        cursor.execute(f"select {number} + 424242")
        cursor.fetchall()


def statements(trace: Path) -> int:
    """How often the statement of `execute` is in a trace."""
    reader = Trace(trace)
    shapes = reader.table("shapes").to_pylist()
    (shape,) = (row["shape"] for row in shapes if row["text"].lower() == "select ? + ?")
    return sum(shape_id == shape for shape_id in reader.table("queries")["shape"].to_pylist())


@pytest.mark.timeout(240)
def test_the_page_and_what_the_flight_recorder_held(tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    with mariadb_server() as server, server.connect() as connection:
        record = ("env", "-C", str(recordings), QJOULE, "record", "--keep", "60s")
        command_line = ["--recordings", str(recordings), "--", *record, "--pid", str(server.pid)]
        os.chown(recordings, Agent.uid, -1)
        agent = Agent(tmp_path, server.pid, arguments=command_line)
        try:
            agent.started()
            # It exists before its tracer is attached, and grows from then on.
            until(lambda: any(file.stat().st_size for file in recordings.glob("*/ring/spool-*")))
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
            messages = agent.stop()
        finally:
            agent.close()
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert not alive, "the flight recorder ends with the agent"
        assert "424242" not in messages
        files = [path for path in recordings.rglob("*") if path.is_file()]
        assert not any(b"424242" in path.read_bytes() for path in files)


START = """
for _ in range(2):
    print(refused(Kind.RUN), flush=True)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("command_line", "answers"),
    [
        (["agent"], ["EINVAL"] * 2),  # nothing is named
        (["agent", "--recordings", "/tmp", "--", "sleep", "9"], ["granted", "EINVAL"]),  # it runs
    ],
)
def test_the_root_part_starts_nothing_but_the_words(
    command_line: list[str], answers: list[str]
) -> None:
    uid = str(Agent.uid)
    assert run_code(START, *command_line, QJOULE_UID=uid, QJOULE_GID=uid).stdout.split() == answers


# --------------------------------------------------------------------------------------------------
#
# The agent with the capabilities and the filter of system calls that the packaged service has,
# and the image.
#
# `make test-vm` runs the service under systemd itself.

PACKAGING = Path(__file__).parents[3] / "packaging"
UNIT = PACKAGING / "systemd/qjoule-agent.service"
FILTER = PACKAGING / "oci/seccomp.json"
SERVICE_CALLS = 40
CAP_SETPCAP = 8  #: capability.h


AS_UNIT = (sys.executable, as_service.__file__, str(UNIT), str(FILTER))


def _execute(server: DatabaseServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(SERVICE_CALLS):
            cursor.execute(f"select {number} as served")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_image_s_filter_is_the_unit_s() -> None:
    assert json.loads(FILTER.read_text()) == profile(UNIT.read_text())


def test_it_confines_itself_and_attaches_uprobes_where_its_rights_suffice(
    mariadb: DatabaseServer, mariadb_pool: DatabaseServer, postgres: DatabaseServer, tmp_path: Path
) -> None:
    """The unit has no CAP_SYS_ADMIN, which kernels before 6.6 want for uprobes. PostgreSQL has
    optional ones on the socket mode; a thread pool cannot do without."""
    links = b"\0bpf_uprobe_multi_link\0" in Path("/sys/kernel/btf/vmlinux").read_bytes()
    traced = (mariadb, postgres, mariadb_pool) if links else (mariadb, postgres)
    pids = (mariadb.pid, mariadb_pool.pid, postgres.pid)
    agent = Agent(tmp_path, *pids, before=AS_UNIT)
    try:
        agent.started()
        for process in agent.processes():
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
            rights = re.findall(r"^Cap(?:Eff|Bnd):\t(\w+)$", status, re.MULTILINE)
            if process.name() == "sh":  # it waits: that capability hides it, and permits nothing
                assert rights == [f"{1 << CAP_SETPCAP:016x}", "0" * 16], process
            elif process.pid != agent.process.pid:
                assert rights[0] == "0" * 16, process
        for server in traced:
            _execute(server)
        agent.until(
            lambda samples: (
                total(samples, "qjoule_query_calls_total") >= len(traced) * SERVICE_CALLS
            ),
            "not all calls",
        )
        messages = agent.stop()
    finally:
        agent.close()
    assert (f"left out: mariadb:{mariadb_pool.port} (a thread pool" in messages) is not links
    assert "cannot attach" not in messages and "cannot confine" not in messages
