# SPDX-License-Identifier: Apache-2.0
"""Asks servers (`servers.client`) for names of sessions that began before tracing.

A session whose login was not seen waits for the next question to its server, which is about all
connections. The answer names the session if it was seen before the question: only then is the
connection surely the same. Blocks are never held back: the names come in further SESSION blocks,
with the time of the event that announced the session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from qjoule.contract import Block, SessionEvent, TaskEvent
from qjoule.servers.client import (
    NamedConnection,
    NamesBefore,
    by_address,
    by_name,
    by_thread,
)
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.session_updates import address_of

#: Stream time between questions to one server. After `OFTEN` of them it doubles each time. It is
#: short because a query whose batch is closed before the answer comes has no name.
PAUSE_NS, OFTEN = 50_000_000, 100
#: Seconds for which the stream's end waits for answers.
END_S = 2.0
#: Sessions remembered, and sessions of one server that wait to be named.
MAX_SESSIONS, MAX_WAITING = 100_000, 10_000


class Names(NamedTuple):
    """A server's answer about its connections."""

    server: int
    connections: tuple[NamedConnection, ...]


class AskingNames(Protocol):
    """Asks servers."""

    @property
    def named(self) -> Mapping[int, NamesBefore]:
        """How servers can be asked, by their numbers in the plan."""

    def ask_names(self, server: int) -> None: ...

    def take_names(self, wait_s: float = 0.0) -> list[Names]:
        """The answers since the last call; waits for some up to this time."""


@dataclass
class _Waiting:
    """Sessions of one server without names."""

    frames: dict[str, Frame] = field(default_factory=dict)  #: by the connection's key
    asked_ns: int = 0  #: when the open question was asked; 0: none is open
    next_ns: int = 0
    attempts: int = 0

    def ask(self, now_ns: int) -> None:
        self.attempts += 1
        self.asked_ns = now_ns
        self.next_ns = now_ns + (PAUSE_NS << max(self.attempts - OFTEN, 0))


class NamedStream(Stream):
    """A stream with further SESSION blocks, which name sessions."""

    def __init__(self, inner: Stream, asking: AskingNames) -> None:
        super().__init__(-1)
        self._inner, self._asking = inner, asking
        self._waiting = {server: _Waiting() for server in asking.named}
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._threads: OrderedDict[int, str] = OrderedDict()  #: names, of servers `by_name`
        self._clock_ns = 0

    def __iter__(self) -> Iterator[Frame]:
        for frame in self._inner:
            self._clock_ns = max(self._clock_ns, frame.t_ns)  # not every block has a time
            if frame.kind is Block.SESSION:
                self._note(frame)
            elif frame.kind is Block.TASK:
                self._note_threads(frame)
            if frame.kind is Block.END:
                yield from self._ask_last_time()
            yield frame
            if any(waiting.frames or waiting.asked_ns for waiting in self._waiting.values()):
                self._ask()
                yield from self._name_sessions(self._asking.take_names())
        self._end_as(self._inner)

    def _note(self, frame: Frame) -> None:
        record = frame.records[0]
        session = int(record["session"])
        waiting = self._waiting.get(int(record["server"]))
        if waiting is None:
            return
        key = self._key(frame)
        opens = record["event"] == SessionEvent.OPEN
        is_known = session in self._seen and not opens
        self._seen[session] = None
        if len(self._seen) > MAX_SESSIONS:
            self._seen.popitem(last=False)
        if opens and key is not None:  # another connection with this key, whose login was seen
            waiting.frames.pop(key, None)
        elif not is_known and key is not None and len(waiting.frames) < MAX_WAITING:
            waiting.frames[key] = frame

    def _note_threads(self, frame: Frame) -> None:
        for task in frame.records:
            kind = self._asking.named.get(int(task["server"]))
            if kind is None or not kind.by_name:
                continue
            pid = int(task["pid"])
            self._threads.pop(pid, None)
            if task["event"] != TaskEvent.EXIT:
                self._threads[pid] = bytes(task["comm"]).decode("utf-8", "replace")
                if len(self._threads) > MAX_SESSIONS:
                    self._threads.popitem(last=False)

    def _key(self, frame: Frame) -> str | None:
        record = frame.records[0]
        kind = self._asking.named[int(record["server"])]
        pid, port = int(record["pid"]), int(record["port"])
        if kind.by_thread:
            return by_thread(pid, port)
        if address := address_of(record["address"]):
            return by_address(address, port)
        thread = self._threads.get(pid) if kind.by_name else None
        return None if thread is None else by_name(thread)

    def _ask(self, *, last: bool = False) -> None:
        for server, waiting in self._waiting.items():
            due = last or self._clock_ns >= waiting.next_ns
            if waiting.frames and not waiting.asked_ns and due:
                self._asking.ask_names(server)
                waiting.ask(self._clock_ns)

    def _ask_last_time(self) -> Iterator[Frame]:
        """Waits for the open answers, then asks once more for the sessions that are left."""
        for _ in range(2):
            self._ask(last=True)
            while any(waiting.asked_ns for waiting in self._waiting.values()):
                answers = self._asking.take_names(END_S)
                if not answers:
                    return
                yield from self._name_sessions(answers)

    def _name_sessions(self, answers: list[Names]) -> Iterator[Frame]:
        for answer in answers:
            waiting = self._waiting[answer.server]
            for connection in answer.connections:
                frame = waiting.frames.get(connection.key)
                if frame is not None and frame.t_ns <= waiting.asked_ns:
                    yield from _frames(frame, connection)
            rest = waiting.frames.items()
            waiting.frames = {key: frame for key, frame in rest if frame.t_ns > waiting.asked_ns}
            waiting.asked_ns = 0


def _frames(frame: Frame, connection: NamedConnection) -> Iterator[Frame]:
    for event, name in (
        (SessionEvent.USER, connection.user),
        (SessionEvent.APPLICATION, connection.application),
    ):
        if name:
            text = name.encode("utf-8", "replace")
            record = frame.records.copy()
            record["event"], record["text_bytes"] = event, len(text)
            yield Frame(Block.SESSION, frame.t_ns, record, text)
