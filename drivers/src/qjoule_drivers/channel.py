# SPDX-License-Identifier: Apache-2.0
"""The channel from this process to a recorder on the same host. It is opened when a recorder
appears, and dropped when the recorder is gone.

Nothing here waits for another process, starts a thread or raises. See PROTOCOL.md.
"""

from __future__ import annotations

import _thread  # not `threading`, whose locks gevent and eventlet replace
import os
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns

from qjoule_drivers.context import EMPTY, Frame, innermost, outermost
from qjoule_drivers.propagation import OPENTELEMETRY, context_of_opentelemetry, modules
from qjoule_drivers.ring import HOLDS, NOT_DEFINED, Recorder
from qjoule_drivers.spans import with_opentelemetry

DEFAULT_PATH = "/run/qjoule/tags.sock"
#: Time between two checks for a recorder. A recorder that starts waits as long before it announces
#: that it records (`qjoule.tags.tagging.LOOK_NS`), so all calls made from then on are reported.
RETRY_NS = 100_000_000
#: Time between two checks, made during calls, that a recorder is still there and what it wants.
CHECK_NS = 100_000_000
#: The time before the first check: the recorder announces what it wants once it has taken the ring.
FIRST_CHECK_NS = 10_000_000


class Peer:
    """One connection of a driver to its server. A driver's connection object holds it as an
    attribute.
    """

    __slots__ = ("announced", "frame", "of", "streams", "to")

    def __init__(self, of: dict[str, object]) -> None:
        self.of = of
        #: Token of the recorder that knows this connection, and its number there. One value, as
        #: threads share it.
        self.announced: tuple[object, int] = (None, 0)
        #: Calls of stream 0 in this frame have nothing new to report while `ReportCache` holds.
        self.frame: Frame = outermost
        self.to: ReportCache = NEVER
        #: The same two values for other streams.
        self.streams: dict[int, tuple[Frame, ReportCache]] = {}

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            channel.over(self)


class ReportCache:
    """Reports made under one `ReportCache` hold while tags and trace stay the same and the recorder
    need not be checked. It is replaced when everything has to be reported again.

    All that a call needs is in this one object, because the cost of a call is the memory it
    touches.
    """

    __slots__ = ("frame", "until_ns")

    def __init__(self, frame: Callable[[], object], until_ns: int) -> None:
        self.frame = frame  #: the tags and trace of a query sent now
        self.until_ns = until_ns  #: when to look for a recorder, or whether it is still there

    def end(self) -> None:
        """Invalidates the cache, even if another thread is setting the time: each state is a new
        object."""
        self.frame = object


NEVER = ReportCache(innermost, 0)
NEVER.end()
_NOTHING = outermost, NEVER  #: state of a stream that has reported nothing yet


class Channel:
    """Reports calls. One per process; a forked child starts anew (:func:`reset`)."""

    __slots__ = (
        "_connect_lock",
        "_connecting",
        "_lost",
        "_path",
        "_recorder",
        "followers",
        "frame",
        "to",
        "wants_ends",
    )

    def __init__(self, path: str | None = None) -> None:
        self._path = path or os.environ.get("QJOULE_TAGS_SOCKET") or DEFAULT_PATH
        self._recorder: Recorder | None = None
        self._connect_lock = _thread.RLock()
        self._connecting = False
        self._lost = 0
        self.frame = innermost  #: the tags and trace of a query sent now
        self.to = ReportCache(innermost, 0)  #: replaced when everything has to be reported again
        #: True if ends of calls are reported; callbacks for when that changes.
        self.wants_ends = False
        self.followers: list[Callable[[bool], None]] = []

    def begin(self, peer: Peer | None, stream: int = 0) -> int:
        """Reports a statement that is about to be sent. Returns a call to pass to `end`, or 0.

        Never raises. Between two queries the server's work has evicted our data from the caches, so
        the cost of a call is the memory it touches: use few functions and few objects.
        """
        try:
            # Read first: another thread may find a recorder or a gap in between. Then the report
            # belongs to the old value and is repeated.
            to = self.to
            recorder = self._recorder
            t_ns = monotonic_ns()
            if t_ns > to.until_ns:
                self._check_recorder(recorder, t_ns)
                to = self.to
                recorder = self._recorder
                t_ns = monotonic_ns()
            if peer is None:
                return 0
            frame = self.frame()
            last, under = peer.streams.get(stream, _NOTHING) if stream else (peer.frame, peer.to)
            is_told = under is to and last.tags is frame.tags and last.trace == frame.trace
            if recorder is not None and not is_told:
                holds = recorder.holds
                call = self._report(recorder, peer, stream, frame, t_ns, holds)
                if not (call and holds):
                    return call
            if stream:
                peer.streams[stream] = frame, to
            else:
                peer.frame = frame
                peer.to = to
        except Exception:
            self.failed(call_is_lost=True)
            self.interrupt()
        return 0

    def _report(  # noqa: PLR0917
        self, recorder: Recorder, peer: Peer, stream: int, frame: Frame, t_ns: int, holds: int
    ) -> int:
        """Writes the report. Returns the record's number; 0 if a lasting record found no
        room."""
        token = recorder.token
        announced, connection = peer.announced
        if announced is not token:
            connection = recorder.announce("connection", peer)
        tags = frame.tags
        announced, number = tags.announced
        if announced is not token:
            number = 0 if tags is EMPTY else recorder.announce("tags", tags) or NOT_DEFINED
        call = 0
        if connection:
            call = recorder.begin(t_ns, connection, number, stream, frame.trace, holds)
        if call and number != NOT_DEFINED:
            return call
        recorder.count_dropped()
        if not call:
            self.interrupt()
        elif stream:  # the recorder knows about the gap; the next call tries again
            peer.streams.pop(stream, None)
        else:
            peer.to = NEVER
        return 0 if holds else call

    def end(self, peer: Peer | None, call: int, status: int) -> None:
        """The result of ``call`` has arrived. Reports nothing if ``call`` is 0. Never raises."""
        recorder = self._recorder
        if not call or recorder is None or peer is None:
            return
        try:
            if peer.announced[0] is recorder.token:
                recorder.end(monotonic_ns(), call, status)
        except Exception:
            self.failed()

    def over(self, peer: Peer) -> None:
        """Reports that the connection is closed. Never raises."""
        recorder = self._recorder
        try:
            announced, connection = peer.announced
            if recorder is None or announced is not recorder.token:
                return
            if not recorder.over(monotonic_ns(), connection):
                self.interrupt()
        except Exception:
            self.failed()

    def failed(self, call_is_lost: bool = False) -> None:
        """Counts an exception that was kept from the application."""
        recorder = self._recorder
        if recorder is not None:
            recorder.count_error()
            if call_is_lost:
                recorder.count_dropped()

    def use_opentelemetry(self) -> None:
        """From now on uses OpenTelemetry's spans and the chosen baggage entries, if OpenTelemetry
        is imported."""
        if OPENTELEMETRY in modules:
            with suppress(Exception):  # another thread is importing it
                self.frame = with_opentelemetry(context_of_opentelemetry())
                self.invalidate()

    def invalidate(self) -> None:
        """Makes each connection report everything again at its next call."""
        with self._connect_lock:  # else one of two threads would keep its old state
            before, self.to = self.to, ReportCache(self.frame, self.to.until_ns)
            before.end()

    def interrupt(self) -> None:
        """Marks a gap: later calls go unreported, so earlier reports do not hold for them."""
        recorder = self._recorder
        if recorder is not None:
            recorder.gap(monotonic_ns())
        self.invalidate()

    def close(self) -> None:
        """Forgets the recorder. The next call connects anew."""
        recorder, self._recorder = self._recorder, None
        self.to.until_ns = 0
        self._set_wants_ends(False)
        if recorder is not None:
            recorder.close()

    def abandon(self) -> None:
        """In a forked child: the ring belongs to the parent, and no other thread exists any
        more.
        """
        self._connect_lock = _thread.RLock()
        self.close()
        self._connecting = False
        self._lost = 0

    def _set_wants_ends(self, wants_ends: bool) -> None:
        self.invalidate()
        with self._connect_lock:
            self.wants_ends = wants_ends
            for follow in tuple(self.followers):
                with suppress(Exception):
                    follow(wants_ends)

    def _check_recorder(self, recorder: Recorder | None, t_ns: int) -> None:
        """Checks whether the recorder is the same, another or gone, and whether OpenTelemetry is
        loaded.
        """
        if self.frame is innermost:
            self.use_opentelemetry()
        if recorder is not None:
            self.to.until_ns = t_ns + CHECK_NS
            if not recorder.is_gone():
                holds = HOLDS if recorder.changes else 0
                if holds != recorder.holds:
                    recorder.holds = holds
                    self._set_wants_ends(not holds)
                return
            if self._recorder is recorder:
                self.close()
        # Other threads wait here for a few system calls, none of which blocks. Otherwise their
        # untagged calls would be neither reported nor counted.
        with self._connect_lock:
            if self._recorder is not None or t_ns <= self.to.until_ns:
                return  # another thread has just connected, or failed
            if self._connecting:
                self._lost += 1  # we run in a signal handler that interrupted the connecting
                return
            self._connecting = True
            try:
                self._connect(t_ns)
            finally:
                self._connecting = False

    def _connect(self, t_ns: int) -> None:
        self._lost = 0
        try:
            recorder = Recorder(self._path)
        except (OSError, ValueError, AttributeError):
            self.to.until_ns = t_ns + RETRY_NS
            return
        self._recorder = recorder
        self.to.until_ns = monotonic_ns() + FIRST_CHECK_NS
        self._set_wants_ends(True)
        for _ in range(self._lost):
            recorder.count_dropped()


channel = Channel()


def reset() -> None:
    """:func:`os.fork` runs this in the child."""
    channel.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset)
