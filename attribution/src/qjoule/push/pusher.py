# SPDX-License-Identifier: Apache-2.0
"""Sends what a board shows, again and again, in a process that nobody waits for.

All counters are cumulative, so only the newest page has to arrive: a page that could not be sent
is replaced by the next one, and costs resolution, not joules. Nothing else waits.
"""

from __future__ import annotations

import mmap
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence

from qjoule.metrics.board import Board
from qjoule.metrics.families import Family, Sample, seconds

#: Pauses after failures, doubled each time between these.
RETRY_S, MOST_RETRY_S = 1.0, 60.0
_LOOK_S = 0.2


#: Sends families as they were at a Unix time; whether they were taken.
Send = Callable[[Sequence[Family], float], bool]


class Tally:
    """How many pages had which outcome, in memory that the pusher writes and the engine reads."""

    _NUMBERS = struct.Struct("=3Qd")
    _RESULTS = ("sent", "failed", "replaced")

    def __init__(self, to: str, began_s: float) -> None:
        self.to, self._began_s = to, began_s
        self._memory = mmap.mmap(-1, self._NUMBERS.size)

    def add(self, result: str, now_s: float) -> None:
        *counts, last_s = self._NUMBERS.unpack_from(self._memory)
        counts[self._RESULTS.index(result)] += 1
        self._NUMBERS.pack_into(self._memory, 0, *counts, now_s if result == "sent" else last_s)

    def counts(self) -> dict[str, int]:
        *counts, _ = self._NUMBERS.unpack_from(self._memory)
        return dict(zip(self._RESULTS, counts, strict=True))

    def samples(self) -> Iterator[Sample]:
        """Of `qjoule_push_pages_total`."""
        for result, count in self.counts().items():
            labels = (("to", self.to), ("result", result))
            yield Sample(labels, str(count), seconds(self._began_s))

    @property
    def last_s(self) -> float:
        """Unix time of the last page that was sent; 0: none yet."""
        found: float = self._NUMBERS.unpack_from(self._memory)[-1]
        return found


def families(tallies: Sequence[Tally]) -> Iterator[Family]:
    """What the pushers did, for the agent's own page."""
    if tallies:
        about = "Pages for each receiver; replaced: a newer one came before it could be sent."
        samples = [sample for one in tallies for sample in one.samples()]
        yield Family("qjoule_push_pages", "counter", about, samples=samples)
        about = "Unix time at which the last page was sent; 0: none yet."
        last = [Sample((("to", one.to),), seconds(one.last_s)) for one in tallies]
        name = "qjoule_push_last_success_timestamp_seconds"
        yield Family(name, "gauge", about, "seconds", last)


class Pusher:
    """Call `step` often; `every_s`: between two pages that are sent."""

    def __init__(
        self,
        board: Board,
        send: Send,
        every_s: float,
        tally: Tally,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._board, self._send, self._every_s, self._tally = board, send, every_s, tally
        self._monotonic, self._wall = monotonic, wall
        self._next_s = monotonic()
        self._done = 0  #: the version of the last page that needs nothing more
        self._failed = 0  #: the version of a page that could not be sent
        self._pause_s = RETRY_S

    def step(self) -> None:
        now_s = self._monotonic()
        version = self._board.version
        if now_s < self._next_s or version in (0, self._done) or version % 2:
            return
        found = self._board.read()
        if found is None:
            return
        if self._failed not in (0, version):
            self._tally.add("replaced", self._wall())
        shown_s, _, listed = found
        try:
            sent = self._send(listed, self._wall() - (now_s - shown_s))
        except Exception:  # whatever it is: the tally says that pages fail, and the next may not
            sent = False
        self._tally.add("sent" if sent else "failed", self._wall())
        self._failed = 0 if sent else version
        if self._failed:
            self._next_s = self._monotonic() + self._pause_s * random.uniform(0.5, 1.0)
            self._pause_s = min(2 * self._pause_s, MOST_RETRY_S)
            return
        self._done = version
        self._pause_s = RETRY_S
        self._next_s = now_s + self._every_s

    def run(self) -> None:
        """The whole life of the process."""
        while True:
            self.step()
            time.sleep(_LOOK_S)
