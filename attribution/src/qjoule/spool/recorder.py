# SPDX-License-Identifier: Apache-2.0
"""Saves what a flight recorder holds, on request and by triggers, within bounds.

Requests come from any thread. A separate thread copies, so that recording goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.spool.names import Counted
from qjoule.spool.ring_names import Moment
from qjoule.spool.save import Saved, save
from qjoule.trace.meta import Meta, Part

#: Requests that wait for a save that runs.
MAX_WAITING = 8
#: How long a save that runs may take after the recording has ended.
LAST_SAVE_S = 120.0


@dataclass(frozen=True)
class Bounds:
    """How often a recorder saves.

    Attributes:
        saves: at most so many in all.
        pause_s: between a save and the next one that a trigger asks for.
    """

    saves: int = 20
    pause_s: float = 300.0


@dataclass(frozen=True)
class SaveRequest:
    """A request. `what`: the reason in words. `answer` is called once, from any thread."""

    why: str
    what: str
    triggered: bool = False
    answer: Callable[[Saved | str], object] = lambda _result: None


@dataclass(frozen=True)
class Now:
    """The state of the recording that a save needs."""

    moment: Moment
    meta: Meta
    counted: Counted


@dataclass
class _SaveStats:
    """Counts of saves and of refusals."""

    saved: int = 0
    last_s: float | None = None
    refused: dict[str, int] = field(default_factory=dict)


class Recorder:
    """Saves parts of one recording.

    Args:
        say: tells the user.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        trace: Path,
        keep_s: float,
        bounds: Bounds,
        say: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trace, self._keep_s = trace, keep_s
        self._bounds, self._say, self._clock = bounds, say, clock
        self._requests: queue.SimpleQueue[SaveRequest] = queue.SimpleQueue()
        self._jobs: queue.Queue[tuple[SaveRequest, Now] | None] = queue.Queue(MAX_WAITING)
        self._stats = _SaveStats()
        self._pending = 0  #: saves that are due or run
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="save", daemon=True)
        self._ended = False

    def start(self) -> None:
        """Begins to save. Before it, requests wait."""
        self._thread.start()

    def ask(self, request: SaveRequest) -> None:
        """Asks for a save, from any thread or a signal handler."""
        self._requests.put(request)

    def process_requests(self, now: Callable[[], Now]) -> None:
        """Queues the saves that were requested, up to now. Called by the stream's reader."""
        current: Now | None = None
        while not self._requests.empty():
            request = self._requests.get()
            if refused := self._refusal(request):
                self._refuse(request, refused)
                continue
            current = current or now()
            with self._lock:
                self._pending += 1
            try:
                self._jobs.put_nowait((request, current))
            except queue.Full:
                self._done()
                self._refuse(request, f"{MAX_WAITING} saves wait already")

    def close(self, now: Callable[[], Now]) -> None:
        """Saves what was asked for; later requests are refused."""
        self.process_requests(now)
        self._ended = True
        self._jobs.put(None)
        self._thread.join(LAST_SAVE_S)

    def summary(self) -> list[str]:
        """What was saved and what was not, in lines."""
        lines = []
        for why, times in sorted(self._stats.refused.items()):
            lines.append(f"not saved {times} time{'s' if times > 1 else ''}: {why}")
        return lines

    def _refusal(self, request: SaveRequest) -> str:
        """Returns why a request is refused, or "" if it is accepted."""
        with self._lock:
            stats, pending = self._stats, self._pending
            if self._ended:
                return "the recording has ended"
            if stats.saved + pending >= self._bounds.saves:
                return f"{self._bounds.saves} parts are saved, which is the bound (--saves)"
            if not request.triggered:
                return ""
            if pending:
                return "another save runs"
            since = None if stats.last_s is None else self._clock() - stats.last_s
            if since is not None and since < self._bounds.pause_s:
                return f"within {self._bounds.pause_s:g} s of the save before (--pause)"
        return ""

    def _refuse(self, request: SaveRequest, why: str) -> None:
        with self._lock:
            times = self._stats.refused[why] = self._stats.refused.get(why, 0) + 1
        if times == 1 or not request.triggered:
            self._say(f"not saved: {why}; {request.what}")
        request.answer(f"not saved: {why}")

    def _done(self) -> None:
        with self._lock:
            self._pending -= 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            request, now = job
            part = Part(request.why, request.what, keep_s=self._keep_s)
            try:
                saved = save(self._trace, now.moment, now.meta, part, counted=now.counted)
            except QjouleError as error:
                self._say(f"{error}; {request.what}")
                result: Saved | str = str(error)
            except Exception as error:  # the requester waits, and the next save may succeed
                result = f"not saved: {type(error).__name__}: {error}"
                self._say(f"{result}; {request.what}")
            else:
                with self._lock:
                    self._stats.saved += 1
                    self._stats.last_s = self._clock()
                result = saved
                self._say(describe_saved(saved, request.what))
            self._done()
            request.answer(result)


def describe_saved(saved: Saved, what: str) -> str:
    """What was saved, for people."""
    late = "" if not saved.late else ", its begin was written over meanwhile"
    return f"saved {saved.seconds:.1f} s to {saved.directory.name} ({what}){late}"
