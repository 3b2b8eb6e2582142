# SPDX-License-Identifier: Apache-2.0
"""`qjoule top --host` beside a real agent and server: no call is lost on the way."""

from __future__ import annotations

import json
import os
import pwd
import ssl
import subprocess
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from qjoule.model.result import Attribution
from qjoule.remote.access import new_token
from qjoule.remote.client import Connection, address_of
from qjoule.remote.source import RemoteSource
from qjoule.snapshots import Controls
from qjoule.studies.servers.process import free_port
from remote_agent import certificate
from servers.mariadb import mariadb_server
from tracing.agent import Agent, fingerprint_of
from tracing.live_top import QJOULE

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(240)]


CALLS = 300


def execute_calls(cursor: Any, times: int = CALLS) -> None:
    for _ in range(times):
        cursor.execute("select 1234567 + 41")
        cursor.fetchall()


def calls(found: Attribution, fingerprint: str) -> int:
    return sum(row.calls for row in found.rows if fingerprint in row.keys.values())


def test_the_screen_of_an_agent_elsewhere(tmp_path: Path) -> None:
    uid = int(os.environ.get("SUDO_UID", "0")) or pwd.getpwnam("nobody").pw_uid
    ca, port = certificate(tmp_path, "agent", "localhost"), free_port()
    token, line = new_token("desk", "view,texts", None)
    for name, text in (("tokens", f"{line}\n"), ("token", token)):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        os.chown(path, uid, -1)
    os.chown(tmp_path / "agent.key", uid, -1)
    more = f'[remote]\nlisten = "127.0.0.1:{port}"\ntoken_file = "{tmp_path}/tokens"\n'
    more += f'tls_certificate = "{ca}"\ntls_key = "{tmp_path}/agent.key"\n'
    url = f"https://localhost:{port}"
    words = [QJOULE, "top", "--host", url, "-b", "-n", "2", "--json"]
    words += ["--token-file", str(tmp_path / "token"), "--ca", str(ca)]
    with mariadb_server() as server, server.connect() as connection:
        agent = Agent(tmp_path, server.pid, more=more)
        try:
            agent.started()
            cursor = connection.cursor()
            deadline = time.monotonic() + 60
            while not (found := fingerprint_of(agent.samples(), "select ? + ?")):
                assert time.monotonic() < deadline
                execute_calls(cursor, 1)
                time.sleep(0.2)
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            seen = [json.loads(one)["interval"] for one in done.stdout.splitlines()]
            assert len(seen) == 2 and "1234567" not in done.stdout
            totals = dict(seen[1]["totals_j"])
            measured = totals.pop("measured")
            assert measured > 0 and abs(sum(totals.values()) - measured) < 1e-6
            process = next(
                one
                for one in psutil.Process(agent.process.pid).children(recursive=True)
                if any(c.laddr.port == port for c in one.net_connections())
            )
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "CapEff:\t0000000000000000" in status and "Seccomp:\t2" in status
            context = ssl.create_default_context(cafile=ca)
            controls = Controls()
            source = RemoteSource(Connection(address_of(url), token, context), "there")
            snapshots = source.snapshots(controls)
            # Many intervals, added up at the desk, from one without calls on.
            next(one for one in snapshots if not calls(one.interval, found))
            controls.reset()
            next(snapshots)
            execute_calls(cursor)
            counts = [calls(one.total, found) for one in islice(snapshots, 6)]
            assert counts[-1] == counts[-2] == CALLS
            source.close()
            agent.stop()
        finally:
            agent.close()
