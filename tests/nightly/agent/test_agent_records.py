# SPDX-License-Identifier: Apache-2.0
"""Recordings beside a real agent: ordered from another desk, and its flight recorder's."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from qjoule.remote.access import new_token
from qjoule.studies.servers.process import free_port
from qjoule.trace.reader import Trace
from servers.mariadb import mariadb_server
from tracing.agent import Agent
from tracing.asking import asked
from tracing.live_top import QJOULE

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(240)]

CALLS = 200


class Desk:
    """Orders recordings of an agent, as who called sudo or nobody."""

    def __init__(self, directory: Path, flight_s: int) -> None:
        uid = int(os.environ.get("SUDO_UID", "0")) or pwd.getpwnam("nobody").pw_uid
        self.recordings, self.directory = directory / "recordings", directory
        self.recordings.mkdir()
        os.chown(self.recordings, uid, -1)
        token, line = new_token("desk", "texts,control", None)
        for name, text in (("tokens", f"{line}\n"), ("token", token)):
            (directory / name).write_text(text)
            (directory / name).chmod(0o600)
            os.chown(directory / name, uid, -1)
        port = free_port()
        self.url = f"http://localhost:{port}"
        self.more = f'[remote]\nlisten = "127.0.0.1:{port}"\ntoken_file = "{directory}/tokens"\n'
        self.more += f"[recordings]\nflight_s = {flight_s}\n"

    def start(self, *words: str) -> subprocess.Popen[str]:
        own = ["--host", self.url, "--token-file", str(self.directory / "token")]
        return subprocess.Popen(
            [QJOULE, "record", *own, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def record(self, *words: str) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0, err
        return out


@contextmanager
def running(desk: Desk, pid: int) -> Iterator[Agent]:
    of_it = ["--recordings", str(desk.recordings), "--", "--pid", str(pid)]
    agent = Agent(desk.directory, pid, more=desk.more, words=of_it)
    try:
        agent.started()
        yield agent
    finally:
        agent.close()


def execute(connection: Any) -> None:
    cursor = connection.cursor()
    for number in range(CALLS):
        cursor.execute(f"select {number} + 424242")
        cursor.fetchall()


def grows(desk: Desk, files: str) -> bool:
    return any(one.stat().st_size for one in desk.recordings.glob(files))


def statements(trace: Path) -> int:
    """How many of `execute` a trace has."""
    opened = Trace(trace)
    shapes = opened.table("shapes").to_pylist()
    (shape,) = (one["shape"] for one in shapes if one["text"].lower() == "select ? + ?")
    return sum(one == shape for one in opened.table("queries")["shape"].to_pylist())


def test_from_another_desk_and_what_the_flight_recorder_held(tmp_path: Path) -> None:
    desk = Desk(tmp_path, flight_s=60)
    with mariadb_server() as server, server.connect() as connection:
        with running(desk, server.pid) as agent:
            there = desk.start("-o", str(tmp_path / "got"))
            assert there.stderr is not None
            deadline = time.monotonic() + 60
            # Both exist before their tracers are attached, and grow from then on.
            while not (grows(desk, "*/capture/spool") and grows(desk, "*/ring/spool-*")):
                assert time.monotonic() < deadline and there.poll() is None
                time.sleep(0.1)
            time.sleep(1)
            execute(connection)
            time.sleep(1)
            desk.record("--order", "stop")
            _, err = there.communicate(timeout=60)
            assert there.returncode == 0 and "fetched" in err, err
            assert statements(tmp_path / "got") == CALLS
            # The flight recorder has seen the same.
            desk.record("--order", "save")
            while "kept-" not in (names := desk.record("--order", "list")):
                assert time.monotonic() < deadline
                time.sleep(0.5)
            (name,) = (line.split()[0] for line in names.splitlines() if "kept-" in line)
            desk.record("--order", "fetch", "--recording", name, "-o", str(tmp_path / "part"))
            subprocess.run(
                [QJOULE, "convert", str(tmp_path / "part")], check=True, capture_output=True
            )
            assert statements(tmp_path / "part") == CALLS
            processes = agent.processes()
            words = agent.stop()
        assert words.count('{"audit": "start"') == words.count('{"audit": "save"') == 1
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert not alive, "the flight recorder ends with the agent"
        assert "424242" not in words
        assert not any(b"424242" in one.read_bytes() for one in _files(desk.recordings))


def _files(where: Path) -> list[Path]:
    return [one for one in where.rglob("*") if one.is_file()]


ORDER = """
from qjoule.agent.recordings import Order, Recording
def order(directory, which, what, number, seconds):
    try:
        print(part.recording(Path(directory), which, what, number, seconds)[0])
    except Refused as error:
        print(error.errno)
"""


@pytest.mark.parametrize(
    ("words", "directory", "seconds", "answer"),
    [
        (["agent"], "/tmp", 5, 1),  # EPERM: without --recordings
        (["record", "--recordings", "/tmp"], "/tmp", 5, 1),  # not of the agent
        (["agent", "--recordings", "/var"], "/tmp", 5, 1),  # another directory
        (["agent", "--recordings", "/tmp"], "/tmp", 90_000, 22),  # EINVAL
        (["agent", "--recordings", "/tmp", "--", "-d", "1", "--", "sh"], "/tmp", 5, 7),  # E2BIG
    ],
)
def test_the_root_part_starts_nothing_else(
    words: list[str], directory: str, seconds: int, answer: int
) -> None:
    code = f"{ORDER}order({directory!r}, Recording.TIMED, Order.START, 7, {seconds})"
    assert asked(code, *words).stdout.split() == [str(answer)]
