# SPDX-License-Identifier: Apache-2.0
"""Recordings of a real server that are captured first and converted later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from qjoule.spool.files import FOLDER, is_captured, spool_of
from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES
from servers.process import DatabaseServer
from tracing.recording import Recorder, Run, converted_copy, qjoule

pytestmark = [pytest.mark.root, pytest.mark.server]
CANARY = "canary-4711"
STATEMENTS = 300
STOPPED_S = 20.0
MB = 1 << 20


def _work(server: DatabaseServer, statements: int = STATEMENTS) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(statements):
            cursor.execute(f"select {number} as m_work, '{CANARY}'")


def _files_with(directory: Path, words: str) -> list[Path]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path for path in files if words.encode() in path.read_bytes()]


def test_a_recording_is_converted_later_and_elsewhere(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    options = ("--pid", str(mariadb.pid), "--convert", "later", "--compress")
    recorder = Recorder(tmp_path / "t", *options)
    try:
        recorder.attached()
        _work(mariadb)
        assert recorder.stop() == 0, recorder.words
        assert "run `qjoule convert` to read it" in recorder.words
    finally:
        recorder.end()
    names = {path.name for path in (tmp_path / "t").iterdir()}
    assert {FOLDER, "meta.json"} <= names and not names & set(TABLES)
    assert _files_with(tmp_path / "t", CANARY) == []
    (tmp_path / "t").rename(tmp_path / "moved")
    done = qjoule("convert", str(tmp_path / "moved"))
    assert done.returncode == 0, done.stderr
    run = Run(tmp_path / "moved")
    assert run.trace.complete
    assert len(run.having("m_work")) == STATEMENTS
    assert run.loss == {}
    assert _files_with(tmp_path / "moved", CANARY) == []


def test_no_literal_is_on_the_disk_while_it_is_recorded(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path / "t", "--pid", str(mariadb.pid))
    try:
        recorder.attached()
        _work(mariadb)
        time.sleep(1)
        assert is_captured(tmp_path / "t")
        assert _files_with(tmp_path / "t", CANARY) == []
        with converted_copy(tmp_path / "t") as so_far:
            assert len(Run(so_far).having("m_work")) == STATEMENTS
        assert recorder.stop() == 0, recorder.words
    finally:
        recorder.end()
    assert not is_captured(tmp_path / "t")
    assert len(Run(tmp_path / "t").having("m_work")) == STATEMENTS


def test_nothing_is_lost_while_the_reader_is_stopped(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """The tracer writes what it takes by itself; only names wait for the reader."""
    recorder = Recorder(tmp_path / "t", "--pid", str(mariadb.pid))
    try:
        recorder.attached()
        _work(mariadb, 10)
        reader = recorder.command_pid
        os.kill(reader, signal.SIGSTOP)
        end = time.monotonic() + STOPPED_S
        rounds = 0
        while time.monotonic() < end:
            _work(mariadb)
            rounds += 1
        os.kill(reader, signal.SIGCONT)
        assert recorder.stop() == 0, recorder.words
    finally:
        recorder.end()
    run = Run(tmp_path / "t")
    assert len(run.having("m_work")) == 10 + rounds * STATEMENTS
    assert run.loss == {}


def test_a_recording_ends_at_its_bound_and_says_so(mariadb: DatabaseServer, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t", "--pid", str(mariadb.pid), "--spool-mb", "1")
    try:
        recorder.attached()
        deadline = time.monotonic() + 60
        while recorder.process.poll() is None and time.monotonic() < deadline:
            _work(mariadb, 3000)
        assert recorder.wait() == 1
        assert "has reached its limit" in recorder.words
    finally:
        recorder.end()
    trace = Trace(tmp_path / "t")
    assert not trace.complete
    assert "has reached its limit (--spool-mb)" in (trace.meta.stopped or "")
    assert trace.rows("queries") > 1000
    assert not spool_of(tmp_path / "t").exists()
