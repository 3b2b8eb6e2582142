# SPDX-License-Identifier: Apache-2.0
"""The names that later frames of a ring may refer to.

A flight recorder may run for a year. So it forgets names that only records refer to which it no
longer holds: sessions and shapes that are least recently used, processes that have exited, tags and
texts of single queries that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from qjoule.contract import TASK, AttachMode, QueryFlag, SessionEvent, TaskEvent
from qjoule.servers.decoding_types import Startup
from qjoule.spool.names import CaptureEvent, Counted, Untraced
from qjoule.stream.client_reports import Tagged
from qjoule.stream.names import ReportedQueryId, StatementShape
from qjoule.stream.session_updates import SessionUpdate
from qjoule.trace.columns import Array

#: The kernel side remembers 16,384 shapes and as many tags (bpf/core/statement.bpf.h, tags.bpf.h)
#: and sends a text again once it has forgotten it. So what is forgotten here, it has forgotten
#: before.
MAX_SHAPES = MAX_TAGS = 65_536
MAX_SESSIONS = 32_768
MAX_THREADS = 65_536
#: Texts and tags of single queries that come within one segment of the ring.
MAX_SINGLES = 16_384
#: Ids that servers told, per shape.
MAX_IDS = 8

K = TypeVar("K")
V = TypeVar("V")
_CHANGES = (SessionEvent.USER, SessionEvent.DATABASE, SessionEvent.SETS, SessionEvent.APPLICATION)
_BEGINS = (TaskEvent.ALIVE, TaskEvent.FORK)


class LiveNameTable:
    """Takes in what is named, in order; `lines` are what a reader must learn who begins now."""

    def __init__(self) -> None:
        self._shapes: dict[int, StatementShape] = {}
        self._ids: dict[int, list[ReportedQueryId]] = {}
        self._tags: dict[int, Tagged] = {}
        self._singles: dict[tuple[type, int], CaptureEvent] = {}
        self._singles_before: dict[tuple[type, int], CaptureEvent] = {}
        self._sessions: dict[int, list[SessionUpdate]] = {}
        self._threads: dict[tuple[int, int], dict[int, bytes]] = {}
        self._untraced: dict[int, str] = {}
        self.counted = Counted()

    @property
    def crowded(self) -> bool:
        """Whether something may soon be forgotten, so that it matters what is used."""
        return (
            2 * len(self._shapes) > MAX_SHAPES
            or 2 * len(self._tags) > MAX_TAGS
            or 2 * len(self._sessions) > MAX_SESSIONS
        )

    @property
    def shapes(self) -> list[StatementShape]:
        return list(self._shapes.values())

    def learn(self, news: CaptureEvent) -> None:
        match news:
            case StatementShape() | Tagged() if news.single:
                number = news.shape if isinstance(news, StatementShape) else news.number
                _put(self._singles, (type(news), number), news, MAX_SINGLES)
            case StatementShape():
                _put(self._shapes, news.shape, news, MAX_SHAPES)
            case Tagged():
                _put(self._tags, news.number, news, MAX_TAGS)
            case ReportedQueryId():
                known = [one for one in self._ids.pop(news.shape, []) if one != news]
                _put(self._ids, news.shape, [*known, news][-MAX_IDS:], MAX_SHAPES)
            case SessionUpdate():
                self._session(news)
            case Untraced():
                for tgid in news.tgids:
                    _put(self._untraced, tgid, news.process, MAX_THREADS)
            case Counted():
                self.counted = news
            case np.ndarray():
                self._tasks(news)
            case _:
                pass  # of one time alone

    def use(self, queries: Array) -> None:
        """The names that these queries (`contract.QUERY`) refer to are in use."""
        _use(self._shapes, queries["shape"])
        _use(self._tags, queries["tags"])
        _use(self._sessions, queries["session"])

    def follow(self, queries: Array, databases: Mapping[int, str | None]) -> None:
        """Follows default databases: `databases` is what a shape's statement changes to.

        As `qjoule.stream.queries` does for the records that a reader still sees.
        """
        changes = np.isin(queries["shape"], np.fromiter(databases, np.uint64))
        changes &= (queries["flags"] & QueryFlag.ERROR == 0) & (
            queries["attach_mode"] == AttachMode.SOCKET
        )
        for one in queries[changes]:
            if known := self._sessions.get(int(one["session"])):
                done = int(one["flags"]) & QueryFlag.OK
                name = databases[int(one["shape"])] if done else None
                event, t_ns = SessionEvent.DATABASE, int(one["end_ns"]) + 1
                startup = Startup(database=name)
                self._session(replace(known[0], event=event, t_ns=t_ns, startup=startup))

    def turn(self) -> None:
        """The ring's next segment begins: queries of two segments ago have ended, or lose their
        single texts.
        """
        self._singles_before, self._singles = self._singles, {}

    def lines(self) -> Iterator[CaptureEvent]:
        """What is needed from here on."""
        yield from self._shapes.values()
        for told in self._ids.values():
            yield from told
        yield from self._tags.values()
        yield from self._singles_before.values()
        yield from self._singles.values()
        for events in self._sessions.values():
            yield from events
        records = b"".join(one for of in self._threads.values() for one in of.values())
        tasks = np.frombuffer(records, TASK)
        for at in range(0, tasks.size, 10_000):
            yield tasks[at : at + 10_000]
        by_process: dict[str, list[int]] = {}
        for tgid, process in self._untraced.items():
            by_process.setdefault(process, []).append(tgid)
        for process, tgids in by_process.items():
            yield Untraced(process, tuple(sorted(tgids)))

    def _session(self, news: SessionUpdate) -> None:
        """Keeps how it began and the last change of each kind; a refused change is undone."""
        events = self._sessions.pop(news.session, [])
        if news.event == SessionEvent.OPEN:
            events = []
        elif news.event == SessionEvent.KEPT:
            last = [one for one in events if one.event in _CHANGES][-1:]
            events = [one for one in events if one not in last]
        if news.event != SessionEvent.KEPT:
            events = [one for one in events if one.event != news.event]
            events.append(news)
        if events:
            _put(self._sessions, news.session, events, MAX_SESSIONS)

    def _tasks(self, records: Array) -> None:
        for at, (pid, tgid, event) in enumerate(records[["pid", "tgid", "event"]].tolist()):
            thread = (pid, tgid)
            if event == TaskEvent.EXIT:
                self._threads.pop(thread, None)
                if pid == tgid:
                    self._untraced.pop(tgid, None)
                continue
            known = {} if event in _BEGINS else self._threads.pop(thread, {})
            if event == TaskEvent.EXEC:
                known.pop(TaskEvent.RENAME, None)
            known.pop(event, None)
            known[event] = records[at].tobytes()
            _put(self._threads, thread, known, MAX_THREADS)


def _put(held: dict[K, V], key: K, value: V, most: int) -> None:
    held.pop(key, None)
    held[key] = value
    if len(held) > most:
        held.pop(next(iter(held)))


def _use(held: dict[int, V], numbers: Array) -> None:
    for number in np.unique(numbers).tolist():
        if (value := held.pop(number, None)) is not None:
            held[number] = value
