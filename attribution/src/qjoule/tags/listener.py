# SPDX-License-Identifier: Apache-2.0
"""Accepts the applications of this host and reads their reports.

Any user's process may connect and send anything. The recorder's cost is bounded per process and per
user, so that one user's applications cannot shut out another user's.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from qjoule.tags.application import Application, accept_processes
from qjoule.tags.connection_limiter import ConnectionLimiter, limit
from qjoule.tags.connections import Owners, SocketOwners, is_same_network
from qjoule.tags.listening import remove
from qjoule.tags.ring import Slots

POLL_S = 0.02
#: CPU time between two turns for reading definitions of new connections at once: the owner can be
#: looked up only while a connection is open, and some last a millisecond.
LOOKING_S = 0.005
#: Processes accepted in one turn.
MAX_ACCEPTED = 1024
#: CPU time for one user's applications in a turn of the reading thread. Those that got none come
#: first in the next turn.
TURN_NS = 50_000_000
#: The same for a turn that must read everything. Applications that wrote more are released.
WHOLE_TURN_NS = 500_000_000


class Taker(Protocol):
    """The receiver of records."""

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """Processes a batch whose definitions have been read."""

    def wants_calls(self, application: Application) -> bool:
        """Returns true if the application should report each call, rather than only changes."""

    def has_room(self, application: Application) -> bool:
        """Returns true if the application's records should be taken now, else they stay in the
        ring."""

    def disconnected(self, application: Application, now_ns: int) -> None:
        """Called when the application has gone, before its ring is released."""


class Listener:
    """Accepts applications and polls them. Only one thread at a time calls `taker`.

    with Listener(listen_at(path), taker) as listener:
        listener.start()  # polls in another thread
        listener.poll()   # takes all that was written before this call
    """

    def __init__(
        self, listening: socket.socket, taker: Taker, owners: Owners | None = None
    ) -> None:
        """Takes over a listening socket, which another process may have made.

        Args:
            listening: of type SOCK_SEQPACKET; see `listening.listen_at`.
            taker: receives the records.
            owners: looks up the owners of connections; default: by netlink.
        """
        listening.setblocking(False)
        self._socket = listening
        self._taker = taker
        self._owners = owners or SocketOwners()
        self._lock = threading.Lock()
        self._applications = ConnectionLimiter(limit())
        self._says = select.epoll()
        self._says.register(listening, select.EPOLLIN)
        self._by_descriptor: dict[int, Application] = {}
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._says.register(self._bell, select.EPOLLIN)
        self._next = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._gone_lost = 0
        self.met = 0  #: applications so far
        self.refused = 0  #: connections and definitions that were invalid, or had no room

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def lost(self) -> int:
        """Records that applications dropped, or that were lost on the way."""
        with self._lock:
            return self._gone_lost + sum(application.lost for application in self._applications)

    def start(self) -> None:
        """Starts a polling thread. A busy program fills its ring in about a second."""
        self._thread = threading.Thread(target=self._run, name="qjoule-tags", daemon=True)
        self._thread.start()

    def poll(self, make_room: Callable[[], None] | None = None) -> None:
        """Takes all records that exist now, as far as the taker or `make_room` has room."""
        with self._lock:
            for application in self._take_turn(WHOLE_TURN_NS, make_room, to_the_end=True):
                # The records could not be read in time, so the earlier reports no longer hold.
                self.refused += 1
                self._release(application)

    def close(self) -> None:
        """Stops polling, and notifies the applications."""
        self._stopping.set()
        if self._thread is not None:
            os.eventfd_write(self._bell, 1)
            self._thread.join()
            self._thread = None
        with self._lock:
            for application in self._applications:
                self._release(application)
        self._owners.close()
        self._says.close()
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
        remove(self._socket)

    def _run(self) -> None:
        spent_s = 0.0
        while not self._stopping.is_set():
            if not self._applications:
                # A turn costs more than a query, so none is made without applications. A new one
                # ends this wait, also if `poll` accepts it in another thread.
                self._says.poll()
            before_s = time.thread_time()
            # At most half of a CPU, whatever the applications do.
            self._wait_for_turn(max(POLL_S, spent_s))
            with self._lock:
                self._applications.put_first(self._take_turn(TURN_NS, None))
            spent_s = time.thread_time() - before_s

    def _wait_for_turn(self, duration_s: float) -> None:
        """Waits for the next turn. Meanwhile accepts connections and reads definitions."""
        until_s = time.monotonic() + duration_s
        spent_s = time.thread_time() + LOOKING_S
        while not self._stopping.is_set() and (left_s := until_s - time.monotonic()) > 0:
            if time.thread_time() > spent_s:
                self._stopping.wait(left_s)
                return
            for descriptor, _ in self._says.poll(left_s):
                with self._lock:
                    self._read_definitions(descriptor)

    def _read_definitions(self, descriptor: int) -> None:
        """Reads the definitions on this connection. Records stay in the ring until the next
        turn."""
        if descriptor == self._bell:
            with suppress(BlockingIOError):
                os.eventfd_read(self._bell)
            return
        application = self._by_descriptor.get(descriptor)
        if application is None:
            self._accept()
            return
        try:
            now_ns = time.monotonic_ns()
            if self._has_greeted(application, now_ns):
                application.read_definitions(now_ns)
            if application.ended:
                self._says.unregister(descriptor)
        except Exception:  # for the same reason as in `_poll`
            self.refused += 1
            self._release(application)

    def _take_turn(
        self, user_ns: int, make_room: Callable[[], None] | None, *, to_the_end: bool = False
    ) -> list[Application]:
        """Takes records from each application. Returns those for which their user's time was too
        short.

        Applications without room for their records come first in the next turn.

        Args:
            user_ns: CPU time for all applications of one user.
            to_the_end: read all definitions of each application, not only one turn's share.
        """
        self._accept()
        now_ns = time.monotonic_ns()
        spent: Counter[int] = Counter()
        late: list[Application] = []
        full: list[Application] = []
        for application in self._applications:
            began_ns = time.thread_time_ns()
            if spent[application.uid] > user_ns:
                late.append(application)
                continue
            if not self._taker.has_room(application):
                if make_room is None:
                    full.append(application)
                    continue
                make_room()
            until_ns = began_ns + user_ns - spent[application.uid]
            self._poll(application, now_ns)
            while to_the_end and application.is_behind and time.thread_time_ns() < until_ns:
                self._poll(application, now_ns)
            spent[application.uid] += time.thread_time_ns() - began_ns
        self._applications.put_first(full)
        while biggest := self._applications.eviction_over_limit():
            self.refused += 1
            self._release(biggest)
            late = [application for application in late if application is not biggest]
        return late

    def _accept(self) -> None:
        accepted = 0
        try:
            for connected, process in accept_processes(self._socket):
                if self._applications.may_connect(process) and self._has_room(process.uid):
                    self._next += 1
                    here = is_same_network(connected, self._socket)
                    application = Application(
                        self._next, process, connected, self._owners, is_here=here
                    )
                    if not self._applications:
                        os.eventfd_write(self._bell, 1)
                    self._applications.add(application)
                    self._by_descriptor[connected.fileno()] = application
                    self._says.register(connected, select.EPOLLIN)
                else:
                    self.refused += 1
                    connected.close()
                accepted += 1
                if accepted == MAX_ACCEPTED:
                    return
        except OSError:  # no descriptor or memory now: the connection waits for the next turn
            self.refused += 1

    def _has_room(self, uid: int) -> bool:
        """Makes room for one more application of this user. Returns false if the user has
        enough."""
        try:
            evicted = self._applications.eviction_for(uid)
        except KeyError:
            return False
        if evicted is not None:
            self.refused += 1
            self._release(evicted)
        return True

    def _poll(self, application: Application, now_ns: int) -> None:
        try:
            if not self._has_greeted(application, now_ns):
                return
            batches = application.take(now_ns)
            ring = application.ring
            assert ring is not None
            ring.ask(each_call=self._taker.wants_calls(application))
            for batch in batches:
                self._taker.take(application, batch, now_ns)
            # If the application goes on after this, it connects anew and reports its state in a new
            # ring.
            is_done = bool(application.ended or ring.lost or application.definitions.is_full)
        except Exception:  # whatever it sent must not stop the recorder or the other applications
            self.refused += 1
            is_done = True
        if is_done:
            self._release(application)

    def _has_greeted(self, application: Application, now_ns: int) -> bool:
        """Returns true if the application has sent its ring. Raises NotARing, OSError."""
        if application.ring is None:
            if not application.greet(now_ns):
                return False
            self._applications.greeted(application)
            self.met += 1
        return True

    def _release(self, application: Application) -> None:
        self._gone_lost += application.lost
        self.refused += application.definitions.refused
        self._applications.remove(application)
        del self._by_descriptor[application.descriptor]
        # Read the clock again: the application may have made calls since this turn began.
        self._taker.disconnected(application, time.monotonic_ns())
        application.close()
