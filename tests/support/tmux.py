# SPDX-License-Identifier: Apache-2.0
"""A real terminal: tmux types keys and reads the screen."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PROMPT = "prompt> "


class Terminal:
    """A tmux session on a separate tmux server, 80 by 24, with a plain shell."""

    def __init__(self, directory: Path) -> None:
        self._tmux = ["tmux", "-S", str(directory / "tmux"), "-f", "/dev/null"]
        shell = f"env PS1='{PROMPT}' LANG=C.UTF-8 sh"
        self._run("-u", "new-session", "-d", "-x", "80", "-y", "24", "-c", str(directory), shell)

    def _run(self, *arguments: str) -> str:
        command = [*self._tmux, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout

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
