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

from qjoule_drivers.context import EMPTY, TagSet, baggage_keys, innermost, with_baggage
from qjoule_drivers.propagation import OPENTELEMETRY, modules, set_here, trace_context
from qjoule_drivers.ring import Ring

DEFAULT_PATH = "/run/qjoule/tags.sock"
HELLO = b"qjoule tags 1\n"
RETRY_NS = 1_000_000_000
#: How often it is checked, when a call is made, that a recorder is still there.
CHECK_NS = 100_000_000


class Peer:
    """One connection of a driver to its server. Drivers' connection objects carry theirs as an
    attribute.
    """

    __slots__ = ("announced", "of")

    def __init__(self, of: dict[str, object]) -> None:
        self.of = of
        #: To which recorder (its token), and by which number: one value, as threads share it.
        self.announced: tuple[object, int] = (None, 0)


class Recorder(Ring):
    """One that was met: the ring it reads, and the socket it takes definitions from."""

    __slots__ = ("_numbers", "_socket", "token")

    def __init__(self, path: str) -> None:
        """Meets it. Raises OSError if nobody listens there, and what a platform without memfd
        raises.
        """
        self.token = object()  #: tells this one from others, without keeping its ring alive
        self._numbers = itertools.count(1)
        self._socket: Any = _socket.socket(
            _socket.AF_UNIX,
            _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK,
        )
        try:
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

    def announce(self, what: str, known: Peer | TagSet) -> int:
        """Defines a connection or tags; returns their number, 0 if there is no room."""
        number = next(self._numbers)
        message = json.dumps({what: number, "of": known.of}, separators=(",", ":"))
        try:
            self._socket.send(
                message.encode("utf-8", "replace"), _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL
            )
        except OSError:
            self.count_dropped()
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


class Channel:
    """Announces calls. One per process; a child of fork starts anew (:func:`reset`)."""

    __slots__ = (
        "_meeting",
        "_meets",
        "_missed",
        "_next_check_ns",
        "_next_try_ns",
        "_path",
        "_recorder",
    )

    def __init__(self, path: str | None = None) -> None:
        self._path = path or os.environ.get("QJOULE_TAGS_SOCKET") or DEFAULT_PATH
        self._recorder: Recorder | None = None
        self._meets = _thread.RLock()
        self._meeting = False
        self._missed = 0
        self._next_try_ns = 0
        self._next_check_ns = 0

    def begin(self, peer: Peer | None, stream: int = 0) -> int:
        """A statement is about to be sent; returns its call, 0 if nobody listens.

        Never raises. Between two queries the server's work has filled the caches, so what a call
        costs here is the memory that it touches: few functions, few objects.
        """
        try:
            t_ns = monotonic_ns()
            recorder = self._recorder
            if recorder is None or t_ns > self._next_check_ns:
                recorder = self._present(recorder, t_ns)
            if recorder is None or peer is None:
                return 0
            token = recorder.token
            announced, connection = peer.announced
            if announced is not token:
                connection = recorder.announce("connection", peer)
                if not connection:
                    return 0
            tags = innermost().tags
            if baggage_keys:
                tags = with_baggage(tags)
            number = 0
            if tags is not EMPTY:
                announced, number = tags.announced
                if announced is not token:
                    number = recorder.announce("tags", tags)
            trace = trace_context() if OPENTELEMETRY in modules else set_here()
            return recorder.begin(t_ns, connection, number, stream, trace)
        except Exception:
            self.failed(call_is_lost=True)
            return 0

    def end(self, peer: Peer | None, call: int, status: int) -> None:
        """The result of ``call`` has arrived; nothing to tell if that is 0. Never raises."""
        recorder = self._recorder
        if not call or recorder is None or peer is None:
            return
        try:
            if peer.announced[0] is recorder.token:
                recorder.end(monotonic_ns(), call, status)
        except Exception:
            self.failed()

    def failed(self, call_is_lost: bool = False) -> None:
        """Counts an exception that the application was spared."""
        recorder = self._recorder
        if recorder is not None:
            recorder.count_error()
            if call_is_lost:
                recorder.count_dropped()

    def close(self) -> None:
        """Forgets the recorder; the next call meets it again."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()

    def abandon(self) -> None:
        """In a child of fork: the ring is the parent's, and no other thread exists any more."""
        self.close()
        self._meets = _thread.RLock()
        self._meeting = False
        self._missed = 0
        self._next_try_ns = 0

    def _present(self, recorder: Recorder | None, t_ns: int) -> Recorder | None:
        """The recorder that is there now: the same, another, or none."""
        if recorder is not None:
            self._next_check_ns = t_ns + CHECK_NS
            if not recorder.is_gone():
                return recorder
            if self._recorder is recorder:
                self.close()
        if t_ns < self._next_try_ns:
            return None
        # Threads that come meanwhile wait: a few system calls, none of which blocks. Without a tag
        # their calls would be the one thing that is neither told nor counted.
        with self._meets:
            if self._recorder is not None:
                return self._recorder
            if self._meeting:
                self._missed += 1  # in a signal handler that interrupted the meeting
                return None
            if t_ns < self._next_try_ns:
                return None  # another has just failed
            self._meeting = True
            try:
                return self._meet()
            finally:
                self._next_try_ns = t_ns + RETRY_NS
                self._meeting = False

    def _meet(self) -> Recorder | None:
        self._missed = 0
        try:
            recorder = Recorder(self._path)
        except (OSError, ValueError, AttributeError):
            return None
        self._next_check_ns = monotonic_ns() + CHECK_NS
        self._recorder = recorder
        for _ in range(self._missed):
            recorder.count_dropped()
        return recorder


channel = Channel()


def reset() -> None:
    """What :func:`os.fork` runs in the child."""
    channel.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset)
