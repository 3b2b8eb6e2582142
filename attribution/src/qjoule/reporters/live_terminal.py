# SPDX-License-Identifier: Apache-2.0
"""The terminal of the live view, which may vanish (a closed window, a lost ssh) or stop accepting
output. textual alone would wait for such a terminal, or read its end of input in a busy loop.
"""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

_TICK_S = 0.05


class Screen:
    """The file that textual writes to. A write waits for the previous one, unless `give_up` was
    called."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._texts: queue.Queue[str] = queue.Queue(1)
        self._given_up = threading.Event()
        threading.Thread(target=self._run, name="qjoule-screen", daemon=True).start()

    def write(self, text: str) -> None:
        while not self._given_up.is_set():
            with suppress(queue.Full):
                self._texts.put(text, timeout=_TICK_S)
                return

    def flush(self) -> None:
        while self._texts.unfinished_tasks and not self._given_up.wait(_TICK_S / 10):
            pass

    def fileno(self) -> int:
        return self._descriptor

    def give_up(self) -> None:
        """Drops unwritten text, and all later text."""
        self._given_up.set()

    def _run(self) -> None:
        while True:
            unwritten = self._texts.get().encode(errors="replace")
            try:
                while unwritten:
                    unwritten = unwritten[os.write(self._descriptor, unwritten) :]
            except OSError:
                self.give_up()
            self._texts.task_done()


class Terminal(LinuxDriver):
    """textual's driver, on standard output."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert sys.__stdout__ is not None
        self.screen = Screen(sys.__stdout__.fileno())
        self._file: Any = self.screen

    def run_input_thread(self) -> None:
        with suppress(OSError):  # the terminal has gone
            super().run_input_thread()

    def on_hangup(self, call: Callable[[], object]) -> None:
        """Calls `call`, on another thread, once the terminal has gone."""

        def wait() -> None:
            hangup = select.poll()
            hangup.register(self.fileno, 0)
            hangup.poll()
            self.screen.give_up()
            call()

        threading.Thread(target=wait, name="qjoule-terminal", daemon=True).start()
