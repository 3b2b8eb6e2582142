# SPDX-License-Identifier: Apache-2.0
"""Calls to servers whose queries no probe sees: only their clients report them.

Such a call is reported once, after its end, with its times at the client and the server that its
connection goes to. This shows what was requested and how long the client waited, but not the
energy.
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
#: A call is forgotten after this time if nothing was seen of its connection at the server.
UNSEEN_NS = 5_000_000_000
#: Codes of `Call.status`: those of the protocol, and one for calls still under way.
UNKNOWN, OK, ERROR, UNFINISHED = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `end_ns` equals `begin_ns` if no end was reported."""

    server: int
    system: str  #: `db.system.name`, as its driver reports it
    begin_ns: int
    end_ns: int
    status: int
    tags: Tags  #: with `trace` and `span`, if it is part of a trace

    @property
    def ended(self) -> bool:
        return self.end_ns > self.begin_ns


@dataclass(slots=True)
class _Begun:
    """A call that waits for its end."""

    application: int
    number: int
    connection: Connection
    server: int  #: found by its address; 0: only from what is seen of its connection
    begin_ns: int
    tags: Tags
    end: int = 0  #: `t_ns` * 4 + status; 0: not known yet
    lost: bool = False  #: its end will never be known
    uid: int = 0  #: the user who reported it


class ReportedCalls:
    """Reads the same records as `qjoule.tags.calls`, and keeps calls to servers without probes.

    `server_of`: the server that a connection of this host goes to, 0: none. `probed`: servers that
    have probes; of these only the connections that probes cannot look into are kept.
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
        self.dropped = 0  #: calls that were forgotten for lack of room

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """Takes in a batch of an application's records, whose definitions have been read."""
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
        """Whether it has had a connection to a server whose calls are reported one by one."""
        number, fresh = application.number, application.definitions.fresh
        if fresh:
            self._met.add(number)
        if application.is_here and any(map(self._server_of, fresh)):
            self._wanted.add(number)
        fresh.clear()
        # An application's first connection may be defined a moment after it connects to us.
        return number in self._wanted or (self._any and number not in self._met)

    def part(self, application: Application, now_ns: int) -> None:
        """The application's ring is about to be released: calls without an end will never get
        one.
        """
        del now_ns
        with self._lock:
            self._wanted.discard(application.number)
            self._met.discard(application.number)
            if application.number in self._applications:
                self._look_for_ends()
                del self._applications[application.number]
            for begun in self._begun.values():
                if begun.application == application.number and not begun.end:
                    begun.lost = True

    def collect(
        self, opaque: Mapping[str, int], now_ns: int, *, everything: bool = False
    ) -> list[Call]:
        """Calls that have ended since, ordered by begin; with `everything`, those under way too.

        `opaque`: servers by the names (`calls.name_of`) of connections that cannot be read.
        """
        with self._lock:
            self._look_for_ends()
            reported: list[Call] = []
            for key, begun in list(self._begun.items()):
                if not (begun.end or begun.lost or everything):
                    continue
                server = begun.server or opaque.get(name_of(begun.connection) or "", 0)
                if server:
                    reported.append(_call(begun, server))
                elif not everything and now_ns - begun.begin_ns < UNSEEN_NS:
                    continue  # its connection may be identified in a moment
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
                continue  # counted where calls are joined
            if t_ns > application.ownership.until(int(record["connection"])):
                continue  # also counted there
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
        """Each record's server if that has no probes; 0: to be found out; -1: none."""
        numbers, places = np.unique(records["connection"], return_inverse=True)
        server_of_number = np.full(len(numbers), -1, np.int64)
        for index, number in enumerate(numbers.tolist()):
            connection = application.definitions.connection(number)
            server = self._server_of(connection) if connection is not None else 0
            if server:
                server_of_number[index] = 0 if server in self._probed else server
        servers: Array = server_of_number[places.reshape(-1)]
        return servers

    def _look_for_ends(self) -> None:
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
