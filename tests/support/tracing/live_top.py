# SPDX-License-Identifier: Apache-2.0
"""`qjoule top` beside a test's load, and its snapshots."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
QJOULE = str(Path(sys.executable).parent / "qjoule")


class Top:
    """A running `qjoule top -b --json`; its snapshots are collected by a thread."""

    def __init__(self, *options: str) -> None:
        command = [QJOULE, "top", "-b", "--json", "-d", "0.5", *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.snapshots: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.snapshots.append(json.loads(line))
                self._more.notify_all()
        with self._more:
            self._more.notify_all()

    def wait_for(self, further: int) -> None:
        """Waits for this many snapshots more than there are now."""
        count = len(self.snapshots) + further
        self.until(lambda snapshots: len(snapshots) >= count)

    def until(self, true: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Waits until the snapshots are as they should be."""
        with self._more:
            assert self._more.wait_for(
                lambda: true(self.snapshots) or self.process.poll() is not None, PATIENCE_S
            ), "the snapshots never were as they should be"
        assert self.process.poll() is None, self.messages()

    def finish(self, last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """All snapshots up to one with a row of what ran last: the view may lag behind."""
        self.until(
            lambda snapshots: any(
                last(row) for snapshot in snapshots for row in snapshot["interval"]["rows"]
            )
        )
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE_S) == 0, self.messages()
        self._reader.join(PATIENCE_S)
        return self.snapshots

    def messages(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def live_top(*options: str) -> Iterator[Top]:
    """Yields once attached: the first snapshot has come."""
    top = Top(*options)
    try:
        top.wait_for(1)
        yield top
    finally:
        top.close()
