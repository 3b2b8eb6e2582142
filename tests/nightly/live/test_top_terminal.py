# SPDX-License-Identifier: Apache-2.0
"""`qjoule top --replay` in a real terminal: tmux types the keys and reads the screen."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fake_tracer
from qjoule.stream.blocks import Stream
from qjoule.stream.record import record
from qjoule.trace.meta import Meta
from qjoule.trace.writer import TraceWriter
from tmux import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    stream = Stream(io.BytesIO(b"".join(fake_tracer.traffic(2.0, per_second=500))))
    record(stream, TraceWriter(tmp_path / "t.qjoule"), fake_tracer.context(Meta(host="db1")))
    terminal = Terminal(tmp_path)
    try:
        terminal.type(
            f"{shlex.quote(sys.executable)} -m qjoule top --replay t.qjoule -d 0.5; echo code=$?",
            "Enter",
        )
        terminal.until(lambda screen: "END OF TRACE" in screen)
        yield terminal
    finally:
        terminal.close()


@pytest.mark.timeout(120)
def test_keys_resize_and_a_restored_terminal(terminal: Terminal) -> None:
    terminal.until(lambda screen: "TOTAL simulated" in screen and "h help  q quit" in screen)
    assert terminal.alternate()
    terminal.type("n")
    terminal.until(lambda screen: "calls ▼" in screen)
    terminal.type("/", "select", "Enter")
    terminal.until(lambda screen: "filter 'select'" in screen)
    terminal.type("Enter")
    terminal.until(lambda screen: "since reset" in screen and "share of owners' J" in screen)
    terminal.type("Escape")
    terminal.until(lambda screen: "TOTAL simulated" in screen)
    terminal.resize(200, 50)
    terminal.until(lambda screen: "W TREND" in screen and len(screen.splitlines()) == 50)
    terminal.resize(80, 24)
    terminal.until(lambda screen: "W TREND" not in screen and "TOTAL simulated" in screen)
    terminal.type("E")
    terminal.until(lambda screen: "written: qjoule-top-" in screen)
    terminal.type("q")
    terminal.until(lambda screen: "code=0" in screen)
    assert not terminal.alternate()
    terminal.type("stty -a", "Enter")
    settings = terminal.until(lambda screen: "icanon" in screen)
    assert " icanon" in settings and " echo " in settings, "lines are read as before"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("ending", ["Ctrl-C", "SIGTERM"])
def test_a_signal_restores_the_terminal(terminal: Terminal, ending: str) -> None:
    if ending == "Ctrl-C":
        terminal.type("C-c")
    else:
        pane = terminal._run("list-panes", "-F", "#{pane_pid}").strip()
        children = Path(f"/proc/{pane}/task/{pane}/children").read_text().split()
        subprocess.run(["kill", "-TERM", children[0]], check=True)
    terminal.until(lambda screen: "code=0" in screen)
    assert not terminal.alternate()
