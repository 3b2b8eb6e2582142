# SPDX-License-Identifier: Apache-2.0
"""Whose process the reattach helper looks at next; runs in it.

The root part grants looks at a limited rate (tracer/root/look.c, may_bind()). Anybody can run
programs that look like servers, so each owner has a share of that, and all strangers together leave
enough for the host's own services. Whoever has used up a share is refused; nobody has to wait for
the processes of others to become ready.
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

#: A server that has just started listens on nothing yet. The root part allows a look per second.
TRIES, PAUSE_S = 8, 1.1
#: (looks at once, seconds until there is another): a little less than the root part grants,
#: of these what one owner may have, and what all strangers together may.
OF_ALL, OF_ONE, OF_STRANGERS = (60, 10.0), (16, 40.0), (32, 20.0)
MAX_WAITING, MAX_WAITING_OF_ONE = 1024, 32


class NotReadyError(QjouleError):
    """It may be a server that is still starting."""


#: Looks at a process (pid), for the last time or not. Raises `NotReadyError` if not.
Look = Callable[[int, bool], Iterable[Followed]]


@dataclass
class _Share:
    """Looks that come back as time goes on."""

    most: int
    every_s: float
    full_s: float = 0.0  #: when all are there again

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
    """The processes that wait for a look. Times are of one monotonic clock, in seconds."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._waiting: list[_Turn] = []
        self._shares: dict[Owner, _Share] = {}
        self._all, self._strangers = _Share(*OF_ALL), _Share(*OF_STRANGERS)
        self._next_s = 0.0  #: when there may be another look

    def add(self, pid: int, owner: Owner, now_s: float) -> None:
        """Queues a process; ignores it if too many wait."""
        of = Counter(turn.owner for turn in self._waiting)
        if len(self._waiting) < MAX_WAITING and of[owner] < MAX_WAITING_OF_ONE:
            self._waiting.append(_Turn(pid, owner, now_s))

    def wait_s(self, now_s: float) -> float | None:
        """Until the next turn is due; None: nobody waits."""
        if not self._waiting:
            return None
        due_s = min(turn.due_s for turn in self._waiting)
        return max(due_s - now_s, self._next_s - now_s, self._all.wait_s(now_s), 0.0)

    def take(self, now_s: float) -> Iterable[Followed]:
        """Looks at the next one that is due: of the most trusted, the owner with the fewest looks
        lately. Yields answers.
        """
        if self.wait_s(now_s) != 0.0:
            return
        due = [turn for turn in self._waiting if turn.due_s <= now_s]
        turn = min(due, key=lambda turn: (turn.owner.trust, self._share(turn.owner).used_s(now_s)))
        self._waiting.remove(turn)
        if not self._granted(turn.owner, now_s):
            why = f"too many programs of {turn.owner} that may be servers have started lately"
            yield Followed(turn.pid, why=why)
            return
        turn.tries += 1
        self._next_s = now_s + PAUSE_S
        try:
            yield from self._look(turn.pid, turn.tries == TRIES)
        except NotReadyError:
            turn.due_s = self._next_s
            self._waiting.append(turn)

    def _granted(self, owner: Owner, now_s: float) -> bool:
        """Takes a look from each share that it counts for."""
        shares = [self._all]
        shares += [] if owner.trust is Trust.ROOT else [self._share(owner)]
        shares += [] if owner.trusted else [self._strangers]
        if any(share.wait_s(now_s) for share in shares):
            return False
        for share in shares:
            share.take(now_s)
        self._shares = {of: share for of, share in self._shares.items() if share.used_s(now_s)}
        return True

    def _share(self, owner: Owner) -> _Share:
        return self._shares.setdefault(owner, _Share(*OF_ONE))


def serve(
    asking: socket.socket,
    first: int,
    receive: Callable[[], int | None],
    look: Look,
    owner_of: Callable[[int], Owner | None],
) -> None:
    """Answers requests until there are no more: those on `asking`, which `receive` reads. `first`:
    one that has come.
    """
    turns = Turns(look)
    pid: int | None = first
    while pid is not None:
        owner = owner_of(pid)
        if owner is None:
            _send(asking, Followed(pid, why="it has ended"))
        else:
            turns.add(pid, owner, time.monotonic())
        # All requests first, so that it is known who waits.
        while not select.select([asking], [], [], turns.wait_s(time.monotonic()))[0]:
            for answer in turns.take(time.monotonic()):
                _send(asking, answer)
        pid = receive()


def _send(asking: socket.socket, answer: Followed) -> None:
    asking.send(json.dumps(asdict(answer)).encode())
