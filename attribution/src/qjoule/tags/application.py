# SPDX-License-Identifier: Apache-2.0
"""A process that shares a ring with the recorder, as the recorder sees it."""

from __future__ import annotations

import array
import os
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from qjoule.tags.claims import Claims
from qjoule.tags.definitions import MAX_BYTES, Definitions
from qjoule.tags.owners import Owners
from qjoule.tags.ring import OVER, SLOT, NotARing, RingReader, Slots

HELLO = b"qjoule tags 1\n"
#: Definitions that one process may have waiting: more than a socket holds that was set up as
#: PROTOCOL.md says.
MAX_MESSAGES = 4096
MAX_WAITING_BYTES = 1 << 21
#: Processor time that reading them may take in one turn; the others are read in the next one.
READING_NS = 20_000_000
#: A process greets as soon as it has connected.
GREETING_NS = 2_000_000_000


class Process(NamedTuple):
    """Who connected, as the kernel says."""

    pid: int  #: 0: in a namespace that we cannot see; it may be another process's by now
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
        self.claims = Claims(self.uid, owners)
        self.ring: RingReader | None = None
        self.ended = False
        self.is_behind = False  #: there is more to read than one reading may take
        self._connected = connected
        self._since_ns = time.monotonic_ns()
        self._read = self._read_bytes = 0  # definitions since there was none left
        self._held: list[Slots] = []

    def greet(self, now_ns: int) -> bool:
        """Takes the ring, which comes with the first message; false if it is not there yet.

        Raises NotARing, also if it does not come; OSError.
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

        What they mean was defined before they were written. So none are handed on before all has
        been read that was defined by the time they were taken: in a later turn, if that is much.
        """
        assert self.ring is not None
        if not self._held:
            self._held = list(self.ring.take(now_ns))
        self.is_behind = not self.read_definitions(now_ns)
        if self.is_behind:
            return []
        if self.ended:
            self._held += self.ring.take(now_ns)  # what came in between is all there will be
        batches, self._held = self._held, []
        batches += (_over(*closed) for closed in self.claims.check(now_ns))
        return batches

    def read_definitions(self, now_ns: int) -> bool:
        """Takes in what was said since; false if more is left for the next turn.

        Raises NotARing if that is more than may wait.
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
                self.claims.add(*defined, now_ns)
            if time.thread_time_ns() > until_ns:
                return False
        self._read = self._read_bytes = 0
        return True

    @property
    def descriptor(self) -> int:
        """Of its connection to us."""
        return self._connected.fileno()

    @property
    def bytes(self) -> int:
        """About what is remembered of it."""
        return self.definitions.bytes + (self.ring.bytes if self.ring is not None else 0)

    @property
    def lost(self) -> int:
        """Records that it dropped, or that were lost on the way."""
        return self.ring.lost + self.ring.told_lost if self.ring is not None else 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """When it could not tell what it had to: see :class:`RingReader`."""
        return self.ring.gaps if self.ring is not None else []

    def close(self) -> None:
        """Says that no more is taken; what is known of its calls stays."""
        self.is_behind = False
        if self.ring is not None:
            self.ring.close()
        self._connected.close()


def until_of(application: Application, connection: int) -> int:
    """Until when, in ns, what it tells of this connection is believed: see `Claims.until`."""
    return application.claims.until(connection)


def _over(connection: int, t_ns: int) -> Slots:
    """As if the process had said that nothing is known of its connection from then on."""
    record = np.zeros(1, SLOT)
    record["kind"], record["connection"], record["t_ns"] = OVER, connection, t_ns
    return record


def met(listening: socket.socket) -> Iterator[tuple[socket.socket, Process]]:
    """Processes that have connected. Raises OSError if one cannot be accepted."""
    while True:
        try:
            connected, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connected.setblocking(False)
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = np.frombuffer(credentials, np.int32).view(np.uint32).tolist()
        yield connected, Process(pid, uid)
