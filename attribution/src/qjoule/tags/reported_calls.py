# SPDX-License-Identifier: Apache-2.0
"""Calls to servers whose queries no probe sees: only their clients report them.

Each call is reported once, after its end, with its times at the client and the server. This shows
the request and the client's waiting time, but not the energy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qjoule.tags.application import Application
from qjoule.tags.calls import PLAUSIBLE_NS, Array
from qjoule.tags.definitions import Connection, Tags
from qjoule.tags.joins import name_of
from qjoule.tags.ring import BEGIN, BEGIN_IN_TRACE, END, Slots

MAX_CALLS = 500_000
#: A call is dropped after this time if its connection was not seen at the server.
UNSEEN_NS = 5_000_000_000
#: Codes of `Call.status`: those of the protocol, and one for calls still under way.
UNKNOWN, OK, ERROR, UNFINISHED = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `end_ns` equals `begin_ns` if no end was reported."""

    server: int
    system: str  #: `db.system.name`, as the driver reports it
    begin_ns: int
    end_ns: int
    status: int
    tags: Tags  #: with `trace` and `span`, if the call is part of a trace

    @property
    def ended(self) -> bool:
        return self.end_ns > self.begin_ns


@dataclass(slots=True)
class _Begun:
    """A call that waits for its end."""

    application: int
    number: int
    connection: Connection
    server: int  #: found by address; 0 if it must be found at the server's end
    begin_ns: int
    tags: Tags
    end: int = 0  #: `t_ns` * 4 + status; 0: not known yet
    lost: bool = False  #: true if the end will never be known
    uid: int = 0  #: the user who reported the call


class ReportedCalls:
    """Reads the same records as `qjoule.tags.calls`, and stores calls to servers without probes.

    `server_of`: returns the server of a connection of this host, or 0. `probed`: servers with
    probes, of which only connections count that probes cannot read.
    """

    def __init__(
        self,
        server_of: Callable[[Connection], int],
        probed: frozenset[int] = frozenset(),
        *,
        any_server: bool = True,
    ) -> None:
        self._any = any_server
        self._server_of = server_of
        self._probed = probed
        self._lock = threading.Lock()
        self._applications: dict[int, Application] = {}
        self._wanted: set[int] = set()
        self._met: set[int] = set()  #: applications that have defined a connection
        self._begun: dict[tuple[int, int], _Begun] = {}
        self.dropped = 0  #: calls that were dropped for lack of room

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """Adds a batch of an application's records, whose definitions have been read."""
        if not application.is_here:
            return
        with self._lock:
            self._applications[application.number] = application
            for record in records[records["kind"] == END]:
                number = int(record["connection"]) << 32 | int(record["tags"])
                if begun := self._begun.get((application.number, number)):
                    begun.end = int(record["end"])
            self._add_begins(application, records, now_ns)

    def wants_calls(self, application: Application) -> bool:
        """Returns true if the application has connected to a server without probes."""
        number, fresh = application.number, application.definitions.fresh
        if fresh:
            self._met.add(number)
        if application.is_here and any(map(self._server_of, fresh)):
            self._wanted.add(number)
        fresh.clear()
        # An application may define its first connection a moment after it connects to us.
        return number in self._wanted or (self._any and number not in self._met)

    def disconnected(self, application: Application, now_ns: int) -> None:
        """Marks calls without an end as lost, because the application's ring is about to be
        released."""
        del now_ns
        with self._lock:
            self._wanted.discard(application.number)
            self._met.discard(application.number)
            if application.number in self._applications:
                self._collect_ends()
                del self._applications[application.number]
            for begun in self._begun.values():
                if begun.application == application.number and not begun.end:
                    begun.lost = True

    def collect(
        self, opaque: Mapping[str, int], now_ns: int, *, everything: bool = False
    ) -> list[Call]:
        """Removes and returns finished calls by begin; with `everything`, also those under way.

        `opaque`: servers by the names (`calls.name_of`) of connections that probes cannot read.
        """
        with self._lock:
            self._collect_ends()
            reported: list[Call] = []
            for key, begun in list(self._begun.items()):
                if not (begun.end or begun.lost or everything):
                    continue
                server = begun.server or opaque.get(name_of(begun.connection) or "", 0)
                if server:
                    reported.append(_call(begun, server))
                elif not everything and now_ns - begun.begin_ns < UNSEEN_NS:
                    continue  # the server of its connection may be found in a moment
                del self._begun[key]
        reported.sort(key=lambda call: (call.begin_ns, call.end_ns))
        return reported

    def _add_begins(self, application: Application, records: Slots, now_ns: int) -> None:
        kind = records["kind"]
        begins = records[(kind == BEGIN) | (kind == BEGIN_IN_TRACE)]
        servers = self._servers(application, begins)
        rows = np.flatnonzero(servers >= 0)
        for server, record in zip(servers[rows].tolist(), begins[rows], strict=True):
            t_ns = int(record["t_ns"])
            connection = application.definitions.connection(int(record["connection"]))
            if connection is None or abs(t_ns - now_ns) >= PLAUSIBLE_NS:
                continue  # `Calls` counts it
            if t_ns > application.ownership.until(int(record["connection"])):
                continue  # `Calls` counts it, too
            key = (application.number, int(record["number"]))
            self._begun[key] = _Begun(
                *key, connection, server, t_ns, _tags(application, record), int(record["end"])
            )
            self._begun[key].uid = application.uid
        while len(self._begun) > MAX_CALLS:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drops the older half of the calls of the user who has the most."""
        of_user: dict[int, list[tuple[int, int]]] = {}
        for key, begun in self._begun.items():
            of_user.setdefault(begun.uid, []).append(key)
        biggest = max(of_user.values(), key=len)
        for key in biggest[: (len(biggest) + 1) // 2]:
            del self._begun[key]
            self.dropped += 1

    def _servers(self, application: Application, records: Slots) -> Array:
        """Returns each record's server if that has no probes; 0: not found yet; -1: ignore."""
        numbers, places = np.unique(records["connection"], return_inverse=True)
        server_of_number = np.full(len(numbers), -1, np.int64)
        for index, number in enumerate(numbers.tolist()):
            connection = application.definitions.connection(number)
            server = self._server_of(connection) if connection is not None else 0
            if server:
                server_of_number[index] = 0 if server in self._probed else server
        servers: Array = server_of_number[places.reshape(-1)]
        return servers

    def _collect_ends(self) -> None:
        by_application: dict[int, list[_Begun]] = {}
        for begun in self._begun.values():
            if not begun.end and not begun.lost:
                by_application.setdefault(begun.application, []).append(begun)
        for number, waiting in by_application.items():
            application = self._applications.get(number)
            ring = application.ring if application is not None else None
            if ring is None:
                continue
            numbers = np.array([begun.number for begun in waiting], np.int64)
            ends, missed = ring.ends(numbers), ring.may_have_ended(numbers)
            for begun, end, lost in zip(waiting, ends.tolist(), missed.tolist(), strict=True):
                begun.end, begun.lost = end, lost and not end


def _tags(application: Application, record: Any) -> Tags:
    tags = application.definitions.tags(int(record["tags"])) or ()
    if int(record["kind"]) != BEGIN_IN_TRACE:
        return tags
    ids = (("span", bytes(record["span"]).hex()), ("trace", bytes(record["trace"]).hex()))
    return (*tags, *ids)


def _call(begun: _Begun, server: int) -> Call:
    end_ns, status = begun.end >> 2, begun.end & 3
    if not begun.begin_ns <= end_ns < begun.begin_ns + PLAUSIBLE_NS:
        end_ns, status = begun.begin_ns, UNKNOWN if begun.end or begun.lost else UNFINISHED
    elif status not in (OK, ERROR):
        status = UNKNOWN
    system = begun.connection.system
    return Call(server, system, begun.begin_ns, end_ns, status, begun.tags)
