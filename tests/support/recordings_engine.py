# SPDX-License-Identifier: Apache-2.0
"""The engine's side of recordings, with a root part of a test that writes no real trace."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.agent.recordings import Limits, Order, Recording, Recordings
from qjoule.commands.agent_listeners import Listeners
from qjoule.commands.say import say
from qjoule.errors import QjouleError

#: Larger than a socket's buffers and than a piece of a file.
SEGMENTS = bytes(range(256)) * 4096
META = json.dumps({"complete": True}).encode()


@dataclass
class FakeRootPart:
    """Records nothing, until it is stopped or `seconds` have passed. `orders`: what was asked."""

    directory: Path
    orders: list[tuple[Recording, Order, int, int]] = field(default_factory=list)
    ends_s: dict[Recording, float] = field(default_factory=dict)
    numbers: dict[Recording, int] = field(default_factory=dict)
    refuses: bool = False

    def __call__(
        self, which: Recording, order: Order, number: int = 0, seconds: int = 0
    ) -> tuple[bool, int]:
        if order is not Order.STATE:
            self.orders.append((which, order, number, seconds))
        if self.refuses:
            raise QjouleError("not permitted")
        if order is Order.START:
            self.ends_s[which] = time.monotonic() + seconds
            self.numbers[which] = number
            (self.directory / str(number)).mkdir()
        if order is Order.STOP:
            self.ends_s[which] = 0.0
        runs = self.ends_s.get(which, 0.0) > time.monotonic()
        if not runs and which in self.numbers:
            written(self.directory / str(self.numbers[which]))
        return runs, 0


def written(path: Path) -> None:
    """A recording that has ended."""
    (path / "segments").mkdir(parents=True, exist_ok=True)
    (path / "segments" / "part-000000.parquet").write_bytes(SEGMENTS)
    (path / "meta.json").write_bytes(META)


def run_beside(directory: Path, listeners: Listeners) -> None:
    """Runs the engine's side on a thread."""
    assert listeners.control is not None
    found = Recordings(directory, FakeRootPart(directory), Limits(seconds=60, kept=3), say)
    found.end, found.board = listeners.control.engine, listeners.control.board

    def go_on() -> None:
        while True:
            found.tick(time.monotonic())
            time.sleep(0.05)

    threading.Thread(target=go_on, daemon=True).start()
