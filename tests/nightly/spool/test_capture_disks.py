# SPDX-License-Identifier: Apache-2.0
"""Recordings of a real server on disks that hang, are full, or may not be written."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from qjoule.spool.files import is_captured, spool_of
from servers.process import DatabaseServer
from tracing.recording import Recorder, Run, converted_copy, qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
DISK_MB = 24
STOPPED_S, GOES_S = 1.5, 0.05
BEFORE, MEANWHILE, AFTER = 500, 30_000, 500
PIECE, STOPS = 2_000, 3
_FREEZE, _THAW = 0xC0045877, 0xC0045878  #: linux/fs.h


def _work(server: DatabaseServer, statements: int) -> int:
    """How many statements the server has answered."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        return sum(cursor.execute(f"select {number} as m_work") for number in range(statements))


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
    """Whoever writes to it waits (fsfreeze(8))."""
    descriptor = os.open(disk, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, _FREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(descriptor, _THAW, 0)
    finally:
        os.close(descriptor)


@contextmanager
def _stuttering(disk: Path) -> Iterator[list[int]]:
    """It hangs most of the time; yields the sizes of the spool at the stops so far."""
    ended, sizes = threading.Event(), []

    def stutter() -> None:
        while not ended.is_set():
            with _hanging(disk):
                sizes.append(spool_of(disk / "t").stat().st_size)
                ended.wait(STOPPED_S)
            ended.wait(GOES_S)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def _options(server: DatabaseServer) -> tuple[str, ...]:
    return "--pid", str(server.pid), "--energy", "none", "--convert", "later", "--ring-mb", "1"


def _check_loss_is_counted(trace: Path, statements: int) -> None:
    """Some statements are lost, and all that are lost are counted."""
    with converted_copy(trace) as tables:
        run = Run(tables)
        recorded, lost = len(run.having("m_work")), run.loss["query"]
    assert AFTER < recorded < statements <= recorded + lost


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
    _check_loss_is_counted(disk / "t", BEFORE + MEANWHILE + AFTER)


def test_a_slow_disk_costs_records_and_never_the_server(
    mariadb: DatabaseServer, disk: Path
) -> None:
    """It takes a little again and again, so the tracer goes on and falls behind many times."""
    with recording(disk / "t", *_options(mariadb)) as recorder:
        priority = psutil.Process(recorder.tracer_pid).ionice()
        assert (priority.ioclass, priority.value) == (psutil.IOPRIO_CLASS_BE, 7)
        done = 0
        with _stuttering(disk) as sizes:
            # However fast the server is: until the disk was written to between several stops.
            while done < MEANWHILE or len(set(sizes)) < STOPS:
                done += _work(mariadb, PIECE)
        assert _work(mariadb, AFTER) == AFTER
    _check_loss_is_counted(disk / "t", done + AFTER)


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
        assert "No space left on device" in recorder.words
        assert "Traceback" not in recorder.words
    finally:
        recorder.end()
    here = qjoule("convert", str(disk / "t"))
    assert here.returncode == 1
    assert "no space left on device" in here.stderr.lower()
    assert "Traceback" not in here.stderr
    assert is_captured(disk / "t")
    with converted_copy(disk / "t") as tables:
        run = Run(tables)
        assert not run.trace.complete
    assert len(run.having("m_work")) > 2_000


def test_a_disk_that_may_not_be_written(mariadb: DatabaseServer, disk: Path) -> None:
    with recording(disk / "t", *_options(mariadb)):
        _work(mariadb, BEFORE)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    done = qjoule("convert", str(disk / "t"))
    assert done.returncode == 1
    assert "Read-only file system; the recording is as it was" in done.stderr
    with converted_copy(disk / "t") as tables:
        assert len(Run(tables).having("m_work")) == BEFORE
    refused = qjoule("record", "-o", str(disk / "other"), *_options(mariadb), "-d", "1")
    assert refused.returncode == 1
    assert "Read-only file system" in refused.stderr
