# SPDX-License-Identifier: Apache-2.0
"""Asks servers (`servers.client`) for texts of statements that were prepared before tracing.

Each unknown statement is asked for once. Its block, and texts that refer to it, wait for the
answer; nothing else does. Without an answer in time they are passed on unchanged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from qjoule.contract import Block
from qjoule.servers.client import (
    TextsById,
)
from qjoule.stream.before_tracing import END_S
from qjoule.stream.blocks import Frame, Stream

#: Stream time for which a text waits for its answer.
WAIT_NS = 5_000_000_000
#: Statements that are asked for in one stream, and sessions whose thread is remembered.
MAX_ASKED, MAX_PREPARING = 20_000, 100_000
_SESSION_BYTES = 8  #: `struct qj_unseen` begins with the session


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
