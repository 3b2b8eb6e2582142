# SPDX-License-Identifier: Apache-2.0
"""`qjoule top --replay` in a real terminal: tmux types the keys and reads the screen."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fake_tracer
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import record
from qjoule.trace.meta import Meta
from qjoule.trace.writer import TraceWriter

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
PROMPT = "prompt> "


class Terminal:
    """A tmux session on a separate tmux server, 80 by 24, with a plain shell."""

    def __init__(self, directory: Path) -> None:
        self._tmux = ["tmux", "-S", str(directory / "tmux"), "-f", "/dev/null"]
        shell = f"env PS1='{PROMPT}' LANG=C.UTF-8 sh"
        self._run("-u", "new-session", "-d", "-x", "80", "-y", "24", "-c", str(directory), shell)

    def _run(self, *arguments: str) -> str:
        words = [*self._tmux, *arguments]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout

    def type(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def alternate(self) -> bool:
        return self._run("display-message", "-p", "#{alternate_on}").strip() == "1"

    def until(self, condition: Callable[[str], bool]) -> str:
        """Waits for the screen; the limit is pytest's own timeout."""
        while not condition(screen := self._run("capture-pane", "-p")):
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


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
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_signal_restores_the_terminal(terminal: Terminal, how: str) -> None:
    if how == "Ctrl-C":
        terminal.type("C-c")
    else:
        pane = terminal._run("list-panes", "-F", "#{pane_pid}").strip()
        children = Path(f"/proc/{pane}/task/{pane}/children").read_text().split()
        subprocess.run(["kill", "-TERM", children[0]], check=True)
    terminal.until(lambda screen: "code=0" in screen)
    assert not terminal.alternate()
