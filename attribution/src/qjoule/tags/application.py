# SPDX-License-Identifier: Apache-2.0
"""The recorder's state of one process that shares a ring. Root may report calls on all connections,
other users only on their own.

A container's root is not the machine's root, but the kernel gives it the same number. So it may
report on none.

A connection's owner is the user who made its socket. A process that connects as root and then
becomes another user may not report on that connection either.
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

#: The owner is looked up again after this time, because the addresses may have been reused.
CHECK_NS = 1_000_000_000
#: Connections of a process that one turn checks again.
MOST_CHECKED = 32
NEVER_NS = 1 << 62
NOT_BELIEVED = -1
HELLO = b"qjoule tags 1\n"
#: Definitions that may wait from one process: more than fit in a socket set up as PROTOCOL.md
#: requires.
MAX_MESSAGES = 4096
MAX_WAITING_BYTES = 1 << 21
#: CPU time for reading definitions in one turn. The rest is read in the next turn.
READING_NS = 20_000_000
#: A process must greet within this time of connecting.
GREETING_NS = 2_000_000_000


@dataclass(slots=True)
class _Open:
    """A connection that belonged to its reporter's user at the last check."""

    number: int
    connection: Connection
    cookie: bytes
    checked_ns: int


class ConnectionOwnership:
    """The connections that one process defined, and how long its reports on each count."""

    def __init__(self, uid: int, owners: Owners, *, is_roots: bool = False) -> None:
        """`is_roots`: the process is the machine's root's and may report on all connections."""
        self._uid = uid
        self._is_roots = is_roots
        self._owners = owners
        #: Only connections whose reports do not or no longer count. Most have no entry.
        self._until: dict[int, int] = {}
        self._open: deque[_Open] = deque()  #: in the order of their last checks

    def add(self, number: int, connection: Connection, now_ns: int) -> None:
        """Registers a connection that the process claims to have."""
        if self._is_roots:
            return
        owner = self._owners.owner_of(connection) if self._uid else None
        if owner is None or owner.uid != self._uid:
            self._until[number] = NOT_BELIEVED
        else:
            self._open.append(_Open(number, connection, owner.cookie, now_ns))

    def until(self, number: int) -> int:
        """Returns the time in ns until which reports count: `NEVER_NS` all, `NOT_BELIEVED` none.

        An undefined number returns `NEVER_NS`, since its records have no meaning anyway.
        """
        return self._until.get(number, NEVER_NS)

    def check(self, now_ns: int) -> Iterator[tuple[int, int]]:
        """Yields connections closed since the last check: their number, and the last time when they
        certainly belonged to this process's user."""
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

    pid: int  #: 0 if it is in a namespace that we cannot see; may have been reused
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
        self.is_behind = False  #: true if more definitions wait than one turn may read
        self._connected = connected
        self._since_ns = time.monotonic_ns()
        self._read = self._read_bytes = 0  # definitions since the socket was last empty
        self._held: list[Slots] = []

    def greet(self, now_ns: int) -> bool:
        """Receives the ring with the first message. Returns false if that has not arrived yet.

        Raises NotARing if it is invalid or late; OSError.
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
        """Returns records that can be passed on. Raises NotARing.

        Definitions arrive before the records that use them. So records are passed on only after
        all definitions that existed when the records were taken have been read. If there are many,
        that happens in a later turn.
        """
        assert self.ring is not None
        if not self._held:
            self._held = list(self.ring.take(now_ns))
        self.is_behind = not self.read_definitions(now_ns)
        if self.is_behind:
            return []
        if self.ended:
            self._held += self.ring.take(now_ns)  # the process has ended: take its last records
        batches, self._held = self._held, []
        batches += (_connection_end(*closed) for closed in self.ownership.check(now_ns))
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
        """The descriptor of the connection from the process."""
        return self._connected.fileno()

    @property
    def bytes(self) -> int:
        """Approximate memory used for this process."""
        return self.definitions.bytes + (self.ring.bytes if self.ring is not None else 0)

    @property
    def lost(self) -> int:
        """Records that the process dropped, or that were lost on the way."""
        return self.ring.lost + self.ring.reported_lost if self.ring is not None else 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Times in which the process could not report changes: see :class:`RingReader`."""
        return self.ring.gaps if self.ring is not None else []

    def close(self) -> None:
        """Tells the process that nothing more is taken. Its ends of calls stay available."""
        self.is_behind = False
        if self.ring is not None:
            self.ring.close()
        self._connected.close()


def shares_namespaces(pid: int) -> bool:
    """Returns true if /proc says that the process has our user and pid namespace."""
    own, its = Path("/proc/self"), Path(f"/proc/{pid}")
    try:
        same_users = (own / "uid_map").read_bytes() == (its / "uid_map").read_bytes()
        (numbers,) = re.findall(rb"^NSpid:(.*)$", (its / "status").read_bytes(), re.MULTILINE)
    except (OSError, ValueError):
        return False
    return same_users and len(numbers.split()) == 1  # one number for each namespace, ours first


def reports_valid_until(application: Application, connection: int) -> int:
    """Returns the time in ns until which reports on this connection count."""
    return application.ownership.until(connection)


def _connection_end(connection: int, t_ns: int) -> Slots:
    """Makes a record as if the process had reported the connection's end at `t_ns`."""
    record = np.zeros(1, SLOT)
    record["kind"], record["connection"], record["t_ns"] = OVER, connection, t_ns
    return record


def accept_processes(listening: socket.socket) -> Iterator[tuple[socket.socket, Process]]:
    """Yields newly connected processes. Raises OSError if one cannot be accepted."""
    while True:
        try:
            connected, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connected.setblocking(False)
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = np.frombuffer(credentials, np.int32).view(np.uint32).tolist()
        yield connected, Process(pid, uid)
