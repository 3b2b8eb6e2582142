"""A process that shares a ring with the recorder, as the recorder sees it."""

from __future__ import annotations

import array
import os
import socket

from qjoule.tags.definitions import MAX_BYTES, Definitions
from qjoule.tags.ring import NotARing, RingReader

HELLO = b"qjoule tags 1\n"
#: Definitions taken of one process in one turn, so that one cannot keep the others waiting: more
#: than a socket holds that was set up as PROTOCOL.md says.
MAX_MESSAGES = 4096
MAX_TURN_BYTES = 1 << 21


class Application:
    """One process that shares a ring with us."""

    def __init__(
        self, number: int, pid: int, connected: socket.socket, *, is_here: bool = False
    ) -> None:
        self.number = number
        self.pid = pid
        self.is_here = is_here  #: in the recorder's network namespace
        self.definitions = Definitions()
        self.ring: RingReader | None = None
        self.ended = False
        self._connected = connected

    def greet(self) -> bool:
        """Takes the ring, which comes with the first message; false if it is not there yet.

        Raises NotARing, OSError.
        """
        message, ancillary, _, _ = self._connected.recvmsg(64, socket.CMSG_SPACE(16 * 4))
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

    def read_definitions(self) -> None:
        """Takes in what was said since. Raises NotARing if that is more than may wait."""
        left = MAX_TURN_BYTES
        for _ in range(MAX_MESSAGES):
            if left < 0:
                break
            try:
                message = self._connected.recv(MAX_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self.ended = True
                return
            left -= len(message)
            self.definitions.add(message)
        raise NotARing("more definitions than a socket holds")

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """When it could not tell what it had to: see :class:`RingReader`."""
        return self.ring.gaps if self.ring is not None else []

    def close(self) -> None:
        """Says that no more is taken; what is known of its calls stays."""
        if self.ring is not None:
            self.ring.close()
        self._connected.close()
