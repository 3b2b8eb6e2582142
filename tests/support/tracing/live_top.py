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
        with self._more:
            wanted = len(self.snapshots) + further
            assert self._more.wait_for(
                lambda: len(self.snapshots) >= wanted or self.process.poll() is not None, 60
            )
        assert self.process.poll() is None, self.words()

    def finish(self, last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """All snapshots up to one with a row of what ran last: the view may lag behind."""
        with self._more:
            assert self._more.wait_for(
                lambda: self._has(last) or self.process.poll() is not None, 60
            )
        assert self.process.poll() is None, self.words()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.words()
        self._reader.join(60)
        return self.snapshots

    def _has(self, last: Callable[[dict[str, Any]], bool]) -> bool:
        return any(last(row) for one in self.snapshots for row in one["interval"]["rows"])

    def words(self) -> str:
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
