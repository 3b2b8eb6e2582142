# SPDX-License-Identifier: Apache-2.0
"""`qjoule record --keep` beside a real server: what its parts hold, and what makes it save."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from other_user import SOMEBODY, other_user
from qjoule.process import READER
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import QJOULE, Recorder, Run, qjoule
from tracing.recording import attribute as attribute_tables
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]
ENERGY = ("--energy", "estimated:5,20,30,40")
KEEP_S = 10
CANARY = "canary-4711"


@contextmanager
def _holding(server: DatabaseServer, directory: Path, *options: str) -> Iterator[Recorder]:
    """A flight recorder of this server during the block, stopped at its end if it still runs."""
    keep = ("--keep", f"{KEEP_S}s", "--pid", str(server.pid), *ENERGY)
    recorder = Recorder(directory, *keep, *options)
    try:
        recorder.attached()
        yield recorder
        if recorder.process.poll() is None:
            assert recorder.stop() == 0, recorder.messages
    finally:
        recorder.end()


def _dump(*arguments: str) -> Path:
    """The part that a recorder saves."""
    dumped = qjoule("dump", *arguments)
    assert dumped.returncode == 0, dumped.stderr
    return Path(dumped.stdout.strip())


def _work(server: DatabaseServer, seconds: float) -> list[tuple[int, int]]:
    """Works at some hundred statements a second; returns (t_ns, the server's own count)."""
    counts: list[tuple[int, int]] = []
    end = time.monotonic() + seconds
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        number = 0
        while time.monotonic() < end:
            if number % 20 == 0:
                cursor.execute("show global status like 'Com_select'")
                ((_, count),) = cursor.fetchall()
                counts.append((time.monotonic_ns(), int(count)))
            cursor.execute(f"select {number} as m_work, '{CANARY}'")
            cursor.fetchall()
            number += 1
            time.sleep(0.001)
    return counts


def attribute(part: Path, *options: str) -> dict[str, Any]:
    """Converts a saved part, since nobody reads captures as root; returns its attribution."""
    assert part.stat().st_uid or part.stat().st_gid == READER, "its recorder has no rights"
    done = qjoule("convert", str(part))
    assert done.returncode == 0, done.stderr
    return attribute_tables(part, *options)


def _parts(directory: Path, why: str = "*") -> list[Path]:
    return sorted(directory.glob(f"kept-*-{why}"))


def _wait_for(directory: Path, why: str, count: int = 1) -> Path:
    until(lambda: len(_parts(directory, why)) >= count, f"a part because of {why}")
    return _parts(directory, why)[0]


def test_the_last_seconds_of_a_longer_recording(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """The part has the calls that the server counted in the part's time span."""
    with _holding(mariadb, tmp_path / "t") as recorder:
        counts = _work(mariadb, 3 * KEEP_S)
        part = _dump(str(tmp_path / "t"))
        later_counts = _work(mariadb, 1)
    assert part == _parts(tmp_path / "t", "dump")[0]
    result = attribute(part)
    assert result["trace"]["complete"]
    run = Run(part)
    meta = run.trace.meta
    begin, end = meta.begin_ns or 0, meta.end_ns or 0
    assert KEEP_S <= (end - begin) * 1e-9 <= 1.5 * KEEP_S
    assert meta.part is not None and meta.part.why == "dump"
    assert (meta.part.recorder_begin_ns or 0) < begin - KEEP_S * 1_000_000_000
    assert counts[0][0] < begin < end <= later_counts[0][0]
    first, last = (
        max(count for t_ns, count in [*counts, *later_counts] if t_ns <= then_ns)
        for then_ns in (begin, end)
    )
    counted = last - first
    assert len(run.having("m_work")) == pytest.approx(counted, abs=60)
    assert counted > 100
    totals = result["totals_j"]
    measured = totals.pop("measured")
    assert sum(totals.values()) == pytest.approx(measured, rel=1e-9)
    assert measured > 0
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and CANARY.encode() in p.read_bytes()]
    assert "still holds what was recorded last" in recorder.messages


def test_a_recorder_that_was_killed_leaves_what_it_held(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    with _holding(mariadb, tmp_path / "t") as recorder:
        counts = _work(mariadb, 3)
        os.kill(recorder.command_pid, signal.SIGKILL)
        recorder.wait()
    refused = qjoule("attribute", str(tmp_path / "t"))
    assert refused.returncode == 1
    assert "run `qjoule dump" in refused.stderr
    part = _dump(str(tmp_path / "t"))
    attribute(part)
    executed = counts[-1][1] - counts[0][1]  # all but its last second is in the ring
    assert len(Run(part).having("m_work")) > executed / 2 > 0


def test_a_signal_saves(mariadb: DatabaseServer, tmp_path: Path) -> None:
    with _holding(mariadb, tmp_path / "t") as recorder:
        _work(mariadb, 2)
        match = re.search(r"kill -USR1 (\d+)", recorder.messages)
        assert match and int(match[1]) == recorder.command_pid
        os.kill(int(match[1]), signal.SIGUSR1)
        part = _wait_for(tmp_path / "t", "signal")
        _work(mariadb, 1)
        recorder.process.send_signal(signal.SIGUSR1)  # the root part passes it on
        _wait_for(tmp_path / "t", "signal*", 2)
    attribute(part)
    assert "(signal USR1)" in recorder.messages


def test_another_user_may_not_ask(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Not even if the modes of the directory and the socket were opened."""
    with _holding(mariadb, tmp_path / "t"):
        _work(mariadb, 2)
        ring = tmp_path / "t" / "ring"

        def ask() -> tuple[object, object]:
            with socket.socket(socket.AF_UNIX) as asking, suppress(PermissionError):
                asking.connect(str(ring / "socket"))
                asking.sendall(b"save\n")
                return json.loads(asking.recv(4096))["error"], None
            return "not permitted", None

        with other_user(SOMEBODY, ask) as answer:
            assert answer == "not permitted"
        for path, mode in ((tmp_path / "t", 0o755), (ring, 0o755), (ring / "socket", 0o666)):
            path.chmod(mode)
        for path in tmp_path.parents:
            if path.stat().st_uid == 0 and "pytest" in path.name:
                path.chmod(0o755)
        tmp_path.chmod(0o755)
        with other_user(SOMEBODY, ask) as answer:
            assert answer == "not saved: only who started the recorder and root may ask"
        assert not _parts(tmp_path / "t")


def test_a_slow_query_saves_by_itself(mariadb: DatabaseServer, tmp_path: Path) -> None:
    options = ("--trigger", "query>2J", "--pause", "60s")
    with _holding(mariadb, tmp_path / "t", *options) as recorder:
        _work(mariadb, 3)
        assert not _parts(tmp_path / "t")
        with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("select benchmark(2000000, md5('x')) as m_slow")
            cursor.fetchall()
        _work(mariadb, 3)
        part = _wait_for(tmp_path / "t", "query")
    assert "J, more than 2 J" in recorder.messages
    meta = Trace(part).meta
    assert meta.part is not None and "more than 2 J" in meta.part.what
    result = attribute(part, "--by", "query")
    assert max(row["energy_j"] for row in result["rows"]) > 2
    (slow,) = Run(part).having("m_slow").to_dict("records")
    assert slow["end_ns"] > slow["begin_ns"]


def test_the_key_s_saves(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """On a terminal, s saves and q ends the recording; the terminal is restored."""
    terminal, terminal_of_command = pty.openpty()
    keep = ("--keep", f"{KEEP_S}s", "--pid", str(mariadb.pid), *ENERGY)
    command = [QJOULE, "record", "-o", str(tmp_path / "t"), *keep]
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        stdin=terminal_of_command,
        stdout=terminal_of_command,
        stderr=terminal_of_command,
    )
    os.close(terminal_of_command)
    output = b""
    try:
        while b"or the key s saves them" not in output:
            output += os.read(terminal, 4096)
        _work(mariadb, 2)
        os.write(terminal, b"s")
        part = _wait_for(tmp_path / "t", "key")
        os.write(terminal, b"q")
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(terminal)
    attribute(part)
