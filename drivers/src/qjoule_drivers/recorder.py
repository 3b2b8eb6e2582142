# SPDX-License-Identifier: Apache-2.0
"""A recorder that this process met: the ring that it reads, and the socket it takes definitions
from. See PROTOCOL.md.
"""

from __future__ import annotations

import _socket  # not `socket`: gevent and eventlet replace that one's methods by such as may switch
import array
import itertools
import json
from collections.abc import Mapping
from typing import Any, Protocol

from qjoule_drivers.ring import Ring

HELLO = b"qjoule tags 1\n"
#: Room for some 2,000 definitions that the recorder has not read yet, as far as the host allows it.
SOCKET_BYTES = 1 << 20


class Definition(Protocol):
    """What gets a number: a connection or tags."""

    announced: tuple[object, int]  #: to which recorder (its token), and by which number

    @property
    def of(self) -> Mapping[str, object]:
        """What is said of it."""


class Recorder(Ring):
    """One that was met: the ring it reads, and the socket it takes definitions from."""

    __slots__ = ("_numbers", "_socket", "holds", "token")

    def __init__(self, path: str) -> None:
        """Meets it. Raises OSError if nobody listens there, and what a platform without memfd
        raises.
        """
        self.token = object()  #: tells this one from others, without keeping its ring alive
        self.holds = 0  #: HOLDS if it wants to know what changes; else each call
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
        """Defines a connection or tags; returns their number, 0 if there is no room."""
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
        """One that was killed closes its socket, and nothing else."""
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
