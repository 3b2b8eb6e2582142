# SPDX-License-Identifier: Apache-2.0
"""Decides whose process the reattach helper examines next; runs in it.

The root part limits the rate of examinations (tracer/root/bind.c, may_bind()). Because any user can
start programs that look like servers, each owner has a share of that rate, and all untrusted owners
together leave enough for the host's own services. A request beyond its share is refused, so nobody
has to wait for other users' processes to become ready.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from qjoule.errors import QjouleError
from qjoule.servers.processes import Owner, Trust
from qjoule.stream.context import Followed

#: A new server does not listen yet. The root part allows one examination per second.
TRIES, PAUSE_S = 8, 1.1
#: (most at once, seconds until the next), a little below the root part's limit: for all
#: together, for one owner, and for all untrusted owners.
OF_ALL, OF_ONE, OF_STRANGERS = (60, 10.0), (16, 40.0), (32, 20.0)
MAX_WAITING, MAX_WAITING_OF_ONE = 1024, 32


class NotReadyError(QjouleError):
    """The process may be a server that is still starting."""


#: Examines a process (pid); true for the last attempt. Raises `NotReadyError` before that.
Examine = Callable[[int, bool], Iterable[Followed]]


@dataclass
class _TokenBucket:
    """A token bucket: at most `most` tokens, and a new one every `every_s`."""

    most: int
    every_s: float
    full_s: float = 0.0  #: when the bucket is full again

    def used_s(self, now_s: float) -> float:
        return max(0.0, self.full_s - now_s)

    def wait_s(self, now_s: float) -> float:
        return max(0.0, self.used_s(now_s) - (self.most - 1) * self.every_s)

    def take(self, now_s: float) -> None:
        self.full_s = max(self.full_s, now_s) + self.every_s


@dataclass
class _Turn:
    pid: int
    owner: Owner
    due_s: float
    tries: int = 0


class Turns:
    """A queue of processes to examine. Times are of one monotonic clock, in seconds."""

    def __init__(self, examine: Examine) -> None:
        self._examine = examine
        self._waiting: list[_Turn] = []
        self._buckets: dict[Owner, _TokenBucket] = {}
        self._all, self._strangers = _TokenBucket(*OF_ALL), _TokenBucket(*OF_STRANGERS)
        self._next_s = 0.0  #: earliest time of the next examination

    def add(self, pid: int, owner: Owner, now_s: float) -> None:
        """Queues a process; ignores it if too many wait."""
        of = Counter(turn.owner for turn in self._waiting)
        if len(self._waiting) < MAX_WAITING and of[owner] < MAX_WAITING_OF_ONE:
            self._waiting.append(_Turn(pid, owner, now_s))

    def wait_s(self, now_s: float) -> float | None:
        """Returns the time until the next turn is due; None: nobody waits."""
        if not self._waiting:
            return None
        due_s = min(turn.due_s for turn in self._waiting)
        return max(due_s - now_s, self._next_s - now_s, self._all.wait_s(now_s), 0.0)

    def take(self, now_s: float) -> Iterable[Followed]:
        """Examines the next process that is due: of the most trusted owners, that of the one with
        the fewest recent examinations. Yields answers."""
        if self.wait_s(now_s) != 0.0:
            return
        due = [turn for turn in self._waiting if turn.due_s <= now_s]
        turn = min(due, key=lambda turn: (turn.owner.trust, self._bucket(turn.owner).used_s(now_s)))
        self._waiting.remove(turn)
        if not self._take_tokens(turn.owner, now_s):
            why = f"too many programs of {turn.owner} that may be servers have started lately"
            yield Followed(turn.pid, why=why)
            return
        turn.tries += 1
        self._next_s = now_s + PAUSE_S
        try:
            yield from self._examine(turn.pid, turn.tries == TRIES)
        except NotReadyError:
            turn.due_s = self._next_s
            self._waiting.append(turn)

    def _take_tokens(self, owner: Owner, now_s: float) -> bool:
        """Takes a token from each bucket that the owner counts for; false if one is empty."""
        buckets = [self._all]
        buckets += [] if owner.trust is Trust.ROOT else [self._bucket(owner)]
        buckets += [] if owner.trusted else [self._strangers]
        if any(bucket.wait_s(now_s) for bucket in buckets):
            return False
        for bucket in buckets:
            bucket.take(now_s)
        self._buckets = {of: bucket for of, bucket in self._buckets.items() if bucket.used_s(now_s)}
        return True

    def _bucket(self, owner: Owner) -> _TokenBucket:
        return self._buckets.setdefault(owner, _TokenBucket(*OF_ONE))


def serve(
    asking: socket.socket,
    first: int,
    receive: Callable[[], int | None],
    examine: Examine,
    owner_of: Callable[[int], Owner | None],
) -> None:
    """Answers requests on `asking` until it ends. `receive` reads the next; `first` was read
    already."""
    turns = Turns(examine)
    pid: int | None = first
    while pid is not None:
        owner = owner_of(pid)
        if owner is None:
            _send(asking, Followed(pid, why="it has ended"))
        else:
            turns.add(pid, owner, time.monotonic())
        # Reads all requests before it examines, to know every owner that waits.
        while not select.select([asking], [], [], turns.wait_s(time.monotonic()))[0]:
            for answer in turns.take(time.monotonic()):
                _send(asking, answer)
        pid = receive()


def _send(asking: socket.socket, answer: Followed) -> None:
    asking.send(json.dumps(asdict(answer)).encode())
