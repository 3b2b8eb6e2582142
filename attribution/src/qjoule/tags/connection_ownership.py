# SPDX-License-Identifier: Apache-2.0
"""Decides which connections a process may report calls on: root on all, others on their user's own.

Root of a container is not the machine's root, and is believed on none: it has the same number, as
far as the kernel tells us.

A connection's owner is the user who made its socket. A process that connects as root, then becomes
another user and reports that connection is not believed either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from qjoule.tags.definitions import Connection
from qjoule.tags.owners import Owners

#: After this time the owner is looked up again: another connection may have the addresses by then.
CHECK_NS = 1_000_000_000
#: Connections of a process that are checked again in one turn.
MOST_CHECKED = 32
NEVER_NS = 1 << 62
NOT_BELIEVED = -1


@dataclass(slots=True)
class _Open:
    """A connection that was its reporter's own at the last check."""

    number: int
    connection: Connection
    cookie: bytes
    checked_ns: int


class ConnectionOwnership:
    """The connections that one process defined, and until when it is believed about each."""

    def __init__(self, uid: int, owners: Owners, *, is_roots: bool = False) -> None:
        """`is_roots`: the process is the machine's root's, and is believed on all."""
        self._uid = uid
        self._is_roots = is_roots
        self._owners = owners
        #: Only connections that are not believed, or no longer. Most have no entry.
        self._until: dict[int, int] = {}
        self._open: deque[_Open] = deque()  #: those checked longest ago first

    def add(self, number: int, connection: Connection, now_ns: int) -> None:
        """The process claims to have this connection."""
        if self._is_roots:
            return
        owner = self._owners.owner_of(connection) if self._uid else None
        if owner is None or owner.uid != self._uid:
            self._until[number] = NOT_BELIEVED
        else:
            self._open.append(_Open(number, connection, owner.cookie, now_ns))

    def until(self, number: int) -> int:
        """Until when, in ns, records of it are believed: `NEVER_NS` all, `NOT_BELIEVED` none.

        An undefined number returns `NEVER_NS`, since its records have no meaning anyway.
        """
        return self._until.get(number, NEVER_NS)

    def check(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """Connections closed since the last check: their number, and until when they were certainly
        this process's user's.
        """
        for _ in range(min(len(self._open), MOST_CHECKED)):
            if now_ns - self._open[0].checked_ns < CHECK_NS:
                return
            connection = self._open.popleft()
            owner = self._owners.owner_of(connection.connection)
            if owner is not None and owner.cookie == connection.cookie:
                connection.checked_ns = now_ns
                self._open.append(connection)
                continue
            # If another connection has the addresses now, it may have had them ever since the last
            # check.
            until_ns = now_ns if owner is None else connection.checked_ns
            self._until[connection.number] = until_ns
            yield connection.number, until_ns
