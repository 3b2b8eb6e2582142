# SPDX-License-Identifier: Apache-2.0
"""`qjoule dump` and the socket that it asks at, without a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from captured_trace import eventful
from qjoule.spool import dump_socket as dumping
from qjoule.spool.dump_socket import DumpSocket, ask_for_save
from qjoule.spool.ring_files import RingFiles
from ring_trace import RingTrace, joined, ring_trace

QJOULE = str(Path(sys.executable).parent / "qjoule")


@contextmanager
def _listening(
    trace: Path, monkeypatch: pytest.MonkeyPatch, windows: int = 150
) -> Iterator[RingTrace]:
    """A recorder that listens, as `record` does; a thread stands in for its stream."""
    with ring_trace(trace, 2.0) as ring:
        ring.feed(joined(eventful(4.5)[:windows]))
        (trace / "meta.json").write_text(ring.capture.meta.to_json())
        monkeypatch.chdir(trace)
        listening = DumpSocket(Path(), ring.recorder)
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(0.02):
                ring.recorder.look(ring.capture.now)

        looking = threading.Thread(target=look)
        looking.start()
        listening.start()
        try:
            yield ring
        finally:
            ended.set()
            looking.join()
            listening.close()


def _dump(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [QJOULE, "dump", *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


def test_a_recorder_is_asked_by_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)  # longer than a socket's address
    deep.mkdir(parents=True)
    with _listening(deep / "r", monkeypatch):
        for arguments, cwd in (
            (("r",), deep),
            ((), deep),
            ((), deep / "r"),
            ((str(deep / "r"),), None),
        ):
            done = _dump(*arguments, cwd=cwd)
            assert done.returncode == 0, done.stderr
            (line,) = done.stdout.splitlines()
            assert ((cwd or Path()) / line / "capture" / "spool").is_file()


def test_a_recorder_that_has_recorded_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _listening(tmp_path / "r", monkeypatch, windows=1):
        done = _dump(str(tmp_path / "r"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "qjoule: not saved: nothing is recorded yet\n"


def test_another_process_is_not_taken_for_the_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _listening(tmp_path / "r", monkeypatch):
        # It has the recorder's working directory, as the tracer has.
        other = subprocess.Popen(["sleep", "60"], cwd=tmp_path / "r")
        try:
            done = _dump(str(other.pid))
        finally:
            other.kill()
            other.wait()
        assert done.returncode == 1
        assert "no flight recorder" in done.stderr
        assert _dump(str(os.getpid())).returncode == 0  # this process listens


@pytest.mark.parametrize("sent", [b"", b"sav", b"stop\n", b"\0" * 4096])
def test_what_is_no_request_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(dumping, "_HEAR_S", 0.5)
    with _listening(tmp_path / "r", monkeypatch) as ring:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(RingFiles(Path()).socket))
            peer.sendall(sent)
            peer.shutdown(socket.SHUT_WR)
            answer = peer.recv(4096)
            assert not answer or "no request" in json.loads(answer)["error"]
        assert ask_for_save(ring.trace) is not None  # it still listens
    assert len(list(ring.trace.glob("kept-*"))) == 1


def test_a_peer_that_says_nothing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumping, "_HEAR_S", 0.3)
    with _listening(tmp_path / "r", monkeypatch) as ring, socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(RingFiles(Path()).socket))
        time.sleep(0.05)
        monkeypatch.setattr(dumping, "_HEAR_S", 30.0)
        assert ask_for_save(ring.trace) is not None


def test_nobody_else_may_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        with _listening(tmp_path / "r", monkeypatch) as ring:
            assert RingFiles(ring.trace).socket.stat().st_mode & 0o777 == 0o600
            assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert not RingFiles(ring.trace).socket.exists()


def test_a_directory_that_is_no_recorder(tmp_path: Path) -> None:
    for arguments, code, words in (
        ((str(tmp_path),), 1, "is no flight recorder's directory"),
        ((str(tmp_path / "none"),), 1, "there is no directory"),
        ((), 2, "there is no flight recorder in this directory"),
        (("999999999",), 1, "there is no process 999999999"),
    ):
        done = _dump(*arguments, cwd=tmp_path)
        assert done.returncode == code, arguments
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
