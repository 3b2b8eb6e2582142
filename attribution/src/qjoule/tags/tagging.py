# SPDX-License-Identifier: Apache-2.0
"""Answers a recording: which tags its queries have, and which calls went to servers without
probes.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from qjoule.lazy_import import pa
from qjoule.tags.addresses import Addresses
from qjoule.tags.calls import NEVER_NS, Array, Calls
from qjoule.tags.kept_calls import KeptCall
from qjoule.tags.listener import Listener
from qjoule.tags.listening import DEFAULT_PATH, listen_at
from qjoule.tags.owners import Owners
from qjoule.tags.reported_calls import Call, ReportedCalls
from qjoule.tags.waiting import Waiting

#: An application that found no recorder tries again after this: `RETRY_NS` of the shims.
LOOK_NS = 100_000_000
#: After this, all that an application wrote of a call's end has arrived.
SETTLED_NS = 1_000_000_000


class TagSource:
    """The applications of this host, from now until `close`."""

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
            owners: looks up the owners of connections; default: the kernel.
            addresses: of the servers whose calls are to be reported one by one.
            hidden: those of them of which only some connections are, see `reported`.
        """
        named = os.environ.get("QJOULE_TAGS_SOCKET")
        self._calls = Calls()
        where = addresses or Addresses()
        any_server = bool(where.ports or where.paths)
        self._reported = ReportedCalls(where.server_of, hidden, any_server=any_server)
        path = path or (Path(named) if named else DEFAULT_PATH)
        self._waiting = Waiting(self._calls, self._reported)
        self._listener = Listener(
            listening or listen_at(path), _Reads(self._waiting, self._reported), owners
        )
        self._listens_since_ns = time.monotonic_ns()

    @property
    def lost(self) -> int:
        """Calls that applications could not report, or that were forgotten or not believed."""
        forgotten = self._calls.dropped + self._reported.dropped
        return self._listener.lost + forgotten + self._calls.unbelievable

    @property
    def unverified(self) -> int:
        """Calls on connections that are not known to belong to the reporter."""
        return self._calls.unverified

    @property
    def applications(self) -> int:
        """Number of processes that connected."""
        return self._listener.met

    def start(self) -> None:
        """Starts taking records. Returns once every application without a recorder has tried again,
        so that all later calls are reported.
        """
        self._listener.start()
        waited_ns = time.monotonic_ns() - self._listens_since_ns
        time.sleep(max(LOOK_NS - waited_ns, 0) * 1e-9)

    def tags_of(
        self, connections: list[str | None], codes: Array, streams: Array, begins_ns: Array
    ) -> pa.MapArray:
        """Tags of queries that have ended. What their calls wrote has arrived by then."""
        self.poll()
        return self._calls.tags_of(connections, codes, streams, begins_ns)

    def calls_on(self, connections: Sequence[str | None]) -> list[bool]:
        """Whether any calls on each connection were reported. None (unknown): on any connection."""
        self._listener.poll()
        return self._calls.knows(connections)

    def reported(self, opaque: Mapping[str, int], *, everything: bool = False) -> list[Call]:
        """Calls that have ended since the last time, to servers whose queries no probe sees.

        Args:
            opaque: names (as in `tags_of`) of connections of the `hidden` servers that cannot be
                looked into, and the server of each.
            everything: also return calls that are still under way.
        """
        self.poll()
        return self._reported.collect(opaque, time.monotonic_ns(), everything=everything)

    def take_finished(self, *, everything: bool = False) -> list[KeptCall]:
        """Calls that no later query can belong to, for a recording that joins them later.

        They are forgotten here. `everything`: also those that are still under way.
        """
        self.poll()
        before_ns = NEVER_NS if everything else time.monotonic_ns() - SETTLED_NS
        return self._calls.take_finished(before_ns)

    def poll(self) -> None:
        """Takes in all that has been written by now."""
        self._waiting.hand_on()
        self._listener.poll(self._waiting.hand_on)
        self._waiting.hand_on()

    def close(self) -> None:
        """Takes no more, and notifies the applications."""
        self._listener.close()


class _Reads:
    """Queues what the reading thread hands over, but answers its questions at once."""

    def __init__(self, waiting: Waiting, reported: ReportedCalls) -> None:
        self.take, self.part = waiting.take, waiting.part
        self.wants_calls = reported.wants_calls
        self.has_room = waiting.has_room
