# SPDX-License-Identifier: Apache-2.0
"""`record --convert idle` on a real server: the recording never depends on its converter."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from qjoule.spool.files import is_captured
from servers.process import DatabaseServer
from tracing.confined import holds_nothing
from tracing.recording import Recorder, Run

pytestmark = [pytest.mark.root, pytest.mark.server]
STATEMENTS = 300
NAME = "qjoule-convert"


def _work(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(STATEMENTS):
            cursor.execute(f"select {number} as m_work")


def _converter(recorder: Recorder) -> psutil.Process:
    for child in psutil.Process(recorder.process.pid).children(recursive=True):
        if Path(f"/proc/{child.pid}/comm").read_text().strip() == NAME:
            return child
    raise AssertionError("there is no converter")


@pytest.mark.parametrize("fate", ["lives", "is killed", "is stopped and killed"])
def test_the_trace_is_the_same_whatever_becomes_of_the_converter(
    mariadb: DatabaseServer, tmp_path: Path, fate: str
) -> None:
    options = ("--pid", str(mariadb.pid), "--energy", "none", "--convert", "idle")
    recorder = Recorder(tmp_path / "t", *options)
    try:
        recorder.attached()
        _work(mariadb)
        converter = _converter(recorder)
        assert os.sched_getscheduler(converter.pid) == os.SCHED_IDLE
        assert converter.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
        holds_nothing(converter.pid)
        deadline = time.monotonic() + 60
        while not list((tmp_path / "t" / "converting").rglob("part-*")) and fate == "lives":
            assert time.monotonic() < deadline, "it converts nothing while it is recorded"
            time.sleep(0.1)
        if "stopped" in fate:
            converter.send_signal(signal.SIGSTOP)
            _work(mariadb)
        if "killed" in fate:
            converter.kill()
        _work(mariadb)
        assert recorder.stop() == 0, recorder.words
    finally:
        recorder.end()
    run = Run(tmp_path / "t")
    assert run.trace.complete
    assert len(run.having("m_work")) == STATEMENTS * (3 if "stopped" in fate else 2)
    assert run.loss == {}
    assert not is_captured(tmp_path / "t")
    assert not (tmp_path / "t" / "converting").exists()
    assert not psutil.pid_exists(converter.pid)
    names = set(run.trace.pandas("owners")["comm"])
    assert fate != "lives" or NAME in names, "its time is a process's of its own"
