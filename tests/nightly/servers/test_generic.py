# SPDX-License-Identifier: Apache-2.0
"""A server unknown to qjoule, traced for real: CPU time and joules of its threads. Also: a VoltDB
with another collector.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import free_port, with_parent
from servers.databases import voltdb_server
from tracing import voltdb_story as day
from tracing.cpu_time import tolerance
from tracing.recording import Run, attribute, check_no_waits, recording

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).parents[2] / "support/servers/named_threads.py"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
START_TIMEOUT_S = 60.0


class Unknown:
    """A running instance of `servers/named_threads.py`, and one connection to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        argv = [*with_parent(), sys.executable, str(PROGRAM), str(port), "x" * 5000]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._client = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                assert self.process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
        self._stream = self._client.makefile("rw")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def comm(self) -> str:
        return Path(f"/proc/{self.pid}/comm").read_text().strip()

    @property
    def label(self) -> str:
        return f"{self.comm}:{self.port}"

    def ask(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()
        assert self._stream.readline() == "done\n"

    def cpu_s(self) -> dict[str, float]:
        """CPU time of its live threads by name, with a tick's precision (proc(5))."""
        seconds: dict[str, float] = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            name = (task / "comm").read_text().strip()
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            seconds[name] = seconds.get(name, 0.0) + sum(map(int, fields[11:13])) * TICK_S
        return seconds

    def end(self) -> None:
        self._stream.close()
        self._client.close()
        self.process.kill()
        self.process.wait()


@contextmanager
def unknown(port: int | None = None) -> Iterator[Unknown]:
    server = Unknown(port or free_port())
    try:
        yield server
    finally:
        server.end()


def role_s(directory: Path, server: str) -> dict[str, float]:
    """CPU seconds by role of one server, from the trace's tables only."""
    trace = Trace(directory)
    (number,) = (server_row.id for server_row in trace.meta.servers if server_row.name == server)
    owners = trace.pandas("owners")
    roles = owners[(owners["server"] == number) & (owners["kind"] == "server")]
    segments = trace.pandas("segments").merge(roles[["owner", "role"]], on="owner")
    seconds: pd.Series[float] = (segments["t1_ns"] - segments["t0_ns"]) * 1e-9
    return {str(role): float(s) for role, s in seconds.groupby(segments["role"]).sum().items()}


def test_cpu_time_and_joules_by_role(tmp_path: Path) -> None:
    """Matches /proc per thread, for threads that compute and for those that hardly do."""
    trace = tmp_path / "t"
    with unknown() as server:
        options = ("--pid", str(server.pid), "--energy", "estimated:10,20,30,40")
        with recording(trace, *options) as recorder:
            before = server.cpu_s()
            for number, milliseconds in ((0, 600), (1, 300), (2, 300)):
                server.ask(f"work {number} {milliseconds}")
            after = server.cpu_s()
            label, main = server.label, server.comm
            assert f"tracing {label} (by thread)" in recorder.messages
    used = {name: after[name] - before[name] for name in after}
    workers_s = sum(used[f"worker-{number}"] for number in range(3))
    roles = role_s(trace, label)
    assert set(roles) == {"worker-?", main}
    # /proc rounds each reading of each of the three threads to a tick.
    assert roles["worker-?"] == pytest.approx(workers_s, rel=tolerance(), abs=6 * TICK_S)
    assert roles["worker-?"] == pytest.approx(1.2, rel=tolerance(0.05))
    assert roles[main] == pytest.approx(used[main], abs=4 * TICK_S)

    document = attribute(trace)
    rows = {row["role"]: row for row in document["fixed"] if row.get("server") == label}
    assert set(rows) == set(roles)
    assert rows["worker-?"]["attach_mode"] == "none"
    assert document["rows"] == []
    check_no_waits(Trace(trace))
    assert document["totals_j"]["background"] == pytest.approx(
        sum(row["energy_j"] for row in rows.values())
    )
    # A busy CPU draws more than an idle one, so its share of energy exceeds its share of all CPUs'
    # time. That share is the smaller, the busier the rest of the machine is.
    time_share = roles["worker-?"] / (document["trace"]["duration_s"] * (os.cpu_count() or 1))
    energy_share = rows["worker-?"]["energy_j"] / document["totals_j"]["measured"]
    assert 0.6 * time_share < energy_share < 1


def test_children_are_its_own_as_long_as_they_run_its_executable(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    with unknown() as server:
        with recording(trace, "--pid", str(server.pid)):
            server.ask("fork 400")
            server.ask("exec 400")
        label, main = server.label, server.comm
    assert role_s(trace, label) == {main: pytest.approx(0.4, rel=0.25)}
    owners = Trace(trace).pandas("owners")
    assert "process" in set(owners[owners["comm"].isin(["awk", "mawk", "gawk"])]["kind"])


def test_a_restart_is_the_server_again_and_a_stranger_is_not(tmp_path: Path) -> None:
    """All three are Python programs: the kernel side distinguishes them by their arguments.

    The arguments are as long as a JVM's often are.
    """
    trace = tmp_path / "t"
    port = free_port()
    with unknown(port) as server:
        label = server.label
        server.ask("work 0 300")  # those with the most CPU time are traced first
        with recording(trace, "--generic") as recorder:
            (line,) = (line for line in recorder.messages.splitlines() if label in line)
            if "left out: " in line:
                pytest.skip(f"more servers run here than are traced at a time: {line}")
            server.end()
            with unknown(port) as restarted, unknown() as stranger:
                restarted.ask("work 0 400")
                stranger.ask("work 1 400")
                strangers = stranger.pid
                restarted_pid = restarted.pid
    owners = Trace(trace).pandas("owners")
    workers = owners[owners["comm"].astype(str).str.startswith("worker-")]
    assert set(workers[workers["tgid"] == restarted_pid]["kind"]) == {"server"}
    assert set(workers[workers["tgid"] == strangers]["kind"]) == {"process"}
    # Not 0.7 or 0.8 s: neither what it did before, nor what the stranger did, counts.
    assert role_s(trace, label)["worker-?"] == pytest.approx(0.4, rel=0.25)


# ---- A real VoltDB with another collector --------------------------------------------------------

CALLS = 1280


@pytest.mark.beside
@pytest.mark.server
def test_voltdb_other_collector_and_plain_references(tmp_path: Path) -> None:
    """Names are elsewhere in the heap, and move differently."""
    plain = ("-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers")
    with voltdb_server("-XX:+UseParallelGC", "-Xmn16m", *plain) as server:
        day.prepare(server)
        with recording(tmp_path / "t", "--pid", str(server.pid), "--ring-mb", "64"):
            story = day.tell(server, CALLS)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert set(run.executions()) == set(story.invocations) - {
        name for name in story.invocations if name.startswith("AdHoc")
    } | set(story.ad_hoc)
    assert run.executions().total() == story.invocations.total()
