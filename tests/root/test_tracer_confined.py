"""`qjoule-tracer` itself on real servers: its privileges, its counters, its memory errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from qjoule.contract import Block, Mode
from qjoule.live.tracer import Settings, plan_tracing
from qjoule.trace.stream import Frame, Stream
from root.support.mysql_story import prepare_server, sysbench
from servers.process import DatabaseServer

pytestmark = [pytest.mark.root, pytest.mark.server]

TRACER = Path(sys.executable).parent / "qjoule-tracer"
SANITIZED = Path(__file__).parents[2] / "build" / "qjoule-tracer-asan"
CAP_BPF = 1 << 39
STOP_TIMEOUT_S = 60


class Session:
    """A tracer without the Python command around it; its stream is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], control: int) -> None:
        assert process.stdout is not None
        self.process, self.control = process, control
        self.frames: list[Frame] = []
        self.attached = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,))
        self._reader.start()

    def _read(self, pipe: IO[bytes]) -> None:
        for frame in Stream(pipe):
            self.frames.append(frame)
            self.attached.set()
        self.attached.set()

    def records(self, kind: Block) -> np.ndarray:
        return np.concatenate([f.records for f in self.frames if f.kind is kind])

    def finish(self) -> str:
        os.close(self.control)
        self._reader.join()
        assert self.process.stderr is not None
        words = self.process.stderr.read().decode()
        assert self.process.wait(STOP_TIMEOUT_S) == 0, words
        return words


@contextmanager
def session(
    server: DatabaseServer, mode: Mode, *options: str, tracer: Path = TRACER
) -> Iterator[Session]:
    settings = Settings(mode)
    read_end, write_end = os.pipe()
    plan = plan_tracing([server.pid]).arguments()
    arguments = ["--mode", settings.mode.name.lower(), "--energy", "estimated:5,10,20,40"]
    arguments += ["--control-fd", str(read_end), "--reader", str(os.getpid()), "--only-running"]
    process = subprocess.Popen(
        [tracer, *arguments, *options, *plan],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(read_end,),
        env={
            **os.environ,
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
    )
    os.close(read_end)
    running = Session(process, write_end)
    try:
        assert running.attached.wait(STOP_TIMEOUT_S)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        running._reader.join()


def load(server: DatabaseServer) -> None:
    prepare_server(server)
    sysbench(server, "oltp_read_only", "run", "--events=300")


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


@pytest.mark.parametrize("mode", [Mode.RECORD, Mode.LIVE])
def test_once_attached_it_has_no_privileges(mariadb: DatabaseServer, mode: Mode) -> None:
    with session(mariadb, mode) as running:
        load(mariadb)
        status = status_of(running.process.pid)
        running.finish()
    allowed = CAP_BPF if mode is Mode.LIVE else 0
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind], 16) & ~allowed == 0, kind
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert set(status["Uid"].split()) == {"65534"}
    assert set(status["Gid"].split()) == {"65534"}
    assert status["Groups"].strip() == ""


@pytest.mark.skipif(not SANITIZED.exists(), reason="build/qjoule-tracer-asan is not built: make")
@pytest.mark.parametrize("mode", [Mode.RECORD, Mode.LIVE])
@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_no_memory_errors_under_load(request: pytest.FixtureRequest, kind: str, mode: Mode) -> None:
    server: DatabaseServer = request.getfixturevalue(kind)
    with session(server, mode, "--counter", "cycles=1:0", tracer=SANITIZED) as running:
        if kind == "mariadb":
            load(server)
        else:
            with server.connect() as connection:
                for number in range(500):
                    connection.execute(f"select {number} as c{number}")
        words = running.finish()
    assert words == ""
    assert running.frames[-1].kind is Block.END


def test_counters_count_what_the_cpu_did(mariadb: DatabaseServer) -> None:
    """Software clocks stand in for hardware counters: their unit is ns of the CPU's time."""
    clocks = ("--counter", "cycles=1:0", "--counter", "llc-misses=1:0")
    with session(mariadb, Mode.RECORD, *clocks) as running:
        load(mariadb)
        words = running.finish()
    assert words == ""
    hello = running.records(Block.HELLO)[0]
    assert hello["counters"] == 0b101
    records = running.records(Block.SEGMENT_COUNTERS)
    segments, counters = records["segment"], records["counters"]
    assert len(segments) > 1000
    assert not [frame for frame in running.frames if frame.kind is Block.SEGMENT]
    valid = segments["valid"] == 0b101
    assert valid.mean() > 0.99
    assert not np.any(segments["valid"] & ~np.uint8(0b101))
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"])[valid].sum()
    for column in (0, 2):
        assert int(counters[valid, column].sum()) == pytest.approx(int(cpu_ns), rel=0.03)
    assert not counters[:, 1].any()


def test_counters_in_the_live_view(mariadb: DatabaseServer) -> None:
    with session(mariadb, Mode.LIVE, "--counter", "instructions=1:0") as running:
        load(mariadb)
        running.finish()
    sums = running.records(Block.AGGREGATE)
    valid = sums["valid"] == 0b10
    assert valid.mean() > 0.9
    cpu_ns = sums["cpu_ns"][valid].sum()
    assert int(sums["counters"][valid, 1].sum()) == pytest.approx(int(cpu_ns), rel=0.03)


def test_a_counter_that_is_not_there_is_left_out(mariadb: DatabaseServer) -> None:
    """PERF_TYPE_SOFTWARE has no event 4711."""
    missing = ("--counter", "cycles=1:4711", "--counter", "instructions=1:0")
    with session(mariadb, Mode.RECORD, *missing) as running:
        load(mariadb)
        words = running.finish()
    assert words.count("\n") == 1
    assert "counter 0 is not available" in words or "cycles" in words
    assert running.records(Block.HELLO)[0]["counters"] == 0b10
