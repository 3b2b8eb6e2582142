# SPDX-License-Identifier: Apache-2.0
"""Of which connections a process may tell calls: root's of all, others' of their user's own.

A connection's owner is the user who made its socket. Who connects as root, becomes another user and
then tells of that connection is not believed either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from qjoule.tags.definitions import Connection
from qjoule.tags.owners import Owners

#: After this it is asked again whose a connection is: its addresses may be another's by then.
CHECK_NS = 1_000_000_000
#: Connections of a process that are looked at again in one turn.
MOST_CHECKED = 32
NEVER_NS = 1 << 62
NOT_BELIEVED = -1


@dataclass(slots=True)
class _Open:
    """A connection that was its teller's when it was looked at last."""

    number: int
    connection: Connection
    cookie: bytes
    checked_ns: int


class Claims:
    """The connections that one process defined, and until when it speaks for each."""

    def __init__(self, uid: int, owners: Owners) -> None:
        self._uid = uid
        self._owners = owners
        #: Only those that are not believed, or not any more: of most there is nothing to remember.
        self._until: dict[int, int] = {}
        self._open: deque[_Open] = deque()  #: those checked longest ago first

    def add(self, number: int, connection: Connection, now_ns: int) -> None:
        """The process says that it has this connection."""
        if self._uid == 0:
            return
        owner = self._owners.owner_of(connection)
        if owner is None or owner.uid != self._uid:
            self._until[number] = NOT_BELIEVED
        else:
            self._open.append(_Open(number, connection, owner.cookie, now_ns))

    def until(self, number: int) -> int:
        """What was told of it up to then, in ns, is believed: `NEVER_NS` all, `NOT_BELIEVED` none.

        Of a number that was not defined all is, for then it says nothing.
        """
        return self._until.get(number, NEVER_NS)

    def check(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """Connections that have been closed since they were looked at: their number, and until when
        they were surely this process's user's.
        """
        for _ in range(min(len(self._open), MOST_CHECKED)):
            if now_ns - self._open[0].checked_ns < CHECK_NS:
                return
            one = self._open.popleft()
            owner = self._owners.owner_of(one.connection)
            if owner is not None and owner.cookie == one.cookie:
                one.checked_ns = now_ns
                self._open.append(one)
                continue
            # Where another connection has the addresses now, it may have had them all the time.
            until_ns = now_ns if owner is None else one.checked_ns
            self._until[one.number] = until_ns
            yield one.number, until_ns
