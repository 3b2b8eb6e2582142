"""The way from this process to a recorder on the same host: met when there is one, given up when
there is none.

Nothing here waits for another process, starts a thread or raises. See PROTOCOL.md.
"""

from __future__ import annotations

import _socket  # not `socket`: gevent and eventlet replace that one's methods by such as may switch
import _thread  # likewise
import array
import itertools
import json
import os
from time import monotonic_ns
from typing import Any

from qjoule_drivers.context import EMPTY, TagSet, innermost
from qjoule_drivers.propagation import trace_context
from qjoule_drivers.ring import Ring

DEFAULT_PATH = "/run/qjoule/tags.sock"
HELLO = b"qjoule tags 1\n"
RETRY_NS = 1_000_000_000
#: How often, in calls, it is checked that a recorder is still there.
CHECK_CALLS = 1024


class Peer:
    """One connection of a driver to its server. Drivers' connection objects carry theirs as an
    attribute.
    """

    __slots__ = ("number", "of", "ring")

    def __init__(self, of: dict[str, object]) -> None:
        self.of = of
        self.ring: object = None
        self.number = 0


class Channel:
    """Announces calls. One per process; a child of fork starts anew (:func:`reset`)."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path or os.environ.get("QJOULE_TAGS_SOCKET") or DEFAULT_PATH
        self._ring: Ring | None = None
        self._socket: Any = None
        self._meets = _thread.RLock()
        self._meeting = False
        self._next_try_ns = 0
        self._calls = 0
        self._numbers = itertools.count(1)

    def begin(self, peer: Peer, stream: int = 0) -> int:
        """A statement is about to be sent; returns its call, 0 if nobody listens."""
        t_ns = monotonic_ns()
        ring = self._ring
        if ring is None:
            if t_ns < self._next_try_ns or not self._meet(t_ns):
                return 0
            ring = self._ring
            if ring is None:
                return 0
        self._calls += 1
        if self._calls >= CHECK_CALLS and not self._still_there(ring):
            return 0
        connection = peer.number if peer.ring is ring.token else self._announce_peer(ring, peer)
        if not connection:
            return 0
        tags = innermost().tags
        number = 0
        if tags is not EMPTY:
            number = tags.number if tags.ring is ring.token else self._announce_tags(ring, tags)
        call = ring.begin(t_ns, connection, number, stream, trace_context())
        if not call:
            self._calls = CHECK_CALLS  # full: is anybody there?
        return call

    def end(self, peer: Peer, call: int, status: int) -> None:
        """The result of ``call`` has arrived."""
        ring = self._ring
        if ring is not None and peer.ring is ring.token:
            ring.end(monotonic_ns(), call, status)

    def failed(self) -> None:
        """Counts an exception that the application was spared."""
        ring = self._ring
        if ring is not None:
            ring.count_error()

    def close(self) -> None:
        """Forgets the recorder; the next call meets it again."""
        self._ring = (
            None  # another thread may still be writing: the mapping goes with its last user
        )
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def abandon(self) -> None:
        """In a child of fork: the ring is the parent's, and no other thread exists any more."""
        self.close()
        self._meets = _thread.RLock()
        self._meeting = False
        self._next_try_ns = 0

    def _meet(self, t_ns: int) -> bool:
        # Threads that come meanwhile wait: a few system calls, none of which blocks. Without a tag
        # their calls would be the one thing that is neither told nor counted.
        with self._meets:
            if self._ring is not None:
                return True
            # In a signal handler that interrupted the meeting, or where another has just failed.
            if self._meeting or t_ns < self._next_try_ns:
                return False
            self._meeting = True
            try:
                return self._try_to_meet()
            finally:
                self._next_try_ns = t_ns + RETRY_NS
                self._meeting = False

    def _try_to_meet(self) -> bool:
        sock: Any = None
        try:
            sock = _socket.socket(
                _socket.AF_UNIX,
                _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK,
            )
            sock.connect(self._path)
            ring = Ring()
            try:
                rights = array.array("i", [ring.fd])
                sock.sendmsg([HELLO], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
            finally:
                ring.handed_over()
        except (OSError, ValueError, AttributeError):
            if sock is not None:
                sock.close()
            return False
        else:
            self._numbers = itertools.count(1)
            self._calls = 0
            self._socket = sock
            self._ring = ring
            return True

    def _still_there(self, ring: Ring) -> bool:
        """Every so many calls: a recorder that was killed closes its socket, and nothing else."""
        self._calls = 0
        gone = ring.closed
        if not gone:
            try:
                gone = self._socket.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
        if gone and self._ring is ring:
            self.close()
        return not gone

    def _announce_peer(self, ring: Ring, peer: Peer) -> int:
        number = self._define(ring, "connection", peer.of)
        peer.number = number
        peer.ring = ring.token if number else None
        return number

    def _announce_tags(self, ring: Ring, tags: TagSet) -> int:
        number = self._define(ring, "tags", tags.of)
        tags.number = number
        tags.ring = ring.token if number else None
        return number

    def _define(self, ring: Ring, what: str, of: object) -> int:
        number = next(self._numbers)
        message = json.dumps({what: number, "of": of}, separators=(",", ":"))
        sock = self._socket
        try:
            sock.send(
                message.encode("utf-8", "replace"), _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL
            )
        except (OSError, AttributeError):
            ring.count_dropped()
            return 0
        return number


channel = Channel()


def reset() -> None:
    """What :func:`os.fork` runs in the child."""
    channel.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset)
