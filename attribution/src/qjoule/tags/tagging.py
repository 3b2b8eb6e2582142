# SPDX-License-Identifier: Apache-2.0
"""Tells a recording which tags its queries have, and which calls went to servers without probes.

Records wait in a queue between the thread that reads the rings and the thread that joins them.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from qjoule.lazy_import import pa
from qjoule.tags.addresses import Addresses
from qjoule.tags.application import Application
from qjoule.tags.calls import NEVER_NS, Array, Calls
from qjoule.tags.connections import Owners
from qjoule.tags.kept_calls import KeptCall
from qjoule.tags.listener import Listener
from qjoule.tags.listening import DEFAULT_PATH, listen_at
from qjoule.tags.reported_calls import Call, ReportedCalls
from qjoule.tags.ring import SLOT_BYTES, Slots

#: Records that may wait, of all applications: 16 MiB. Beyond this they stay in their rings. When a
#: ring is full, its application counts the lost records.
MAX_RECORDS = 1 << 18
#: The share of MAX_RECORDS that one user's applications may use.
MAX_OF_USER = MAX_RECORDS // 2
#: A queue entry counts as at least this many records.
_LEAST = 64
#: Shims look for a recorder again after this time (`RETRY_NS` of the shims).
LOOK_NS = 100_000_000
#: By this time after a call, its end has been reported.
SETTLED_NS = 1_000_000_000


class Joiner(Protocol):
    """The receiver: see :class:`qjoule.tags.listener.Taker`."""

    def take(self, application: Application, records: Slots, now_ns: int) -> None: ...
    def disconnected(self, application: Application, now_ns: int) -> None: ...


class RecordQueue:
    """A queue of records between the reading and the joining thread.

    The reading thread must never wait for the joining one, even if that gets no CPU for long: a
    busy process fills its ring in about a second.
    """

    def __init__(self, *joiners: Joiner) -> None:
        self._joiners = joiners
        self._waiting: deque[tuple[Application, Slots | None, int, int]] = deque()
        self._records = 0
        self._of_user: Counter[int] = Counter()
        self._counting = threading.Lock()
        self._handing_on = threading.Lock()

    def has_room(self, application: Application) -> bool:
        """Returns true if more of this application's records should be taken."""
        return self._records < MAX_RECORDS and self._of_user[application.uid] < MAX_OF_USER

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """Queues a batch of records, whose definitions have been read."""
        self._add(application, records, now_ns, records.size)

    def disconnected(self, application: Application, now_ns: int) -> None:
        """Queues an application's end. Its definitions and its ring, which has the ends of calls
        (16 bytes each), are still needed."""
        remembered_calls = 0 if application.ring is None else application.ring.stored_ends
        weight = (16 * remembered_calls + application.definitions.bytes) // SLOT_BYTES
        self._add(application, None, now_ns, weight)

    def deliver(self) -> None:
        """Passes all queued entries to the joiners."""
        with self._handing_on:
            for _ in range(len(self._waiting)):
                application, records, now_ns, weight = self._waiting.popleft()
                with self._counting:
                    self._records -= weight
                    self._of_user[application.uid] -= weight
                    if not self._of_user[application.uid]:
                        del self._of_user[application.uid]
                for joiner in self._joiners:
                    if records is None:
                        joiner.disconnected(application, now_ns)
                    else:
                        joiner.take(application, records, now_ns)

    def _add(
        self, application: Application, records: Slots | None, now_ns: int, weight: int
    ) -> None:
        weight = max(weight, _LEAST)
        with self._counting:
            self._records += weight
            self._of_user[application.uid] += weight
        self._waiting.append((application, records, now_ns, weight))


class TagSource:
    """Tags and calls of the applications of this host, from now until `close`."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        listening: socket.socket | None = None,
        owners: Owners | None = None,
        addresses: Addresses | None = None,
        hidden: frozenset[int] = frozenset(),
    ) -> None:
        """Listens at once, while this process still has root's rights, unless given a listening
        socket.

        Raises QjouleError.

        Args:
            path: of the socket; default: `QJOULE_TAGS_SOCKET`, or below /run.
            listening: a socket that already listens, instead of one at `path`.
            owners: looks up the owners of connections; default: by netlink.
            addresses: of the servers whose calls are reported one by one.
            hidden: those of them for which only some connections count, see `reported`.
        """
        configured = os.environ.get("QJOULE_TAGS_SOCKET")
        self._calls = Calls()
        where = addresses or Addresses()
        any_server = bool(where.ports or where.paths)
        self._reported = ReportedCalls(where.server_of, hidden, any_server=any_server)
        path = path or (Path(configured) if configured else DEFAULT_PATH)
        self._waiting = RecordQueue(self._calls, self._reported)
        self._listener = Listener(
            listening or listen_at(path), _QueueingTaker(self._waiting, self._reported), owners
        )
        self._listens_since_ns = time.monotonic_ns()

    @property
    def lost(self) -> int:
        """Calls that applications could not report, or that were dropped or refused."""
        forgotten = self._calls.dropped + self._reported.dropped
        return self._listener.lost + forgotten + self._calls.unbelievable

    @property
    def unverified(self) -> int:
        """Calls on connections that may not belong to the reporter."""
        return self._calls.unverified

    @property
    def applications(self) -> int:
        """Number of processes that connected."""
        return self._listener.met

    def start(self) -> None:
        """Starts reading. Returns once all applications have had time to find this recorder, so
        that later calls are reported."""
        self._listener.start()
        waited_ns = time.monotonic_ns() - self._listens_since_ns
        time.sleep(max(LOOK_NS - waited_ns, 0) * 1e-9)

    def tags_of(
        self, connections: list[str | None], codes: Array, streams: Array, begins_ns: Array
    ) -> pa.MapArray:
        """Returns tags of queries that have ended. Their calls' reports have arrived by then."""
        self.poll()
        return self._calls.tags_of(connections, codes, streams, begins_ns)

    def calls_on(self, connections: Sequence[str | None]) -> list[bool]:
        """Returns whether calls on each connection were reported; None: on any connection."""
        self._listener.poll()
        return self._calls.calls_on(connections)

    def reported(self, opaque: Mapping[str, int], *, everything: bool = False) -> list[Call]:
        """Returns new finished calls to servers whose queries no probe sees.

        Args:
            opaque: server by name (as in `tags_of`) of connections to `hidden` servers that probes
                cannot read.
            everything: also return calls that are still under way.
        """
        self.poll()
        return self._reported.collect(opaque, time.monotonic_ns(), everything=everything)

    def take_finished(self, *, everything: bool = False) -> list[KeptCall]:
        """Removes and returns calls that no later query can belong to, for joining them later.

        `everything`: also calls that are still under way.
        """
        self.poll()
        before_ns = NEVER_NS if everything else time.monotonic_ns() - SETTLED_NS
        return self._calls.take_finished(before_ns)

    def poll(self) -> None:
        """Reads all records that have been written by now."""
        self._waiting.deliver()
        self._listener.poll(self._waiting.deliver)
        self._waiting.deliver()

    def close(self) -> None:
        """Stops reading, and notifies the applications."""
        self._listener.close()


class _QueueingTaker:
    """Queues records for later, but answers `wants_calls` and `has_room` at once."""

    def __init__(self, waiting: RecordQueue, reported: ReportedCalls) -> None:
        self.take, self.disconnected = waiting.take, waiting.disconnected
        self.wants_calls = reported.wants_calls
        self.has_room = waiting.has_room
