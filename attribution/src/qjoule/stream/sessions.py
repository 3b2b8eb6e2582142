# SPDX-License-Identifier: Apache-2.0
"""Which user, database and application a session belongs to, for the queries that run in it, and
what its client says of all of them.

A session may change all of that as it goes on, so what a query is given is what held when it
ended: a `USE` runs in the database that it leaves.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from ipaddress import IPv6Address
from typing import Any

import numpy as np
import pyarrow as pa

from qjoule.contract import SessionEvent
from qjoule.servers.decoding import decoding_of
from qjoule.servers.startup import RESET, Startup
from qjoule.stream.blocks import Frame
from qjoule.stream.session_states import FIRST, SAME, UNKNOWN, Session, State, held_then
from qjoule.tags.comments import tags_in_name
from qjoule.tags.definitions import Tags
from qjoule.trace.columns import Array, distinct, names, rows_of
from qjoule.trace.schema import SESSION_EVENTS, SESSIONS

#: Sessions remembered; applications that connect for each query must not cost memory for ever.
MAX_SESSIONS = 100_000
#: Changes of one session between two batches; what is beyond them leaves it unknown.
MAX_CHANGES = 100_000
MAX_NAMES = 100_000
#: The server has refused a change by then, or never will.
REFUSAL_NS = 10_000_000_000


class Sessions:
    """Remembers the newest and the most recently used sessions of a stream."""

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[int, Session] = {}
        self._changing: set[int] = set()
        self._vocabulary: list[str | None] = []
        self._codes: dict[str, int] = {}
        self._sets: list[Tags] = []
        self._set_codes: dict[Tags, int] = {}
        self._rows: list[dict[str, object]] = []
        #: Connections whose bytes cannot be read, if both ends are known, and their servers.
        self.opaque: dict[str, int] = {}

    def add(self, frame: Frame) -> bool:
        """Takes in a SESSION block; false if it makes no sense."""
        record = frame.records[0]
        event, t_ns, kind = int(record["event"]), int(record["t_ns"]), int(record["server_kind"])
        if not 0 < event < len(SESSION_EVENTS) or t_ns >= 1 << 63:
            return False
        session = int(record["session"])
        self._note_opaque(_connection(record), int(record["server"]), event)
        startup, decoding = Startup(), decoding_of(kind)
        if event == SessionEvent.OPEN:
            if decoding.startup is not None:
                startup = decoding.startup(frame.text)
            user, database = self._code(startup.user), self._code(startup.database)
            application = self._code(startup.application)
            connections = [(t_ns, _connection(record))]
            tags = self._set_code(startup.tags)
            met = Session(user, database, application, connections, application, tags)
            # A thread moves between CPUs, and each ring is read to its end: what came later may be
            # here already.
            if known := self._sessions.get(session):
                met.changes = known.changes
            self._remember(session, met)
        elif event == SessionEvent.MET:
            self._meet(session, t_ns, _connection(record))
        elif event == SessionEvent.USER:
            if decoding.change is not None:
                startup = decoding.change(frame.text)
            whose = self._code(startup.user), self._code(startup.database)
            self._change(session, t_ns, event, (*whose, SAME, self._set_code(startup.tags)))
        elif event == SessionEvent.DATABASE:
            startup = Startup(database=frame.text.decode("utf-8", "replace") or None)
            self._change(session, t_ns, event, (SAME, self._code(startup.database), SAME, SAME))
        elif event == SessionEvent.SETS:
            name = decoding.application_set(frame.text) if decoding.application_set else None
            code = SAME if name is None else FIRST if name is RESET else self._code(name)
            startup = Startup(application=name or None)
            self._change(session, t_ns, event, (SAME, SAME, code, SAME))
        elif event == SessionEvent.APPLICATION:
            name = decoding.application(frame.text) if decoding.application else None
            if name is None:
                return True
            startup = Startup(application=name or None)
            code = self._code(startup.application)
            self._change(session, t_ns, event, (SAME, SAME, code, SAME))
        elif event == SessionEvent.KEPT:
            self._change(session, t_ns, event, (SAME, SAME, SAME, SAME))
        self._rows.append(
            {
                "session": session,
                "t_ns": t_ns,
                "event": SESSION_EVENTS[event],
                "server": int(record["server"]) or None,
                "pid": int(record["pid"]),
                "tgid": int(record["tgid"]),
                "user": startup.user,
                "database": startup.database,
                "application": startup.application,
                "address": _address(record["address"]),
                "connection": _connection(record),
            }
        )
        return True

    def use(self, session: int, t_ns: int, database: str | None) -> None:
        """A statement has changed the default database; None: to one that is not known."""
        news = (SAME, self._code(database), SAME, SAME)
        self._change(session, t_ns, SessionEvent.DATABASE, news)

    def names_of(
        self, sessions: Array, at_ns: Array
    ) -> tuple[pa.DictionaryArray, pa.DictionaryArray, pa.DictionaryArray]:
        """User, database and application of each session at its time; null where unknown."""
        held, rows = self._held(sessions, at_ns)
        users, databases, applications, _ = held.T
        return (
            names(users, self._vocabulary, rows),
            names(databases, self._vocabulary, rows),
            names(applications, self._vocabulary, rows),
        )

    def tags_of(
        self, sessions: Array, at_ns: Array, applications: pa.DictionaryArray
    ) -> tuple[Array, list[Tags]] | None:
        """What each session's client says of all its queries: codes, and tags; None: nothing.

        `applications`: what each calls itself, which may be tags. Code -1: none of them.
        """
        held, rows = self._held(sessions, at_ns)
        given = held[:, 3] if rows is None else held[rows, 3]
        named = [tags_in_name(name) for name in applications.dictionary.to_pylist()]
        if (given < 0).all() and not any(named):
            return None
        used, codes = np.unique(given, return_inverse=True)
        sets = [self._sets[code] if code >= 0 else () for code in used.tolist()]
        of_names = applications.indices.fill_null(-1).to_numpy().astype(np.int64)
        by_name = np.where(of_names >= 0, of_names + len(sets), -1)
        return np.where(given < 0, by_name, codes.reshape(-1)), sets + named

    def connections(self, sessions: Array, at_ns: Array) -> tuple[Array, list[str | None]]:
        """What names each session's connection at its time to its client too: codes, and names."""
        codes, uniques = distinct(sessions)
        found = (self._sessions.get(number) for number in uniques.tolist())
        known = [session.connections if session else [] for session in found]
        named = [of[0][1] if of else None for of in known]
        several = [code for code, of in enumerate(known) if len(of) > 1]
        then = codes.astype(np.int64)
        for code, rows in rows_of(codes, several):
            times = np.array([t_ns for t_ns, _ in known[code][1:]], np.int64)
            then[rows] = len(named) + np.searchsorted(times, at_ns[rows], side="right")
            named += [name for _, name in known[code]]
        return then, named

    def settle(self, before_ns: int) -> None:
        """Forgets what sessions were before: no query that ended earlier will be asked for."""
        for number in list(self._changing):
            session = self._sessions.get(number)
            if session is None:
                self._changing.discard(number)
                continue
            times, states = session.states()
            done = bisect_right(times, before_ns)
            # What may yet be refused stays, and so does what a refusal speaks of.
            if done and times[done - 1] + REFUSAL_NS > before_ns:
                done -= 1
                while done and session.changes[done][1] == SessionEvent.KEPT:
                    done -= 1
            session.user, session.database, session.application, session.tags = states[done]
            del session.changes[:done]
            met = bisect_right(session.connections, before_ns, key=lambda one: one[0])
            del session.connections[: max(met - 1, 0)]
            if not session.changes and len(session.connections) < 2:
                self._changing.discard(number)

    def take_rows(self) -> pa.Table:
        """Rows of `sessions` since the last call."""
        rows, self._rows = self._rows, []
        return pa.Table.from_pylist(rows, SESSIONS)

    def _note_opaque(self, connection: str | None, server: int, event: int) -> None:
        if connection is None:
            return
        self.opaque.pop(connection, None)  # its ends may have been another's before
        if event == SessionEvent.OPAQUE:
            self.opaque[connection] = server
            if len(self.opaque) > self._max_sessions:
                self.opaque.pop(next(iter(self.opaque)))

    def _meet(self, number: int, t_ns: int, connection: str | None) -> None:
        session = self._recall(number)
        known = session.connections
        if not known or known[-1][1] != connection:  # some are told more than once
            insort(known, (t_ns, connection), key=lambda one: one[0])
            del known[:-MAX_CHANGES]
        if len(known) > 1:
            self._changing.add(number)
        self._remember(number, session)

    def _held(self, sessions: Array, at_ns: Array) -> tuple[Array, Array | None]:
        """(n, 4) of `State`, and which of them is each row's; None: each its own."""
        codes, uniques = distinct(sessions)
        found = [self._recall(session) for session in uniques.tolist()]
        held = np.array([one.state for one in found], np.int64).reshape(-1, 4)
        if any(session.changes for session in found):
            return held_then(found, held, codes, at_ns), None
        return held, codes

    def _change(self, number: int, t_ns: int, event: int, news: State) -> None:
        session = self._recall(number)
        if len(session.changes) >= MAX_CHANGES:
            news = (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
            session.changes.clear()
        insort(session.changes, (t_ns, event, news))
        self._changing.add(number)
        self._remember(number, session)

    def _remember(self, number: int, session: Session) -> None:
        self._sessions.pop(number, None)
        self._sessions[number] = session
        if len(self._sessions) > self._max_sessions:
            self._sessions.pop(next(iter(self._sessions)))

    def _recall(self, number: int) -> Session:
        session = self._sessions.get(number)
        if session is None:
            return Session()
        self._remember(number, session)
        return session

    def _code(self, name: str | None) -> int:
        if name is None:
            return UNKNOWN
        code = self._codes.get(name)
        if code is None:
            if len(self._vocabulary) >= MAX_NAMES:
                return UNKNOWN
            code = self._codes[name] = len(self._vocabulary)
            self._vocabulary.append(name)
        return code

    def _set_code(self, tags: Tags) -> int:
        if not tags:
            return UNKNOWN
        code = self._set_codes.get(tags)
        if code is None:
            if len(self._sets) >= MAX_NAMES:
                return UNKNOWN
            code = self._set_codes[tags] = len(self._sets)
            self._sets.append(tags)
        return code


def _address(octets: Array) -> str | None:
    """`192.0.2.7`, `2001:db8::1`; None for a unix socket, or where it is not known."""
    address = IPv6Address(octets.tobytes())
    if not int(address):
        return None
    return str(address.ipv4_mapped or address)


def _connection(record: Any) -> str | None:
    """Both ends of a connection, or the client's inode, as `qjoule.tags` names it."""
    if inode := int(record["client_inode"]):
        return f"unix {inode}"
    client, server = _address(record["address"]), _address(record["server_address"])
    if client is None or server is None:
        return None
    return f"{client} {int(record['port'])} > {server} {int(record['server_port'])}"
