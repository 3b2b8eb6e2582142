# SPDX-License-Identifier: Apache-2.0
"""Resolves the user, database and application of a query's session, and the tags its client set.

All of these may change during a session. A query gets the values that held when it ended. So a
`USE` counts as run in the database that it leaves.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from qjoule.contract import SessionEvent
from qjoule.lazy_import import LazyModule, pa
from qjoule.servers.decoding_types import Startup
from qjoule.stream.blocks import Frame
from qjoule.stream.session_updates import (
    MAX_SESSIONS,
    OpaqueConnections,
    SessionUpdate,
    read_session,
)
from qjoule.tags.definitions import Tags, tags_in_name
from qjoule.trace.columns import Array, Words, distinct, rows_of, words
from qjoule.trace.vocabulary import SESSION_EVENTS

if TYPE_CHECKING:
    from qjoule.trace import schema
else:
    schema = LazyModule("qjoule.trace.schema")

_T = TypeVar("_T")
UNKNOWN, SAME, FIRST = -1, -2, -3  #: codes: unknown, unchanged, as at the login

#: Codes of user, database, application and tags.
State = tuple[int, int, int, int]
#: Changes of one session between two batches. Beyond this number its state is unknown.
MAX_CHANGES = 100_000
MAX_NAMES = 100_000
#: A change can still be refused by the server within this time.
REFUSAL_NS = 10_000_000_000


@dataclass(slots=True)
class Session:
    user: int = UNKNOWN
    database: int = UNKNOWN
    application: int = UNKNOWN
    #: (t_ns, name), in order of time: a later connection may reuse a session's id.
    connections: list[tuple[int, str | None]] = field(default_factory=list)
    first_application: int = UNKNOWN  #: at its login
    tags: int = UNKNOWN  #: that its client set at the login
    #: (t_ns, event, new state), in order of time: later changes.
    changes: list[tuple[int, int, State]] = field(default_factory=list)

    @property
    def state(self) -> State:
        """The state before the changes."""
        return self.user, self.database, self.application, self.tags

    def states(self) -> tuple[list[int], list[State]]:
        """(times, the state from each time on). The first state has no time: it holds before."""
        states = [self.state]
        before = states[0]
        for _, event, news in self.changes:
            now = states[-1]
            if event == SessionEvent.KEPT:
                states.append(before)
                continue
            before = now
            user, database, application, tags = (
                old if new == SAME else new for new, old in zip(news, now, strict=True)
            )
            first = self.first_application
            states.append((user, database, first if application == FIRST else application, tags))
        return [change[0] for change in self.changes], states


def states_at(sessions: list[Session], before: Array, codes: Array, at_ns: Array) -> Array:
    """The state of each row's session, `sessions[code]`, at its time; `before`: before changes."""
    result: Array = before[codes]
    changing = [code for code, session in enumerate(sessions) if session.changes]
    for code, rows in rows_of(codes, changing):
        times, states = sessions[code].states()
        place = np.searchsorted(np.array(times, np.uint64), at_ns[rows], side="right")
        result[rows] = np.array(states, np.int64)[place]
    return result


class Sessions:
    """Remembers the newest and the most recently used sessions of a stream."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._changing: set[int] = set()
        self._vocabulary: list[str | None] = []
        self._codes: dict[str, int] = {}
        self._sets: list[Tags] = []
        self._set_codes: dict[Tags, int] = {}
        self._rows: list[dict[str, object]] = []
        self._opaque = OpaqueConnections()

    @property
    def opaque(self) -> dict[str, int]:
        """Connections that cannot be read, with known ends, and the server of each."""
        return self._opaque.servers

    def add(self, frame: Frame) -> bool:
        """Takes in a SESSION block. Returns false if it is invalid."""
        news = read_session(frame)
        if news is None:
            return False
        self.learn(news)
        return True

    def learn(self, news: SessionUpdate) -> None:
        """Takes in a decoded SESSION block."""
        self._opaque.learn(news)
        if news.startup is None:
            return
        whose = news.startup
        session, t_ns, event = news.session, news.t_ns, news.event
        if event == SessionEvent.OPEN:
            self._open(news, whose)
        elif event == SessionEvent.MET:
            self._add_connection(session, t_ns, news.connection)
        elif event == SessionEvent.USER:
            codes = self._code(whose.user), self._code(whose.database)
            self._change(session, t_ns, event, (*codes, SAME, self._set_code(whose.tags)))
        elif event == SessionEvent.DATABASE:
            self._change(session, t_ns, event, (SAME, self._code(whose.database), SAME, SAME))
        elif event in (SessionEvent.SETS, SessionEvent.APPLICATION):
            name = whose.application
            code = FIRST if news.resets else self._code(name) if name or not news.sets else SAME
            self._change(session, t_ns, event, (SAME, SAME, code, SAME))
        elif event == SessionEvent.KEPT:
            self._change(session, t_ns, event, (SAME, SAME, SAME, SAME))
        self._rows.append(
            {
                "session": session,
                "t_ns": t_ns,
                "event": SESSION_EVENTS[event],
                "server": news.server or None,
                "pid": news.pid,
                "tgid": news.tgid,
                "user": whose.user,
                "database": whose.database,
                "application": whose.application,
                "address": news.address,
                "connection": news.connection,
            }
        )

    def _open(self, news: SessionUpdate, whose: Startup) -> None:
        user, database = self._code(whose.user), self._code(whose.database)
        application = self._code(whose.application)
        connections = [(news.t_ns, news.connection)]
        tags = self._set_code(whose.tags)
        session = Session(user, database, application, connections, application, tags)
        # A thread moves between CPUs, and each ring is read to its end. So later events may
        # already be here.
        if earlier := self._sessions.get(news.session):
            session.changes = earlier.changes
        self._remember(news.session, session)

    def use(self, session: int, t_ns: int, database: str | None) -> None:
        """A statement changed the default database; None: to an unknown one."""
        news = (SAME, self._code(database), SAME, SAME)
        self._change(session, t_ns, SessionEvent.DATABASE, news)

    def names_of(self, sessions: Array, at_ns: Array) -> tuple[Words, Words, Words]:
        """User, database and application of each session at its time; null where unknown."""
        states, rows = self._states_of(sessions, at_ns)
        users, databases, applications = (
            words(codes, self._vocabulary, rows) for codes in states.T[:3]
        )
        return users, databases, applications

    def tags_of(
        self, sessions: Array, at_ns: Array, applications: Words
    ) -> tuple[Array, list[Tags]] | None:
        """Tags that each session's client set for all its queries: codes and tags; None: no tags.

        `applications`: the sessions' application names, which may contain tags. Code -1: no tags.
        """
        states, rows = self._states_of(sessions, at_ns)
        set_codes = states[:, 3] if rows is None else states[rows, 3]
        tags_by_name = [tags_in_name(name) for name in applications.words]
        if (set_codes < 0).all() and not any(tags_by_name):
            return None
        distinct_codes, codes = np.unique(set_codes, return_inverse=True)
        sets = [self._sets[code] if code >= 0 else () for code in distinct_codes.tolist()]
        of_names = applications.codes.astype(np.int64)
        by_name = np.where(of_names >= 0, of_names + len(sets), -1)
        return np.where(set_codes < 0, by_name, codes.reshape(-1)), sets + tags_by_name

    def connections(self, sessions: Array, at_ns: Array) -> tuple[Array, list[str | None]]:
        """Each session's connection at its time, as the client also names it: codes, names."""
        codes, uniques = distinct(sessions)
        met = (self._sessions.get(number) for number in uniques.tolist())
        connections = [session.connections if session else [] for session in met]
        connection_names = [of[0][1] if of else None for of in connections]
        several = [code for code, of in enumerate(connections) if len(of) > 1]
        then = codes.astype(np.int64)
        for code, rows in rows_of(codes, several):
            times = np.array([t_ns for t_ns, _ in connections[code][1:]], np.int64)
            then[rows] = len(connection_names) + np.searchsorted(times, at_ns[rows], side="right")
            connection_names += [name for _, name in connections[code]]
        return then, connection_names

    def settle(self, before_ns: int) -> None:
        """Forgets old states: no query that ended before `before_ns` will be looked up."""
        for number in list(self._changing):
            session = self._sessions.get(number)
            if session is None:
                self._changing.discard(number)
                continue
            times, states = session.states()
            done = bisect_right(times, before_ns)
            # Keep changes that may still be refused, and the state to which a refusal goes back.
            if done and times[done - 1] + REFUSAL_NS > before_ns:
                done -= 1
                while done and session.changes[done][1] == SessionEvent.KEPT:
                    done -= 1
            session.user, session.database, session.application, session.tags = states[done]
            del session.changes[:done]
            begun = sum(begin_ns <= before_ns for begin_ns, _ in session.connections)
            del session.connections[: max(begun - 1, 0)]
            if not session.changes and len(session.connections) < 2:
                self._changing.discard(number)

    def take_rows(self) -> pa.Table:
        """Rows of `sessions` since the last call."""
        rows, self._rows = self._rows, []
        return pa.Table.from_pylist(rows, schema.SESSIONS)

    def drop_rows(self) -> None:
        """For readers that need no table."""
        self._rows.clear()

    def _add_connection(self, number: int, t_ns: int, connection: str | None) -> None:
        session = self._recall(number)
        connections = session.connections
        if not connections or connections[-1][1] != connection:  # some events arrive more than once
            insort(connections, (t_ns, connection), key=lambda connection: connection[0])
            del connections[:-MAX_CHANGES]
        if len(connections) > 1:
            self._changing.add(number)
        self._remember(number, session)

    def _states_of(self, sessions: Array, at_ns: Array) -> tuple[Array, Array | None]:
        """`State`s (n, 4), and for each row the index of its state; None: one state per row."""
        codes, uniques = distinct(sessions)
        known_sessions = [self._recall(session) for session in uniques.tolist()]
        states = np.array([session.state for session in known_sessions], np.int64).reshape(-1, 4)
        if any(session.changes for session in known_sessions):
            return states_at(known_sessions, states, codes, at_ns), None
        return states, codes

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
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))

    def _recall(self, number: int) -> Session:
        session = self._sessions.get(number)
        if session is None:
            return Session()
        self._remember(number, session)
        return session

    def _code(self, name: str | None) -> int:
        return UNKNOWN if name is None else _number_of(name, self._codes, self._vocabulary)

    def _set_code(self, tags: Tags) -> int:
        return _number_of(tags, self._set_codes, self._sets) if tags else UNKNOWN


def _number_of(value: _T, numbers: dict[_T, int], values: list[Any]) -> int:
    """The index of a value in `values`, which gets it if there is room; else `UNKNOWN`."""
    if (number := numbers.get(value)) is None:
        if len(values) >= MAX_NAMES:
            return UNKNOWN
        number = numbers[value] = len(values)
        values.append(value)
    return number
