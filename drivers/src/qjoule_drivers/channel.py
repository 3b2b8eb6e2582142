# SPDX-License-Identifier: Apache-2.0
"""The way from this process to a recorder on the same host: met when there is one, given up when
there is none.

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
from qjoule_drivers.recorder import Recorder
from qjoule_drivers.ring import HOLDS, NOT_DEFINED
from qjoule_drivers.spans import with_opentelemetry
from qjoule_drivers.standing import NEVER, Standing

DEFAULT_PATH = "/run/qjoule/tags.sock"
#: How often a recorder is looked for where none was found. One that starts waits so long before it
#: says that it records (`qjoule.tags.tagging.LOOK_NS`): calls made from then on are all told.
RETRY_NS = 100_000_000
#: How often it is checked, when a call is made, that a recorder is still there and what it wants.
CHECK_NS = 100_000_000
#: The first time, for it says what it wants when it has taken the ring.
FIRST_CHECK_NS = 10_000_000
_NOTHING = outermost, NEVER  #: what a stream has told that never told anything


class Peer:
    """One connection of a driver to its server. Drivers' connection objects carry theirs as an
    attribute.
    """

    __slots__ = ("announced", "frame", "of", "to", "told")

    def __init__(self, of: dict[str, object]) -> None:
        self.of = of
        #: To which recorder (its token), and by which number: one value, as threads share it.
        self.announced: tuple[object, int] = (None, 0)
        #: In which frame calls of stream 0 have nothing to tell, as long as this stands.
        self.frame: Frame = outermost
        self.to: Standing = NEVER
        #: Both, of other streams.
        self.told: dict[int, tuple[Frame, Standing]] = {}

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            channel.over(self)


class Channel:
    """Announces calls. One per process; a child of fork starts anew (:func:`reset`)."""

    __slots__ = (
        "_meeting",
        "_meets",
        "_missed",
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
        self._meets = _thread.RLock()
        self._meeting = False
        self._missed = 0
        self.frame = innermost  #: what a query sent now carries
        self.to = Standing(innermost, 0)  #: another one when what was told has to be told again
        #: Whether calls' ends are told, and who hears when that changes.
        self.wants_ends = False
        self.followers: list[Callable[[bool], None]] = []

    @property
    def check_ns(self) -> int:
        """When to look for a recorder, or whether it is still there."""
        return self.to.until_ns

    @check_ns.setter
    def check_ns(self, t_ns: int) -> None:
        self.to.until_ns = t_ns

    def begin(self, peer: Peer | None, stream: int = 0) -> int:
        """A statement is about to be sent; returns its call, if that has to be ended, else 0.

        Never raises. Between two queries the server's work has filled the caches, so what a call
        costs here is the memory that it touches: few functions, few objects.
        """
        try:
            # In this order, as other threads may find a recorder, or a gap, in between: what is
            # told then counts as told to the one before, and is told again.
            to = self.to
            recorder = self._recorder
            t_ns = monotonic_ns()
            if t_ns > to.until_ns:
                self._look(recorder, t_ns)
                to = self.to
                recorder = self._recorder
                t_ns = monotonic_ns()
            if peer is None:
                return 0
            frame = self.frame()
            last, under = peer.told.get(stream, _NOTHING) if stream else (peer.frame, peer.to)
            is_told = under is to and last.tags is frame.tags and last.trace == frame.trace
            if recorder is not None and not is_told:
                holds = recorder.holds
                call = self._tell(recorder, peer, stream, frame, t_ns, holds)
                if not (call and holds):
                    return call
            if stream:
                peer.told[stream] = frame, to
            else:
                peer.frame = frame
                peer.to = to
        except Exception:
            self.failed(call_is_lost=True)
            self.interrupt()
        return 0

    def _tell(  # noqa: PLR0917
        self, recorder: Recorder, peer: Peer, stream: int, frame: Frame, t_ns: int, holds: int
    ) -> int:
        """Tells the recorder; returns the record's number, 0 if what holds found no room."""
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
        elif stream:  # the recorder knows that it does not know; the next call tries again
            peer.told.pop(stream, None)
        else:
            peer.to = NEVER
        return 0 if holds else call

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

    def over(self, peer: Peer) -> None:
        """The connection is closed. Never raises."""
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
        """Counts an exception that the application was spared."""
        recorder = self._recorder
        if recorder is not None:
            recorder.count_error()
            if call_is_lost:
                recorder.count_dropped()

    def heed_opentelemetry(self) -> None:
        """Its spans, and those entries of its baggage that are named, count from now on, if it is
        imported.
        """
        if OPENTELEMETRY in modules:
            with suppress(Exception):  # another thread is importing it
                self.frame = with_opentelemetry(context_of_opentelemetry())
                self.tell_anew()

    def tell_anew(self) -> None:
        """What was told is told again, at each connection's next call."""
        with self._meets:  # or of two at once, one would go on standing
            before, self.to = self.to, Standing(self.frame, self.to.until_ns)
            before.end()

    def interrupt(self) -> None:
        """Calls are made that are not told: nothing that was told until now holds for them."""
        recorder = self._recorder
        if recorder is not None:
            recorder.gap(monotonic_ns())
        self.tell_anew()

    def close(self) -> None:
        """Forgets the recorder; the next call meets it again."""
        recorder, self._recorder = self._recorder, None
        self.to.until_ns = 0
        self._tell_ends(False)
        if recorder is not None:
            recorder.close()

    def abandon(self) -> None:
        """In a child of fork: the ring is the parent's, and no other thread exists any more."""
        self._meets = _thread.RLock()
        self.close()
        self._meeting = False
        self._missed = 0

    def _tell_ends(self, wanted: bool) -> None:
        self.tell_anew()
        with self._meets:
            self.wants_ends = wanted
            for follow in tuple(self.followers):
                with suppress(Exception):
                    follow(wanted)

    def _look(self, recorder: Recorder | None, t_ns: int) -> None:
        """Which recorder is there now: the same, another, or none; and whether OpenTelemetry is."""
        if self.frame is innermost:
            self.heed_opentelemetry()
        if recorder is not None:
            self.to.until_ns = t_ns + CHECK_NS
            if not recorder.is_gone():
                holds = HOLDS if recorder.changes else 0
                if holds != recorder.holds:
                    recorder.holds = holds
                    self._tell_ends(not holds)
                return
            if self._recorder is recorder:
                self.close()
        # Threads that come meanwhile wait: a few system calls, none of which blocks. Without a tag
        # their calls would be the one thing that is neither told nor counted.
        with self._meets:
            if self._recorder is not None or t_ns <= self.to.until_ns:
                return  # another has just met it, or failed
            if self._meeting:
                self._missed += 1  # in a signal handler that interrupted the meeting
                return
            self._meeting = True
            try:
                self._meet(t_ns)
            finally:
                self._meeting = False

    def _meet(self, t_ns: int) -> None:
        self._missed = 0
        try:
            recorder = Recorder(self._path)
        except (OSError, ValueError, AttributeError):
            self.to.until_ns = t_ns + RETRY_NS
            return
        self._recorder = recorder
        self.to.until_ns = monotonic_ns() + FIRST_CHECK_NS
        self._tell_ends(True)
        for _ in range(self._missed):
            recorder.count_dropped()


channel = Channel()


def reset() -> None:
    """What :func:`os.fork` runs in the child."""
    channel.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset)
