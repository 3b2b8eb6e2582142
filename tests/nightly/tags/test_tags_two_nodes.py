# SPDX-License-Identifier: Apache-2.0
"""Requests that start in one service and continue in another, each with its own server and
recording.

As on two machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import parse_traceparent, set_trace, tag
from servers.process import DatabaseServer
from tracing.recording import attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
REQUESTS = 5
ENERGY = ("--energy", "estimated:5,10,20,30")
#: The second service: reads requests as lines of a traceparent and a number of commands.
SERVICE = """
    import sys
    import qjoule_drivers, redis
    qjoule_drivers.instrument()
    client = redis.Redis(port=int(sys.argv[1]), protocol=2, single_connection_client=True)
    client.ping()
    print("ready", flush=True)
    for line in sys.stdin:
        traceparent, commands = line.split()
        qjoule_drivers.set_trace(qjoule_drivers.parse_traceparent(traceparent))
        with qjoule_drivers.tag(service="stock"):
            for _ in range(int(commands)):
                client.incr("stock")
        print("done", flush=True)
    """


class Service:
    """The second service, from the first one's view."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_for(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{word}\n"

    def ask(self, traceparent: str, commands: int) -> None:
        """Returns when the service has answered."""
        assert self._process.stdin is not None
        print(traceparent, commands, file=self._process.stdin, flush=True)
        self.wait_for("done")


@contextmanager
def service(redis: DatabaseServer, tags_socket: Path) -> Iterator[Service]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVICE), str(redis.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "QJOULE_TAGS_SOCKET": str(tags_socket)},
    )
    with process:
        try:
            yield Service(process)
        finally:
            process.kill()


def _traceparent(number: int) -> str:
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


def _requests(mariadb: DatabaseServer, stock: Service) -> None:
    """Request n sends n + 1 queries to MariaDB and causes 2 n commands to Redis."""
    with closing(mariadb.connect()) as connection:
        for number in range(REQUESTS):
            traceparent = _traceparent(number)
            set_trace(parse_traceparent(traceparent))
            try:
                with tag(service="orders"):
                    for _ in range(number + 1):
                        connection.query("select benchmark(20000, md5('x'))")
                    if number:
                        stock.ask(traceparent, 2 * number)
            finally:
                set_trace(None)
        connection.query("select 'no request'")


def test_a_request_is_summed_over_the_recordings_of_two_servers(
    mariadb: DatabaseServer,
    redis: DatabaseServer,
    tags_socket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    other_socket = tags_socket.with_suffix(".2")
    try:
        with recording(a, *ENERGY, "--pid", str(mariadb.pid)):
            monkeypatch.setenv("QJOULE_TAGS_SOCKET", str(other_socket))
            with (
                recording(b, *ENERGY, "--pid", str(redis.pid)),
                service(redis, other_socket) as stock,
            ):
                stock.wait_for("ready")
                _requests(mariadb, stock)
    finally:
        other_socket.unlink(missing_ok=True)
    found = attribute(a, str(b), "--by", "tag:trace")
    rows = {row["tag:trace"]: row for row in found["rows"]}
    for number in range(REQUESTS):
        row = rows[f"{number + 1:032x}"]
        calls = {name: part["calls"] for name, part in row["by_trace"].items()}
        asked = {"a": number + 1, "b": 2 * number}
        assert calls == {name: n for name, n in asked.items() if n}
        assert row["calls"] == sum(asked.values())
        _is_the_sum_of_its_parts(row)
    for name, total_j in found["totals_j"].items():
        parts = (part["totals_j"][name] for part in found["traces"])
        assert total_j == pytest.approx(sum(parts), rel=1e-9)


def _is_the_sum_of_its_parts(row: dict[str, Any]) -> None:
    """And its interval is at least as wide as the widest part's, and at most the sum of theirs."""
    parts = list(row["by_trace"].values())
    assert row["energy_j"] == pytest.approx(sum(part["energy_j"] for part in parts), rel=1e-9)
    assert row["energy_j"] > 0
    low_j, high_j = row["energy_j_ci95"]
    widths = [part["energy_j_ci95"][1] - part["energy_j_ci95"][0] for part in parts]
    assert 0 <= low_j <= row["energy_j"] <= high_j
    assert max(widths) * 0.999 <= high_j - low_j <= sum(widths) * 1.001
