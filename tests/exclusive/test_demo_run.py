# SPDX-License-Identifier: Apache-2.0
"""The whole demo: what it prints, and that it leaves nothing behind however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from waiting import until

DEMO = Path(__file__).parents[2] / "examples" / "demo" / "demo.py"
WAIT_S = 60.0
Victim = Callable[[psutil.Process], psutil.Process | None]

pytestmark = [pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """Output, messages and kept trace of a small demo that ran to the end."""
    keep = tmp_path_factory.mktemp("demo") / "kept trace"
    options = ["--size", "4000", "--seconds", "2", "--keep", str(keep)]
    done = subprocess.run(
        [sys.executable, str(DEMO), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160"},
        timeout=3 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, keep


def test_the_printed_energies_add_up_and_their_sources_are_named(
    finished: tuple[str, str, Path],
) -> None:
    output, messages, kept = finished
    table = output.partition("\nflags")[0].partition("\nattach_mode")[0]
    title = re.search(r"^query .*energy m?J", table, re.MULTILINE)
    assert title
    lines = (line[: len(title[0])] for line in table[title.end() :].splitlines())
    found = (re.search(r" (\d+)\.(\d{3})$", line) for line in lines)
    *parts, total = (int(energy[1] + energy[2]) for energy in found if energy)
    assert len(parts) > 15
    assert sum(parts) == total > 0
    for name in ("energy", "idle", "attach_mode", "coverage", "loss", "complete", "model"):
        assert re.search(rf"^{name} +\S", output, re.MULTILINE), name
    assert "4,000 tweets" in messages
    assert (kept / "meta.json").exists()


def test_every_pair_has_its_line(finished: tuple[str, str, Path]) -> None:
    pairs = finished[0].partition("better form over the worse")[2]
    titles = ("count by location", "delete by location", "most tweeting user", "columns of a join")
    for title in (*titles, "users of popular tweets"):
        figures = re.search(rf"^{title}((?: +[\d.]+){{3}})  ", pairs, re.MULTILINE)
        assert figures, title
        speedup, powerup, greenup = map(float, figures[1].split())
        assert speedup / greenup == pytest.approx(powerup, rel=0.02)


def server_of(demo: psutil.Process) -> psutil.Process | None:
    return _child(demo, "mariadbd")


def recording_of(demo: psutil.Process) -> psutil.Process | None:
    return _child(demo, "record")


def workload_of(demo: psutil.Process) -> psutil.Process | None:
    recording = recording_of(demo)
    return recording and _child(recording, "workload.py")


def itself(demo: psutil.Process) -> psutil.Process:
    return demo


@pytest.mark.parametrize(
    ("victim", "number", "code"),
    [
        (itself, signal.SIGINT, 130),
        (server_of, signal.SIGKILL, 1),
        (recording_of, signal.SIGKILL, 1),
        (workload_of, signal.SIGKILL, 1),
    ],
    ids=["interrupted", "server killed", "recording killed", "workload killed"],
)
def test_nothing_is_left_behind(victim: Victim, number: int, code: int) -> None:
    with _running_demo() as demo:
        directory, family = _recording(demo)
        chosen = victim(psutil.Process(demo.pid))
        assert chosen is not None
        chosen.send_signal(number)
        messages = demo.communicate(timeout=WAIT_S)[1]
    assert demo.returncode == code, messages
    assert "Traceback" not in messages
    assert not directory.exists()
    _, alive = psutil.wait_procs(family, timeout=WAIT_S)
    assert not alive


@contextmanager
def _running_demo() -> Iterator[subprocess.Popen[str]]:
    demo = subprocess.Popen(
        [sys.executable, str(DEMO), "--size", "1000", "--seconds", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield demo
    finally:
        demo.terminate()
        with suppress(subprocess.TimeoutExpired):
            demo.wait(WAIT_S)
        demo.kill()
        demo.communicate()


def _recording(demo: subprocess.Popen[str]) -> tuple[Path, list[psutil.Process]]:
    """Waits until the workload runs; returns the demo's directory and all its processes."""
    process = psutil.Process(demo.pid)
    until(lambda: workload_of(process) or demo.poll() is not None)
    assert demo.poll() is None, demo.communicate()[1]
    server = server_of(process)
    assert server is not None
    return Path(server.cwd()).parent, process.children(recursive=True)


def _child(parent: psutil.Process, word: str) -> psutil.Process | None:
    """The child whose command line has this word, or a path that ends in it."""
    for child in parent.children():
        with suppress(psutil.Error):
            if any(Path(argument).name == word for argument in child.cmdline()):
                return child
    return None
