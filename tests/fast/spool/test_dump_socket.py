# SPDX-License-Identifier: Apache-2.0
"""`qjoule dump` and the socket at which it asks a recorder, without a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
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
def _listening(trace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RingTrace]:
    """A recorder that listens, as `record` does; a thread stands in for its stream."""
    with ring_trace(trace, 2.0) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
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
    words = [QJOULE, "dump", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd)


def test_a_recorder_is_asked_by_its_directory_or_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)  # longer than a socket's address
    deep.mkdir(parents=True)
    with _listening(deep / "r", monkeypatch):
        for arguments, cwd in (((), deep), ((str(deep / "r"),), None), ((str(os.getpid()),), None)):
            done = _dump(*arguments, cwd=cwd)
            assert done.returncode == 0, done.stderr
            (line,) = done.stdout.splitlines()
            assert ((cwd or Path()) / line / "capture" / "spool").is_file()
        # It has the recorder's working directory, as the tracer has.
        with subprocess.Popen(["sleep", "60"], cwd=deep / "r") as other:
            done = _dump(str(other.pid))
            other.kill()
    assert done.returncode == 1
    assert "no flight recorder" in done.stderr


@pytest.mark.parametrize("sent", [b"", b"sav", b"stop\n", b"\0" * 4096, None])
def test_peers_that_ask_for_nothing_are_refused_or_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes | None
) -> None:
    monkeypatch.setattr(dumping, "_HEAR_S", 0.3)
    with _listening(tmp_path / "r", monkeypatch) as ring, socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(RingFiles(Path()).socket))
        if sent is not None:  # else it says nothing at all
            peer.sendall(sent)
            peer.shutdown(socket.SHUT_WR)
        answer = peer.recv(4096)
        assert not answer or "no request" in json.loads(answer)["error"]
        monkeypatch.setattr(dumping, "_HEAR_S", 30.0)
        assert ask_for_save(ring.trace) is not None  # it still listens
    assert len(list(ring.trace.glob("kept-*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["."], 1, "is no flight recorder's directory"),
        ([], 2, "there is no flight recorder in this directory"),
        (["999999999"], 1, "there is no process 999999999"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    done = _dump(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
