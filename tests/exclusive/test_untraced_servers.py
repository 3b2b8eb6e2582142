# SPDX-License-Identifier: Apache-2.0
"""A server that runs untraced, or exits, is named in every output: nothing goes dark silently."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule.studies.servers.redis import installed_redis, redis_in
from servers.process import DatabaseServer
from tracing.recording import Recorder, attribute, qjoule

pytestmark = [pytest.mark.root, pytest.mark.server]

COMMANDS = 4000


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An executable of a test's own, which it may replace."""
    copy = tmp_path / "bin" / "redis-server"
    copy.parent.mkdir()
    shutil.copy2(installed_redis(), copy)
    return copy


@contextmanager
def serving(program: Path, directory: Path) -> Iterator[DatabaseServer]:
    directory.mkdir()
    with redis_in(directory, program) as server:
        yield server


def stranger(program: Path) -> Path:
    """The same program in another place: with `--pid`, no server that was chosen."""
    copy = program.parent.parent / "elsewhere" / program.name
    copy.parent.mkdir()
    shutil.copy2(program, copy)
    return copy


def work(server: DatabaseServer, commands: int = COMMANDS) -> None:
    with server.connect() as client:
        for number in range(commands):
            client.set(f"key:{number}", number)


def test_a_server_that_is_not_followed_is_told_everywhere(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as server:
        recorder = Recorder(trace, "--energy", "estimated:5,15,20,30", "--pid", str(server.pid))
        recorder.attached()
        work(server)
    try:
        with serving(stranger(program), tmp_path / "b") as server:
            pid = server.pid
            work(server)
            deadline = time.monotonic() + 30
            while "none of the chosen" not in (trace / "meta.json").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert recorder.stop() == 0, recorder.words
        words = recorder.words
    finally:
        recorder.end()
    assert "exited at" in words
    assert f"redis-server (process {pid}) ran untraced since" in words
    document = attribute(trace)
    what = {change["what"]: change for change in document["trace"]["changes"]}
    assert what["exited"]["since"] and not what["exited"]["until"]
    hidden = what["untraced"]
    assert hidden["why"] == "it is none of the chosen servers"
    assert hidden["pid"] == pid and hidden["until"]
    assert hidden["cpu_ns"] > COMMANDS * 1000 and hidden["energy_j"] > 0
    (row,) = [row for row in document["fixed"] if row.get("process") == hidden["process"]]
    assert row["energy_j"] == pytest.approx(hidden["energy_j"])
    table = qjoule("attribute", str(trace)).stdout
    assert "BUT" in table and f"redis-server (process {pid}) ran untraced" in " ".join(
        table.split()
    )
    csv = qjoule("attribute", str(trace), "--format", "csv").stdout
    assert f"redis-server (process {pid})" in csv
    page = tmp_path / "report.html"
    assert qjoule("report", str(trace), "-o", str(page)).returncode == 0
    assert f"redis-server (process {pid}) ran untraced" in page.read_text()
