# SPDX-License-Identifier: Apache-2.0
"""`qjoule dump` and the socket at which it asks a recorder, without a server. Also: what makes a
flight recorder save by itself.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import fake_tracer as ft
from captured_trace import RingTrace, eventful, joined, ring_trace
from qjoule.contract import Block
from qjoule.live.triggers import Judge
from qjoule.spool import dump_socket as dumping
from qjoule.spool.dump_socket import DumpSocket, ask_for_save
from qjoule.spool.files import RingFiles
from qjoule.stream.blocks import Stream, encode_block
from waiting import in_background

QJOULE = str(Path(sys.executable).parent / "qjoule")


@contextmanager
def _listening(trace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RingTrace]:
    """A recorder that listens, as `record` does; a thread stands in for its stream."""
    with ring_trace(trace, 2.0) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
        (trace / "meta.json").write_text(ring.capture.meta.to_json())
        monkeypatch.chdir(trace)
        listening = DumpSocket(Path(), ring.recorder)

        def process(stop: threading.Event) -> None:
            while not stop.wait(0.02):
                ring.recorder.process_requests(ring.capture.now)

        with closing(listening), in_background(process):
            listening.start()
            yield ring


def _dump(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command_line = [QJOULE, "dump", *arguments]
    return subprocess.run(command_line, capture_output=True, text=True, check=False, cwd=cwd)


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
        command_line = ["/usr/bin/python3", "-I", "-c", listens, str(RingFiles(trace).socket)]
        with subprocess.Popen(
            command_line, stdout=subprocess.PIPE, user=54001, group=54001
        ) as stranger:
            assert stranger.stdout
            stranger.stdout.readline()
            done = _dump(directory)
            stranger.kill()
    assert (done.returncode, done.stdout) == (1, "")
    assert "not its owner" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["."], 1, "is no flight recorder's directory"),
        ([], 2, "there is no flight recorder in this directory"),
        (["999999999"], 1, "there is no process 999999999"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    done = _dump(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --------------------------------------------------------------------------------------------------
#
# What makes a flight recorder save by itself, on a synthetic stream of known energy.

KEEP_S = 8.0  #: segments of one second
UNIT_J = 2.0**-14
REST_W, CORE_W = 2.0, 10.0


def _with_energy(pieces: list[bytes], burst: range, factor: int) -> bytes:
    """The stream with a package's energy: at rest, and by busy core, which draws `factor` times as
    much in some windows.
    """
    out, window, joules, busy_ns = [], 0, 0.0, 0
    for block in Stream(io.BytesIO(joined(pieces))):
        records = block.records
        if block.kind is Block.SEGMENT:
            busy_ns += int((records["t1_ns"] - records["t0_ns"]).sum())
        if block.kind is Block.ENERGY:
            window += 1
            joules += REST_W * 0.02 + CORE_W * busy_ns * 1e-9 * (factor if window in burst else 1)
            busy_ns = 0
            records = records.copy()
            records["raw"][records["domain"] == 0] = round(joules / UNIT_J)
        if block.kind is Block.FLUSH:
            out.append(encode_block(block.kind, t_ns=block.t_ns))
        else:
            out.append(encode_block(block.kind, records, t_ns=block.t_ns, text=block.text))
    return joined(out)


class _Judged:
    """A ring whose segments are judged as they are whole."""

    def __init__(self, ring: RingTrace, *, shapes: bool, query_j: float | None) -> None:
        self.found: list[tuple[str, str]] = []
        self.messages: list[str] = []
        self.judge = Judge(
            ring.trace,
            shapes=shapes,
            query_j=query_j,
            patience_s=KEEP_S / 2,
            on_find=lambda why, what: self.found.append((why, what)),
            say=self.messages.append,
        )
        ring.capture.whole = self._add
        self.judge.start()

    def _add(self, *segment: object) -> None:
        """One at a time: a test's stream is faster than a second a second."""
        self.judge.add(*segment)  # type: ignore[arg-type] # as the capture gives it
        end = time.monotonic() + 60
        while self.judge._waiting.qsize() and time.monotonic() < end:
            time.sleep(0.01)


def _traffic(seconds: float) -> list[bytes]:
    """On the first two of three CPUs."""
    pieces = ft.traffic(seconds, per_second=400)
    pieces[0] = ft.head(3) + pieces[0][len(ft.head(2)) :]
    return pieces


@pytest.mark.parametrize("factor", [1, 5])
def test_a_shape_that_leaves_its_own_interval(tmp_path: Path, factor: int) -> None:
    stream = _with_energy(_traffic(16.0)[:-1], range(650, 700), factor)
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        judged = _Judged(ring, shapes=True, query_j=None)
        ring.feed(stream)
        judged.judge.close()
    assert judged.messages == []
    assert judged.judge.left_out == 0
    if factor == 1:
        assert judged.found == []
        return
    assert {why for why, _ in judged.found} == {"shape"}
    assert 1 <= len(judged.found) <= 10  # five shapes; the burst may lie in two segments
    assert "J/call, before" in judged.found[0][1] and "select x" in judged.found[0][1]


def test_a_query_over_several_segments_counts_as_a_whole(tmp_path: Path) -> None:
    """A query's energy is summed over segments; it is reported once, with its text, when it
    ends."""
    begin, end = 100, 230  # windows: from 2 s to 4.6 s
    pieces = _traffic(9.0)[:-1]
    serving = {"query": 900_001, "pid": 107, "tgid": 100, "server": 1, "owner_kind": 1}
    for window in range(begin, end):
        t0_ns = ft.BEGIN_NS + window * 20 * ft.MS
        ran = ft.segment(t0_ns, t0_ns + 20 * ft.MS, 107, cpu=2) | serving
        pieces[window + 1] = ft.block(Block.SEGMENT, ran) + pieces[window + 1]
    row = {"query": 900_001, "shape": 3, "session": 107, "pid": 107, "tgid": 100, "server": 1}
    row |= {
        "begin_ns": ft.BEGIN_NS + begin * 20 * ft.MS,
        "executions": 1,
        "attach_mode": 1,
        "command": 1,
    }
    row |= {"end_ns": ft.BEGIN_NS + end * 20 * ft.MS - 1}
    pieces[end] = ft.block(Block.QUERY, row) + pieces[end]
    whole_j = 2.6 * CORE_W
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        judged = _Judged(ring, shapes=False, query_j=whole_j / 2)
        ring.feed(_with_energy(pieces, range(0), 1))
        judged.judge.close()
    assert judged.messages == []
    ((why, what),) = judged.found
    assert why == "query"
    assert "select xxx" in what
    told_j = float(what.split(" J")[0].rsplit(" ", 1)[1])
    assert whole_j / 2 < told_j < whole_j * 1.3
