# SPDX-License-Identifier: Apache-2.0
"""The names of a flight recorder: a file for each segment of its ring.

So they are as bounded as the ring: when its oldest segment is written over, the names that came
with it go, except for those that later frames may still refer to.

A flight recorder may run for a year. So it forgets names that only overwritten records refer to:
sessions and shapes that are least recently used, processes that have exited, tags and texts of
single queries that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from qjoule.contract import TASK, AttachMode, QueryFlag, SessionEvent, TaskEvent
from qjoule.servers.decoding_types import Startup
from qjoule.spool.files import SEGMENTS, RingFiles, queries_in
from qjoule.spool.names import (
    CaptureEvent,
    Counted,
    NamesWriter,
    SegmentBegins,
    Spooled,
    Untraced,
    line_of,
)
from qjoule.stream.client_tags import Tagged
from qjoule.stream.names import ReportedQueryId, StatementShape
from qjoule.stream.pending import LostBefore
from qjoule.stream.session_updates import SessionUpdate
from qjoule.trace.columns import Array

#: The kernel side remembers 16,384 shapes and as many tags (bpf/core/statement.bpf.h, tags.bpf.h)
#: and sends a text again once it has forgotten it. So the kernel side has forgotten earlier what is
#: forgotten here.
MAX_SHAPES = MAX_TAGS = 65_536
MAX_SESSIONS = 32_768
MAX_THREADS = 65_536
#: Texts and tags of single queries that come within one segment of the ring.
MAX_SINGLES = 16_384
#: Ids that servers reported, per shape.
MAX_IDS = 8

K = TypeVar("K")
V = TypeVar("V")
_CHANGES = (SessionEvent.USER, SessionEvent.DATABASE, SessionEvent.SETS, SessionEvent.APPLICATION)
_BEGINS = (TaskEvent.ALIVE, TaskEvent.FORK)
Sums = Mapping[tuple[int, int], tuple[int, int]]


class LiveNameTable:
    """Keeps the names that later records may refer to; `lines` are for a reader that begins now."""

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
        """True if names may soon be forgotten, so that their use must be tracked."""
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
                _put_bounded(self._singles, (type(news), number), news, MAX_SINGLES)
            case StatementShape():
                _put_bounded(self._shapes, news.shape, news, MAX_SHAPES)
            case Tagged():
                _put_bounded(self._tags, news.number, news, MAX_TAGS)
            case ReportedQueryId():
                ids = [other for other in self._ids.pop(news.shape, []) if other != news]
                _put_bounded(self._ids, news.shape, [*ids, news][-MAX_IDS:], MAX_SHAPES)
            case SessionUpdate():
                self._add_session(news)
            case Untraced():
                for tgid in news.tgids:
                    _put_bounded(self._untraced, tgid, news.process, MAX_THREADS)
            case Counted():
                self.counted = news
            case np.ndarray():
                self._add_tasks(news)
            case _:
                pass  # nothing refers to it later

    def use(self, queries: Array) -> None:
        """Marks the names that these queries (`contract.QUERY`) refer to as recently used."""
        _mark_used(self._shapes, queries["shape"])
        _mark_used(self._tags, queries["tags"])
        _mark_used(self._sessions, queries["session"])

    def follow(self, queries: Array, databases: Mapping[int, str | None]) -> None:
        """Follows default databases: `databases` is what a shape's statement changes to.

        As `qjoule.stream.queries` does for the records that a reader still sees.
        """
        changes = np.isin(queries["shape"], np.fromiter(databases, np.uint64))
        changes &= (queries["flags"] & QueryFlag.ERROR == 0) & (
            queries["attach_mode"] == AttachMode.SOCKET
        )
        for query in queries[changes]:
            if events := self._sessions.get(int(query["session"])):
                done = int(query["flags"]) & QueryFlag.OK
                name = databases[int(query["shape"])] if done else None
                event, t_ns = SessionEvent.DATABASE, int(query["end_ns"]) + 1
                startup = Startup(database=name)
                self._add_session(replace(events[0], event=event, t_ns=t_ns, startup=startup))

    def begin_segment(self) -> None:
        """Begins the ring's next segment: queries of two segments ago have ended, or lose their
        single texts."""
        self._singles_before, self._singles = self._singles, {}

    def lines(self) -> Iterator[CaptureEvent]:
        """The names that later frames may refer to."""
        yield from self._shapes.values()
        for ids in self._ids.values():
            yield from ids
        yield from self._tags.values()
        yield from self._singles_before.values()
        yield from self._singles.values()
        for events in self._sessions.values():
            yield from events
        records = b"".join(record for of in self._threads.values() for record in of.values())
        tasks = np.frombuffer(records, TASK)
        for begin in range(0, tasks.size, 10_000):
            yield tasks[begin : begin + 10_000]
        by_process: dict[str, list[int]] = {}
        for tgid, process in self._untraced.items():
            by_process.setdefault(process, []).append(tgid)
        for process, tgids in by_process.items():
            yield Untraced(process, tuple(sorted(tgids)))

    def _add_session(self, news: SessionUpdate) -> None:
        """Keeps a session's begin and its last change of each kind; a refused change is undone."""
        events = self._sessions.pop(news.session, [])
        if news.event == SessionEvent.OPEN:
            events = []
        elif news.event == SessionEvent.KEPT:
            last = [event for event in events if event.event in _CHANGES][-1:]
            events = [event for event in events if event not in last]
        if news.event != SessionEvent.KEPT:
            events = [event for event in events if event.event != news.event]
            events.append(news)
        if events:
            _put_bounded(self._sessions, news.session, events, MAX_SESSIONS)

    def _add_tasks(self, records: Array) -> None:
        for row, (pid, tgid, event) in enumerate(records[["pid", "tgid", "event"]].tolist()):
            thread = (pid, tgid)
            if event == TaskEvent.EXIT:
                self._threads.pop(thread, None)
                if pid == tgid:
                    self._untraced.pop(tgid, None)
                continue
            by_event = {} if event in _BEGINS else self._threads.pop(thread, {})
            if event == TaskEvent.EXEC:
                by_event.pop(TaskEvent.RENAME, None)
            by_event.pop(event, None)
            by_event[event] = records[row].tobytes()
            _put_bounded(self._threads, thread, by_event, MAX_THREADS)


def _put_bounded(table: dict[K, V], key: K, value: V, most: int) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > most:
        table.pop(next(iter(table)))


def _mark_used(table: dict[int, V], numbers: Array) -> None:
    for number in np.unique(numbers).tolist():
        if (value := table.pop(number, None)) is not None:
            table[number] = value


@dataclass(frozen=True)
class Moment:
    """The point up to which the ring can be saved.

    `names`: the size of each segment's names, by number, oldest first.
    """

    segments: tuple[SegmentBegins, ...]
    names: Mapping[int, int]
    frame: int
    t_ns: int = 0  #: of the last frame; 0: not known


class RingNames(NamesWriter):
    """Writes names by segment.

    `databases`: what statements change the default database to, by shape. `turned` is called with
    the number of each segment that begins.
    """

    def __init__(
        self,
        trace: Path,
        databases: Callable[[], Mapping[int, str | None]],
        turned: Callable[[int], object] = lambda _segment: None,
    ) -> None:
        self._files = RingFiles(trace)
        self._databases = databases
        self._turned = turned
        self.needed = LiveNameTable()
        self._lost: Sums = {}
        self._lost_then: Sums = {}
        self._then_ns = 0
        self._segments: list[SegmentBegins] = []
        self._sizes: dict[int, int] = {}
        self._frame = 0
        self.t_ns = 0  #: of the frames so far
        self._segment = 1
        super().__init__(self._files.names(1).open("wb", buffering=0))

    def add(self, news: CaptureEvent) -> None:
        self.needed.learn(news)
        super().add(news)

    def moment(self) -> Moment:
        return Moment(tuple(self._segments), dict(self._sizes), self._frame, self.t_ns)

    def lost(self, sums: Sums, t_ns: int) -> None:
        """Sets the loss and the time up to the frames that the next call of `spooled` names."""
        self._lost_then, self._then_ns = sums, t_ns

    def spooled(self, frames: int, segment: int, segment_begins: int) -> None:
        """Called when all names that these frames refer to have been added. Raises `OSError`."""
        if not self._segments or segment != self._segment:
            self._begin_segment(segment, segment_begins)
        super().add(Spooled(frames))
        self.flush()
        self._sizes[self._segment] = self._file.tell()
        self._frame = frames
        self._lost, self.t_ns = self._lost_then, self._then_ns

    def _begin_segment(self, segment: int, frame: int) -> None:
        """Begins the names of a segment, whose first frames are described by what was added."""
        if not self._segments:
            self._lines.clear()  # they are in the state
        else:
            self.flush()
            self._sizes[self._segment] = self._file.tell()
            self._file.close()
            self._scan_segment(self._files.spool(self._segment))
            self.needed.begin_segment()
            self._file = self._files.names(segment).open("wb", buffering=0)
        self._segment = segment
        lost = tuple(LostBefore(*key, *sums) for key, sums in sorted(self._lost.items()))
        begins = SegmentBegins(segment, frame, self.t_ns, lost, self.needed.counted)
        self._write_state(begins)
        oldest = segment - SEGMENTS + 1
        self._segments = [other for other in self._segments if other.segment >= oldest] + [begins]
        self._sizes = {n: size for n, size in self._sizes.items() if n >= oldest}
        self._files.forget(oldest)
        self._turned(segment)

    def _write_state(self, begins: SegmentBegins) -> None:
        """Writes the file whole or not at all: a save may be made of what a crash left."""
        path = self._files.state(begins.segment)
        unfinished = path.with_name(f".{path.name}")
        with unfinished.open("wb") as file:
            file.write(line_of(begins))
            for news in self.needed.lines():
                file.write(line_of(news))
        unfinished.rename(path)

    def _scan_segment(self, spool: Path) -> None:
        """Follows the databases of a complete segment, and marks the names that it uses."""
        databases = self._databases()
        if not databases and not self.needed.crowded:
            return
        for queries in queries_in(spool):
            self.needed.use(queries[["shape", "tags", "session"]])
            if databases:
                self.needed.follow(queries, databases)
