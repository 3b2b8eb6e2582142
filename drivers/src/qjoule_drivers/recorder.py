# SPDX-License-Identifier: Apache-2.0
"""The process's end of a connected recorder: the ring that it reads, and the socket for
definitions.

See PROTOCOL.md.
"""

from __future__ import annotations

import _socket  # not `socket`: gevent and eventlet replace its methods by ones that may switch
import array
import itertools
import json
from collections.abc import Mapping
from typing import Any, Protocol

from qjoule_drivers.ring import Ring

HELLO = b"qjoule tags 1\n"
#: Room for some 2,000 definitions that the recorder has not read yet, if the host allows it.
SOCKET_BYTES = 1 << 20


class Definition(Protocol):
    """Something that gets a number: a connection or tags."""

    #: the recorder (its token) it was defined to, and its number there
    announced: tuple[object, int]

    @property
    def of(self) -> Mapping[str, object]:
        """Its description."""


class Recorder(Ring):
    """A connected recorder: the ring it reads, and the socket for definitions."""

    __slots__ = ("_numbers", "_socket", "holds", "token")

    def __init__(self, path: str) -> None:
        """Connects. Raises OSError if nobody listens there, and whatever a platform without memfd
        raises.
        """
        self.token = object()  #: identifies this recorder without keeping its ring alive
        self.holds = 0  #: HOLDS if it wants only changes; 0 if it wants each call
        self._numbers = itertools.count(1)
        self._socket: Any = _socket.socket(
            _socket.AF_UNIX,
            _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK,
        )
        try:
            self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, SOCKET_BYTES)
            self._socket.connect(path)
            super().__init__()
            try:
                rights = array.array("i", [self.fd])
                self._socket.sendmsg([HELLO], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            finally:
                self.handed_over()
        except BaseException:
            self._socket.close()
            raise

    def announce(self, what: str, known: Definition) -> int:
        """Defines a connection or tags. Returns their number; 0 if there is no room."""
        number = next(self._numbers)
        message = json.dumps({what: number, "of": known.of}, separators=(",", ":"))
        try:
            self._socket.send(
                message.encode("utf-8", "replace"), _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL
            )
        except OSError:
            return 0
        known.announced = (self.token, number)
        return number

    def is_gone(self) -> bool:
        """Whether the recorder has closed its socket. If it was killed, that is the only sign."""
        if self.closed:
            return True
        try:
            return bool(self._socket.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT) == b"")
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Another thread may still be writing: the ring's mapping goes with its last user."""
        self._socket.close()
