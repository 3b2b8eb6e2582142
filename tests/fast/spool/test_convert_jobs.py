# SPDX-License-Identifier: Apache-2.0
"""Conversions by several processes: the same files, nothing left behind, whatever happens."""

from __future__ import annotations

import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from bench.bench_convert import make_capture
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captured_trace import captured_trace, eventful
from qjoule.errors import QjouleError
from qjoule.spool import convert as module
from qjoule.spool import workers
from qjoule.spool.convert import convert
from qjoule.spool.files import CONVERTING, names_of, spool_of
from qjoule.spool.tables import Tables
from qjoule.stream.share import Share

#: As our own user, also if that is root: the command's entry point would give up root.
_CODE = "import sys; from qjoule.cli import main; sys.argv[0] = 'qjoule'; main()"
QJOULE = (sys.executable, "-c", _CODE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("captured") / "trace"
    captured_trace(trace, eventful(3.0))
    return trace


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_BYTES", 0)


def _files(trace: Path) -> dict[str, bytes]:
    found = (path for path in trace.rglob("*") if path.is_file() and "capture" not in path.parts)
    return {str(path.relative_to(trace)): path.read_bytes() for path in found}


def _children() -> list[int]:
    """Converters among this process's children: servers of other tests may be there, too."""
    return [
        child.pid
        for child in psutil.Process().children()
        if child.cmdline() == psutil.Process().cmdline()
    ]


@pytest.mark.usefixtures("always")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0.1, 1), flips=st.integers(0, 3), seed=st.integers(0, 1 << 30))
def test_the_tables_do_not_depend_on_the_number_of_processes(
    whole: Path, tmp_path: Path, cut: float, flips: int, seed: int
) -> None:
    """Also of a capture that is cut off or damaged: byte by byte, with meta.json."""
    trace, chance = tmp_path / "some", random.Random(seed)
    shutil.copytree(whole, trace)
    spool = bytearray(spool_of(trace).read_bytes())
    del spool[int(cut * len(spool)) :]
    for _ in range(flips):
        spool[chance.randrange(len(spool))] ^= 1 << chance.randrange(8)
    spool_of(trace).write_bytes(spool)
    try:
        made = []
        for jobs in (1, 2):
            convert(trace, tmp_path / str(jobs), jobs=jobs)
            made.append(_files(tmp_path / str(jobs)))
        assert made[0] == made[1]
        assert any(name.startswith("queries/") for name in made[0])
    finally:
        for path in tmp_path.iterdir():
            shutil.rmtree(path)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("share", [Share.TIMES, Share.QUERIES])
def test_a_process_that_is_killed_is_an_error_and_the_capture_stays(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: Share
) -> None:
    trace = tmp_path / "trace"
    shutil.copytree(whole, trace)
    before = spool_of(trace).read_bytes()

    class Killed(Tables):
        def steps(self) -> Iterator[tuple[int, int]]:
            for number, step in enumerate(super().steps()):
                if number == 5 and self._share is share:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield step

    with monkeypatch.context() as patch:
        patch.setattr(workers, "Tables", Killed)
        with pytest.raises(QjouleError, match=r"was killed; the recording is as it was: run"):
            convert(trace, jobs=2)
    assert _children() == []
    assert spool_of(trace).read_bytes() == before
    assert convert(trace, jobs=2).meta.complete
    assert not (trace / CONVERTING).exists()


@pytest.mark.usefixtures("always")
def test_an_error_of_a_process_is_told_in_its_words(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    shutil.copytree(whole, trace)

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("qjoule.trace.writer.write_whole", full)
    with pytest.raises(QjouleError, match=r"(?i)no space left"):
        convert(trace, jobs=2)
    assert _children() == []


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("large") / "trace"
    make_capture(trace, 1_200_000)
    return trace


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_process_and_the_whole_capture(
    large: Path, how: signal.Signals
) -> None:
    size = spool_of(large).stat().st_size
    command = subprocess.Popen([*QJOULE, "convert", "--jobs", "2", str(large)], stderr=-1)
    try:
        me = psutil.Process(command.pid)
        deadline = time.monotonic() + 60
        while len(found := me.children()) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(found) == 2
        command.send_signal(how)
        words = command.communicate(timeout=60)[1]
    finally:
        command.kill()
        command.wait()
    assert b"Traceback" not in words
    _, alive = psutil.wait_procs(found, timeout=30)
    assert alive == []
    assert spool_of(large).stat().st_size == size


@pytest.mark.parametrize("behind", [0, 1, 17])
def test_a_capture_that_still_grows_becomes_the_same_tables(
    whole: Path, tmp_path: Path, behind: int
) -> None:
    """Files grow by any number of bytes, names ahead of frames or after them."""
    convert(whole, tmp_path / "expected")
    spool, names = spool_of(whole).read_bytes(), names_of(whole).read_bytes()
    trace = tmp_path / "growing"
    shutil.copytree(whole, trace)
    at = {"spool": 0, "names": 0}
    chance = random.Random(behind)

    def grow() -> bool:
        for name, data in (("spool", spool), ("names", names)):
            at[name] += chance.randrange(1, 1 + len(data) // 5)
            (trace / "capture" / name).write_bytes(data[: at[name]])
        return at["spool"] < len(spool) + behind or at["names"] < len(names)

    grow()
    convert(trace, more=grow)
    assert _files(trace) == _files(tmp_path / "expected")


@pytest.mark.parametrize("columns", [40, 120])
def test_on_a_terminal_it_shows_progress(large: Path, tmp_path: Path, columns: int) -> None:
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    words = [*QJOULE, "convert", "-o", str(tmp_path / "tables"), str(large)]
    shown = b""
    with subprocess.Popen(words, stderr=terminal, env={**os.environ, "TERM": "xterm"}) as command:
        os.close(terminal)
        with suppress(OSError):  # EIO: nobody has the terminal any more
            while data := os.read(ours, 4096):
                shown += data
    os.close(ours)
    assert command.returncode == 1, "it has no end"
    lines = [
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", one) for one in re.split("[\r\n]", shown.decode())
    ]
    bars = [line for line in lines if line.startswith("converting")]
    assert all(len(line) <= columns for line in bars), bars
    assert any(re.search(r"[1-9]\d?%", line) for line in bars), bars


def test_where_there_is_no_terminal_it_shows_no_bar(large: Path, tmp_path: Path) -> None:
    words = [*QJOULE, "convert", "-o", str(tmp_path / "tables"), str(large)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "converting" not in done.stdout + done.stderr
    assert done.stderr.count("\n") == 2, "what was written, and that it was cut off"
