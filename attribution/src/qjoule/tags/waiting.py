# SPDX-License-Identifier: Apache-2.0
"""What applications said, on its way from the thread that reads it to the one that joins it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Protocol

from qjoule.tags.application import Application
from qjoule.tags.ring import SLOT_BYTES, Slots

#: Records that may wait, of all applications: 16 MiB. More stay where they are, in their rings,
#: which fill; then the applications count what is lost.
MAX_RECORDS = 1 << 18
#: Of these, of one user's applications.
MAX_OF_USER = MAX_RECORDS // 2
#: Records a thing weighs that is none.
_LEAST = 64


class Joiner(Protocol):
    """Where it goes: see :class:`qjoule.tags.listener.Taker`."""

    def take(self, application: Application, records: Slots, now_ns: int) -> None: ...
    def part(self, application: Application, now_ns: int) -> None: ...


class Waiting:
    """Keeps what it is handed, in order, until it is asked to hand it on.

    The thread that reads the rings never waits for one that joins, however long that is without a
    processor: a busy process fills its ring in about a second.
    """

    def __init__(self, *joiners: Joiner) -> None:
        self._joiners = joiners
        self._waiting: deque[tuple[Application, Slots | None, int, int]] = deque()
        self._records = 0
        self._of_user: Counter[int] = Counter()
        self._counting = threading.Lock()
        self._handing_on = threading.Lock()

    def has_room(self, application: Application) -> bool:
        """Whether more of this application should be taken."""
        return self._records < MAX_RECORDS and self._of_user[application.uid] < MAX_OF_USER

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """A batch of records, whose definitions have been read."""
        self._add(application, records, now_ns, records.size)

    def part(self, application: Application, now_ns: int) -> None:
        """An application has gone. Its ring still says what is known of its calls' ends, at 16
        bytes each, and what it defined is asked for.
        """
        known = 0 if application.ring is None else application.ring.remembers
        weight = (16 * known + application.definitions.bytes) // SLOT_BYTES
        self._add(application, None, now_ns, weight)

    def hand_on(self) -> None:
        """Hands on what is there now."""
        with self._handing_on:
            for _ in range(len(self._waiting)):
                application, records, now_ns, weight = self._waiting.popleft()
                with self._counting:
                    self._records -= weight
                    self._of_user[application.uid] -= weight
                    if not self._of_user[application.uid]:
                        del self._of_user[application.uid]
                for joiner in self._joiners:
                    if records is None:
                        joiner.part(application, now_ns)
                    else:
                        joiner.take(application, records, now_ns)

    def _add(
        self, application: Application, records: Slots | None, now_ns: int, weight: int
    ) -> None:
        weight = max(weight, _LEAST)
        with self._counting:
            self._records += weight
            self._of_user[application.uid] += weight
        self._waiting.append((application, records, now_ns, weight))
