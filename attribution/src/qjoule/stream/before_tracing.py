# SPDX-License-Identifier: Apache-2.0
"""Asks servers (`servers.client`) for what began before tracing: names of sessions, and texts of
prepared statements.

A session whose login was not seen waits for the next question to its server, which is about all
connections. The answer names the session if it was seen before the question: only then is the
connection surely the same. Blocks are never held back: the names come in further SESSION blocks,
with the time of the event that announced the session.

Each unknown statement is asked for once. Its block, and texts that refer to it, wait for the
answer; nothing else does. Without an answer in time they are passed on unchanged.
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
    TextsById,
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
#: Stream time for which a text waits for its answer.
WAIT_NS = 5_000_000_000
#: Statements that are asked for in one stream, and sessions whose thread is remembered.
MAX_ASKED, MAX_PREPARING = 20_000, 100_000
_SESSION_BYTES = 8  #: `struct qj_unseen` begins with the session


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


@dataclass(frozen=True)
class StatementText:
    """A server's answer about a statement."""

    shape: int  #: of the placeholder
    text: bytes  #: empty: it has none; may be cut
    length: int  #: bytes of the whole statement


class Asking(Protocol):
    """Asks servers."""

    @property
    def kinds(self) -> Mapping[int, TextsById]:
        """Which texts servers can be asked for, by their numbers in the plan."""

    def ask(self, server: int, shape: int, key: bytes) -> None: ...

    def take(self, wait_s: float = 0.0) -> list[StatementText]:
        """The answers since the last call; waits for some up to this time."""


class PreparedTextStream(Stream):
    """A stream in which texts of statements replace their placeholders."""

    def __init__(self, inner: Stream, asking: Asking) -> None:
        super().__init__(-1)
        self._inner, self._asking = inner, asking
        #: By shape: the block, and when its statement was asked for.
        self._held_texts: OrderedDict[int, tuple[Frame, int]] = OrderedDict()
        self._clock_ns = 0
        self._behind: list[Frame] = []  #: texts that may refer to held ones
        self._resolved: dict[int, Frame] = {}  #: answered before; a kernel may send a text again
        self._threads: OrderedDict[int, int] = OrderedDict()  #: by session
        #: By session: shapes of statements whose session's thread is not known yet. Each CPU's ring
        #: is read to its end, so the session's event may come after the text.
        self._unasked: dict[int, list[int]] = {}
        self._questions = 0

    def __iter__(self) -> Iterator[Frame]:
        for frame in self._inner:
            self._clock_ns = max(self._clock_ns, frame.t_ns)  # not every block has a time
            if frame.kind is Block.SESSION:
                self._note(frame)
            if self._held_texts:
                yield from self._release(frame)
            passed = self._resolved_or_held(frame) if frame.kind is Block.TEXT else frame
            if passed is not None:
                yield passed
        yield from (
            *(frame for frame, _ in self._held_texts.values()),
            *self._behind,
        )  # if it was cut off
        self._end_as(self._inner)

    def _note(self, frame: Frame) -> None:
        record = frame.records[0]
        session = int(record["session"])
        self._threads.pop(session, None)
        self._threads[session] = int(record["pid"])
        if len(self._threads) > MAX_PREPARING:
            self._threads.popitem(last=False)
        for shape in self._unasked.pop(session, []):
            if (waiting := self._held_texts.get(shape)) is not None:
                self._ask(waiting[0])

    def _resolved_or_held(self, frame: Frame) -> Frame | None:
        """Returns the block to pass on for this text; None: it is held back."""
        record = frame.records[0]
        server, shape = int(record["server"]), int(record["shape"])
        kind = self._asking.kinds.get(server)
        if kind is None:
            return frame
        if self._held_texts and int(record["dialect"]) in kind.refer:
            self._behind.append(frame)
            return None
        if int(record["dialect"]) != kind.ids:
            return frame
        if shape in self._resolved or shape in self._held_texts:
            return self._resolved.get(shape)
        if self._questions >= MAX_ASKED or not self._ask(frame):
            return frame
        self._questions += 1
        self._held_texts[shape] = frame, self._clock_ns
        return None

    def _ask(self, frame: Frame) -> bool:
        """Asks now, or when the session's thread is known. False: there is nothing to ask for."""
        record = frame.records[0]
        server, shape = int(record["server"]), int(record["shape"])
        kind = self._asking.kinds[server]
        session = int.from_bytes(frame.text[:_SESSION_BYTES], "little")
        thread = self._threads.get(session, 0)
        if kind.by_thread and not thread:
            self._unasked.setdefault(session, []).append(shape)
            return True
        key = kind.key(frame.text, thread)
        if key is not None:
            self._asking.ask(server, shape, key)
        return key is not None

    def _release(self, now: Frame) -> Iterator[Frame]:
        """The blocks that have waited long enough."""
        ends = now.kind is Block.END
        while answers := self._asking.take(END_S if ends else 0.0):
            for answer in answers:
                if (waiting := self._held_texts.pop(answer.shape, None)) is not None:
                    yield self._with_text(waiting[0], answer)
            if not self._held_texts:
                break
        while self._held_texts:
            shape, (frame, asked_ns) = next(iter(self._held_texts.items()))
            if not ends and asked_ns + WAIT_NS > self._clock_ns:
                break
            del self._held_texts[shape]
            yield frame
        if not self._held_texts:
            self._unasked.clear()
            behind, self._behind = self._behind, []
            yield from behind

    def _with_text(self, frame: Frame, answer: StatementText) -> Frame:
        if answer.text:
            record = frame.records.copy()
            record["dialect"] = self._asking.kinds[int(record["server"][0])].statements
            record["statement_bytes"], record["text_bytes"] = answer.length, len(answer.text)
            frame = Frame(frame.kind, frame.t_ns, record, answer.text)
        self._resolved[answer.shape] = frame
        return frame
