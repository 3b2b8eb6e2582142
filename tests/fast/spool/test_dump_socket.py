# SPDX-License-Identifier: Apache-2.0
"""`qjoule dump` and the socket at which it asks a recorder, without a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from captured_trace import RingTrace, eventful, joined, ring_trace
from qjoule.spool import dump_socket as dumping
from qjoule.spool.dump_socket import DumpSocket, ask_for_save
from qjoule.spool.ring_files import RingFiles

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
                ring.recorder.process_requests(ring.capture.now)

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
    "directory", ["", "..", "kept-1/..", "kept-$(id)", "kept-1 -o x", "kept-1\n"]
)
def test_what_is_no_part_of_the_recording_is_not_printed(tmp_path: Path, directory: str) -> None:
    """The answer goes into a shell's command substitution; a stranger may listen there."""
    (tmp_path / "ring").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(RingFiles(tmp_path).socket))
        listening.listen()

        def answer() -> None:
            with listening.accept()[0] as peer:
                peer.recv(5)
                peer.sendall(json.dumps({"directory": directory, "seconds": 1.0}).encode())

        answering = threading.Thread(target=answer)
        answering.start()
        done = _dump(str(tmp_path))
        answering.join()
    assert (done.returncode, done.stdout) == (1, "")
    assert "names no part" in done.stderr


@pytest.mark.root
def test_who_listens_must_own_the_directory() -> None:
    listens = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen();"
        "print(flush=True); s.accept()"
    )
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory)
        trace.chmod(0o755)
        RingFiles(trace).folder.mkdir()
        RingFiles(trace).folder.chmod(0o777)
        words = ["/usr/bin/python3", "-I", "-c", listens, str(RingFiles(trace).socket)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, user=54001, group=54001) as stranger:
            assert stranger.stdout
            stranger.stdout.readline()
            done = _dump(directory)
            stranger.kill()
    assert (done.returncode, done.stdout) == (1, "")
    assert "not its owner" in done.stderr


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
