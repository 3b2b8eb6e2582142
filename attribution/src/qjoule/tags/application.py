# SPDX-License-Identifier: Apache-2.0
"""The recorder's view of a process that shares a ring with it, and which connections it may report
calls on: root on all, others on their user's own.

Root of a container is not the machine's root, and is believed on none: it has the same number, as
far as the kernel tells us.

A connection's owner is the user who made its socket. A process that connects as root, then becomes
another user and reports that connection is not believed either.
"""

from __future__ import annotations

import array
import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from qjoule.tags.connections import Owners
from qjoule.tags.definitions import MAX_BYTES, Connection, Definitions
from qjoule.tags.ring import OVER, SLOT, NotARing, RingReader, Slots

#: After this time the owner is looked up again: another connection may have the addresses by then.
CHECK_NS = 1_000_000_000
#: Connections of a process that are checked again in one turn.
MOST_CHECKED = 32
NEVER_NS = 1 << 62
NOT_BELIEVED = -1
HELLO = b"qjoule tags 1\n"
#: Definitions that may wait from one process: more than fit in a socket set up as PROTOCOL.md
#: requires.
MAX_MESSAGES = 4096
MAX_WAITING_BYTES = 1 << 21
#: CPU time for reading them in one turn. The rest is read in the next turn.
READING_NS = 20_000_000
#: A process must greet within this time of connecting.
GREETING_NS = 2_000_000_000


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


class Process(NamedTuple):
    """The process that connected, as reported by the kernel."""

    pid: int  #: 0: in a namespace that we cannot see. May have been reused by another process
    uid: int


class Application:
    """One process that shares a ring with us."""

    def __init__(
        self,
        number: int,
        process: Process,
        connected: socket.socket,
        owners: Owners,
        *,
        is_here: bool = False,
    ) -> None:
        self.number = number
        self.pid, self.uid = process
        self.is_here = is_here  #: in the recorder's network namespace
        self.definitions = Definitions()
        is_roots = is_here and self.uid == 0 and shares_namespaces(self.pid)
        self.ownership = ConnectionOwnership(self.uid, owners, is_roots=is_roots)
        self.ring: RingReader | None = None
        self.ended = False
        self.is_behind = False  #: more is waiting than one reading may take
        self._connected = connected
        self._since_ns = time.monotonic_ns()
        self._read = self._read_bytes = 0  # definitions since the socket was last empty
        self._held: list[Slots] = []

    def greet(self, now_ns: int) -> bool:
        """Takes the ring, which comes with the first message. Returns false if it has not come yet.

        Raises NotARing, also if the ring does not come in time; OSError.
        """
        try:
            message, ancillary, _, _ = self._connected.recvmsg(
                64, socket.CMSG_SPACE(16 * 4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            if now_ns - self._since_ns > GREETING_NS:
                raise NotARing("no greeting") from None
            return False
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        if message != HELLO or len(descriptors) != 1:
            for descriptor in descriptors:
                os.close(descriptor)
            raise NotARing("another greeting")
        self.ring = RingReader(descriptors[0])
        return True

    def take(self, now_ns: int) -> list[Slots]:
        """Records that can be handed on. Raises NotARing.

        Definitions arrive before the records that use them. So records are handed on only after all
        definitions that existed when the records were taken have been read. If there are many, that
        is in a later turn.
        """
        assert self.ring is not None
        if not self._held:
            self._held = list(self.ring.take(now_ns))
        self.is_behind = not self.read_definitions(now_ns)
        if self.is_behind:
            return []
        if self.ended:
            self._held += self.ring.take(now_ns)  # take what came since; nothing more will come
        batches, self._held = self._held, []
        batches += (_over(*closed) for closed in self.ownership.check(now_ns))
        return batches

    def read_definitions(self, now_ns: int) -> bool:
        """Reads new definitions. Returns false if some are left for the next turn.

        Raises NotARing if more are waiting than allowed.
        """
        until_ns = time.thread_time_ns() + READING_NS
        while not self.ended:
            if self._read > MAX_MESSAGES or self._read_bytes > MAX_WAITING_BYTES:
                raise NotARing("more definitions than a socket holds")
            try:
                message = self._connected.recv(MAX_BYTES + 1)
            except BlockingIOError:
                break
            except OSError:
                message = b""
            self.ended = not message
            self._read += 1
            self._read_bytes += len(message)
            if message and (defined := self.definitions.add(message)):
                self.ownership.add(*defined, now_ns)
            if time.thread_time_ns() > until_ns:
                return False
        self._read = self._read_bytes = 0
        return True

    @property
    def descriptor(self) -> int:
        """The descriptor of its connection to us."""
        return self._connected.fileno()

    @property
    def bytes(self) -> int:
        """Approximate memory used for it."""
        return self.definitions.bytes + (self.ring.bytes if self.ring is not None else 0)

    @property
    def lost(self) -> int:
        """Records that it dropped, or that were lost on the way."""
        return self.ring.lost + self.ring.reported_lost if self.ring is not None else 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Times in which it could not report changes: see :class:`RingReader`."""
        return self.ring.gaps if self.ring is not None else []

    def close(self) -> None:
        """Tells the process that nothing more is taken. What is known of its calls is kept."""
        self.is_behind = False
        if self.ring is not None:
            self.ring.close()
        self._connected.close()


def shares_namespaces(pid: int) -> bool:
    """Whether the process has our user and pid namespace, by what everybody may read in /proc."""
    own, its = Path("/proc/self"), Path(f"/proc/{pid}")
    try:
        same_users = (own / "uid_map").read_bytes() == (its / "uid_map").read_bytes()
        (numbers,) = re.findall(rb"^NSpid:(.*)$", (its / "status").read_bytes(), re.MULTILINE)
    except (OSError, ValueError):
        return False
    return same_users and len(numbers.split()) == 1  # one number for each namespace, ours first


def until_of(application: Application, connection: int) -> int:
    """Until when, in ns, its records of this connection are believed: see `Claims.until`."""
    return application.ownership.until(connection)


def _over(connection: int, t_ns: int) -> Slots:
    """A record as if the process had reported that this connection ended at `t_ns`."""
    record = np.zeros(1, SLOT)
    record["kind"], record["connection"], record["t_ns"] = OVER, connection, t_ns
    return record


def met(listening: socket.socket) -> Iterator[tuple[socket.socket, Process]]:
    """Accepts the processes that have connected. Raises OSError if one cannot be accepted."""
    while True:
        try:
            connected, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connected.setblocking(False)
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = np.frombuffer(credentials, np.int32).view(np.uint32).tolist()
        yield connected, Process(pid, uid)
