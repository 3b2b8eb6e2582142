# SPDX-License-Identifier: Apache-2.0
"""A queue of application records, from the thread that reads them to the thread that joins them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Protocol

from qjoule.tags.application import Application
from qjoule.tags.ring import SLOT_BYTES, Slots

#: Records that may wait, of all applications: 16 MiB. Beyond this they stay in their rings. When a
#: ring is full, its application counts the lost records.
MAX_RECORDS = 1 << 18
#: The part of these that one user's applications may use.
MAX_OF_USER = MAX_RECORDS // 2
#: An entry that is not a batch of records counts as this many records.
_LEAST = 64


class Joiner(Protocol):
    """The receiver: see :class:`qjoule.tags.listener.Taker`."""

    def take(self, application: Application, records: Slots, now_ns: int) -> None: ...
    def part(self, application: Application, now_ns: int) -> None: ...


class Waiting:
    """Keeps entries in order until they are asked for.

    The thread that reads the rings must never wait for the one that joins, even if that gets no CPU
    for long: a busy process fills its ring in about a second.
    """

    def __init__(self, *joiners: Joiner) -> None:
        self._joiners = joiners
        self._waiting: deque[tuple[Application, Slots | None, int, int]] = deque()
        self._records = 0
        self._of_user: Counter[int] = Counter()
        self._counting = threading.Lock()
        self._handing_on = threading.Lock()

    def has_room(self, application: Application) -> bool:
        """Whether more of this application's records should be taken."""
        return self._records < MAX_RECORDS and self._of_user[application.uid] < MAX_OF_USER

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """A batch of records, whose definitions have been read."""
        self._add(application, records, now_ns, records.size)

    def part(self, application: Application, now_ns: int) -> None:
        """An application has gone. Its definitions are still needed, and so is its ring, which
        knows the ends of its calls at 16 bytes each.
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
