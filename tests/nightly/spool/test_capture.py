# SPDX-License-Identifier: Apache-2.0
"""Recordings of a real server that are converted later; on disks that hang or are full."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from qjoule.spool.files import is_captured, spool_of
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.canaries import (
    Canaries,
    in_files,
    in_tables,
    plant_in_mariadb,
    plant_in_postgres,
    plant_in_redis,
)
from tracing.recording import Recorder, Run, converted_copy, qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
CANARY = "canary-4711"
STATEMENTS = 300
STOPPED_S = 10.0


def _work(server: DatabaseServer, statements: int = STATEMENTS) -> int:
    """Executes statements for the test; returns how many the server has answered."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        texts = (f"select {number} as m_work, '{CANARY}'" for number in range(statements))
        return sum(map(cursor.execute, texts))


def _holds_canary(directory: Path) -> bool:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return any(CANARY.encode() in path.read_bytes() for path in paths)


def test_a_recording_is_converted_later_and_elsewhere(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    options = ("--pid", str(mariadb.pid), "--convert", "later", "--compress")
    with recording(tmp_path / "t", *options) as recorder:
        _work(mariadb)
        time.sleep(1)
        assert not _holds_canary(tmp_path / "t"), "while it is recorded"
        with converted_copy(tmp_path / "t") as so_far:
            assert len(Run(so_far).having("m_work")) == STATEMENTS
    assert "run `qjoule convert` to read it" in recorder.messages
    (tmp_path / "t").rename(tmp_path / "moved")
    converted = qjoule("convert", str(tmp_path / "moved"))
    assert converted.returncode == 0, converted.stderr
    run = Run(tmp_path / "moved")
    assert run.trace.complete
    assert len(run.having("m_work")) == STATEMENTS
    assert run.loss == {}
    assert not _holds_canary(tmp_path / "moved")


def test_nothing_is_lost_while_the_reader_is_stopped(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """The tracer writes its records by itself; only names wait for the reader."""
    rounds = 0
    with recording(tmp_path / "t", "--pid", str(mariadb.pid)) as recorder:
        reader = recorder.command_pid
        os.kill(reader, signal.SIGSTOP)
        end = time.monotonic() + STOPPED_S
        while time.monotonic() < end:
            _work(mariadb)
            rounds += 1
        os.kill(reader, signal.SIGCONT)
    run = Run(tmp_path / "t")
    assert len(run.having("m_work")) == rounds * STATEMENTS
    assert run.loss == {}


def test_a_recording_ends_at_its_bound_and_says_so(mariadb: DatabaseServer, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t", "--pid", str(mariadb.pid), "--spool-mb", "1")
    try:
        recorder.attached()
        deadline = time.monotonic() + 60
        while recorder.process.poll() is None and time.monotonic() < deadline:
            _work(mariadb, 3000)
        assert recorder.wait() == 1
        assert "has reached its limit" in recorder.messages
    finally:
        recorder.end()
    trace = Trace(tmp_path / "t")
    assert not trace.complete
    assert "has reached its limit (--spool-mb)" in (trace.meta.stopped or "")
    assert trace.rows("queries") > 1000
    assert not spool_of(tmp_path / "t").exists()


# ---- disks that hang, or are full ----------------------------------------------------------------

DISK_MB = 24
BEFORE, MEANWHILE, AFTER = 500, 30_000, 500
_FREEZE, _THAW = 0xC0045877, 0xC0045878  #: linux/fs.h


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    image, place = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(DISK_MB << 20)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def _hanging(disk: Path) -> Iterator[None]:
    """Freezes the file system for the block: writers wait (fsfreeze(8))."""
    descriptor = os.open(disk, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, _FREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(descriptor, _THAW, 0)
    finally:
        os.close(descriptor)


def _options(server: DatabaseServer) -> tuple[str, ...]:
    return "--pid", str(server.pid), "--energy", "none", "--convert", "later", "--ring-mb", "1"


def test_a_disk_that_hangs_costs_records_and_never_the_server(
    mariadb: DatabaseServer, disk: Path
) -> None:
    """The server answers many times more statements meanwhile than the rings can hold."""
    with recording(disk / "t", *_options(mariadb)):
        assert _work(mariadb, BEFORE) == BEFORE
        with _hanging(disk):
            size = spool_of(disk / "t").stat().st_size
            assert _work(mariadb, MEANWHILE) == MEANWHILE
            assert spool_of(disk / "t").stat().st_size == size
        assert _work(mariadb, AFTER) == AFTER
    with converted_copy(disk / "t") as tables:
        run = Run(tables)
        recorded, lost_queries = len(run.having("m_work")), run.loss["query"]
    assert AFTER < recorded < BEFORE + MEANWHILE + AFTER <= recorded + lost_queries, (
        "all loss is counted"
    )


def test_a_full_disk_ends_the_recording_which_is_converted_elsewhere(
    mariadb: DatabaseServer, disk: Path
) -> None:
    with (disk / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (DISK_MB - 8) << 20)
    recorder = Recorder(disk / "t", *_options(mariadb))
    try:
        recorder.attached()
        for _ in range(200):
            if recorder.process.poll() is not None:
                break
            assert _work(mariadb, 2_000) == 2_000
        assert recorder.wait() == 1
        assert "No space left on device" in recorder.messages
        assert "Traceback" not in recorder.messages
    finally:
        recorder.end()
    converted_here = qjoule("convert", str(disk / "t"))
    assert converted_here.returncode == 1
    assert "no space left on device" in converted_here.stderr.lower()
    assert "Traceback" not in converted_here.stderr
    assert is_captured(disk / "t")
    with converted_copy(disk / "t") as tables:
        run = Run(tables)
        assert not run.trace.complete
    assert len(run.having("m_work")) > 2_000


# ---- no value that a client sent is on the disk --------------------------------------------------

PLANTS = {"mariadb": plant_in_mariadb, "postgres": plant_in_postgres, "redis": plant_in_redis}


@pytest.mark.parametrize(
    "options", [(), ("--attach", "symbol", "--children", "--ids"), ("--keep", "30s")]
)
def test_no_canary_is_on_the_disk(
    mariadb: DatabaseServer,
    postgres: DatabaseServer,
    redis: DatabaseServer,
    tmp_path: Path,
    options: tuple[str, ...],
) -> None:
    servers = {"mariadb": mariadb, "postgres": postgres, "redis": redis}
    traced = {n: s for n, s in servers.items() if "symbol" not in options or n != "redis"}
    pids = [f"--pid={server.pid}" for server in traced.values()]
    later = () if "--keep" in options else ("--convert", "later")
    canaries = Canaries()
    with recording(tmp_path / "t", *pids, *later, *options) as recorder:
        for name, server in traced.items():
            PLANTS[name](server, canaries)
        assert len(canaries) > 50
        time.sleep(1)
        assert in_files(canaries, tmp_path) == [], "while it is recorded"
    assert canaries.found_in(recorder.messages.encode()) == []
    trace = tmp_path / "t"
    if "--keep" in options:
        dumped = qjoule("dump", str(trace))
        assert dumped.returncode == 0, dumped.stderr
        trace = Path(dumped.stdout.strip())
    assert is_captured(trace)
    assert in_files(canaries, tmp_path) == []
    done = qjoule("convert", str(trace))
    assert done.returncode == 0, done.stderr
    assert in_files(canaries, tmp_path) == []
    assert in_tables(canaries, trace) == []
    run = Run(trace)
    for marker in ("m_single", "m_comment", "m_line"):
        assert len(run.having(marker)), f"{marker} was not recorded"
