# SPDX-License-Identifier: Apache-2.0
"""The life of a query on its thread, from hits of probes: the part common to all servers.

A thread works for its next query from the moment it wakes up from waiting for its client, and for
that query until it sleeps again.

What a uprobe has read is in perf's `(address) name=value ... text="..."`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.api import QjouleError
from qjoule.api.servers import LANGUAGES, Lexis, fingerprint, reduce_statement
from qjoule.api.traces import (
    LOSS_COUNT,
    MAX_SHAPES,
    QUERY,
    SHAPE_OTHER,
    TEXT,
    TRACER_CPU,
    Array,
    AttachMode,
    Block,
    Command,
    Frame,
    Loss,
    QueryFlag,
)
from qjoule_studies.import_perf.cpus import Cpus
from qjoule_studies.import_perf.tasks import Imported

_NO_WAITS = (0,) * QUERY["wait_ns"].shape[0]  # perf does not record them
_PLACE = re.compile(rb"\([0-9a-f]+(?: <- [0-9a-f]+)?\) ?")
_TEXT = b'text="'
_WORD_BYTES = 8
#: The longest string that the kernel reads, including its NUL (MAX_STRING_SIZE,
#: kernel/trace/trace_probe.h). For a longer one it prints whatever lies behind the record.
STRING_BYTES = 4095


class BadArguments(QjouleError):
    """The text says what is wrong."""


@dataclass(frozen=True)
class Arguments:
    """Integers by name; the text as it was printed, None if there is none."""

    numbers: dict[str, int]
    text: bytes | None = None

    def number(self, name: str) -> int:
        """Raises `BadArguments` if the probe does not read this value."""
        try:
            return self.numbers[name]
        except KeyError:
            raise BadArguments(f"the probe does not tell '{name}'") from None

    def statement(self) -> bytes | None:
        """The text, if it is what was in memory; None: it could not be read, or is too long.

        The probe also reads the text's first word for comparison: if the string could not be read,
        perf prints whatever lies behind the record.
        """
        if self.text is None or len(self.text) > STRING_BYTES:
            return None
        word = self.number("first").to_bytes(_WORD_BYTES, "little", signed=False)
        if self.text[:_WORD_BYTES] != word.partition(b"\0")[0]:
            return None
        return self.text


def parse_arguments(payload: bytes) -> Arguments:
    """Raises `BadArguments`."""
    match = _PLACE.match(payload)
    if match is None:
        raise BadArguments("this is not what a uprobe prints")
    remaining = payload[match.end() :]
    numbers: dict[str, int] = {}
    text = None
    if remaining.startswith(_TEXT) or b" " + _TEXT in remaining:
        remaining, _, text = remaining.partition(_TEXT)
        if not text.endswith(b'"'):
            raise BadArguments("the text has no end")
        text = text[:-1]
    for word in remaining.split():
        name, _, value = word.partition(b"=")
        try:
            number = int(value, 16) if value.startswith(b"0x") else int(value)
        except ValueError:
            raise BadArguments("an argument of a uprobe is no number") from None
        if not -(1 << 63) <= number < 1 << 64:
            raise BadArguments("an argument of a uprobe is no number of 64 bits")
        numbers[name.decode("ascii", "replace")] = number
    return Arguments(numbers, text)


_REDUCED_MAX = 4 * MAX_SHAPES  #: distinct statements without literals that are remembered


class Shapes:
    """Memory is bounded: beyond `_REDUCED_MAX` distinct statements, all others share one shape."""

    def __init__(self) -> None:
        self._shape_of: dict[tuple[int, str], int] = {}
        self._sent: set[int] = set()
        self._frames: list[Frame] = []

    def shape_of(self, text: bytes, statement_bytes: int, dialect: int, server: int) -> int:
        """The shape's number; its text is sent before any query that has it."""
        # The settings of the session are not known: 0.
        is_cut = statement_bytes > len(text)
        reduced, _ = reduce_statement(text, LANGUAGES[dialect].lexis or Lexis.STANDARD, 0)
        key = dialect, reduced + ("…" if is_cut else "")
        shape_before = self._shape_of.get(key)
        if shape_before is not None:
            return shape_before
        if len(self._shape_of) >= _REDUCED_MAX:
            return SHAPE_OTHER
        shape = int(fingerprint(text, dialect, is_cut, rules=0).fingerprint, 16) or 1
        self._shape_of[key] = shape
        if shape not in self._sent:
            self._sent.add(shape)
            row = (shape, statement_bytes, len(text), server, dialect, 0, 0, (0, 0, 0))
            self._frames.append(Frame(Block.TEXT, 0, np.array([row], TEXT), text))
        return shape

    def take_frames(self) -> list[Frame]:
        """TEXT blocks since the last call."""
        frames, self._frames = self._frames, []
        return frames


@dataclass(slots=True)
class Thread:
    """A server's thread, and the query that it works for."""

    tgid: int
    server: int
    query: int = 0  #: the one that it works for, or will when it wakes up
    begin_ns: int = 0  #: 0: it waits
    session: int = 0
    shape: int = 0
    statement_bytes: int = 0
    executions: int = 0
    flags: int = 0
    command: int = Command.OTHER
    leaves: bool = False
    address: int = 0  #: of its text
    has_run: bool = False
    is_reported: bool = False


class Lives:
    """Queries by thread. `at` is always (time, CPU, thread)."""

    def __init__(self, servers: Sequence[Imported], shapes: Shapes, cpus: Cpus) -> None:
        self.servers = {server.id: server for server in servers}
        self.threads: dict[int, Thread] = {}
        self.cpus = cpus
        self._shapes = shapes
        self._last_id = 0
        self._rows: list[tuple[object, ...]] = []
        self.lost = {Loss.TEXT: 0, Loss.PREPARED: 0, Loss.QUERY: 0}
        self._lost_told = dict(self.lost)

    def take_records(self) -> Array:
        """QUERY records since the last call."""
        rows, self._rows = self._rows, []
        return np.array(rows, QUERY)

    def take_losses(self, t_ns: int) -> Array:
        """LOSS records of what has changed since the last call."""
        changed = {k: n for k, n in self.lost.items() if n != self._lost_told[k]}
        self._lost_told |= changed
        return np.array([(t_ns, n, 0, TRACER_CPU, k) for k, n in changed.items()], LOSS_COUNT)

    def reset(self, thread: Thread) -> None:
        """Begins another query: what the thread does from now on belongs to it."""
        self._last_id += 1
        thread.query = self._last_id
        thread.begin_ns = thread.shape = thread.statement_bytes = thread.executions = 0
        thread.flags = thread.address = 0
        thread.command = Command.OTHER
        thread.has_run = False

    def begin(self, thread: Thread, at: tuple[int, int, int]) -> None:
        """A query begins; `at`: time, CPU and thread."""
        t_ns, cpu, tid = at
        if thread.begin_ns:  # its end was lost
            thread.flags |= QueryFlag.NO_END
            self.add_record(thread, tid, thread.begin_ns)
            self.lost[Loss.QUERY] += 1
            self.reset(thread)
        elif not thread.query:
            self.reset(thread)
        thread.begin_ns = t_ns
        self.cpus.claim(cpu, t_ns, tid, thread.query)

    def end(self, thread: Thread, at: tuple[int, int, int]) -> None:
        """The query has ended; the thread works for it until it sleeps."""
        t_ns, _, tid = at
        if not thread.begin_ns:
            return
        self.add_record(thread, tid, t_ns)
        self.reset(thread)
        self.cpus.works_for(tid, thread.query)

    def release(self, thread: Thread, at: tuple[int, int, int]) -> None:
        """The thread works for no query."""
        t_ns, cpu, tid = at
        self.reset(thread)
        thread.query = 0
        self.cpus.claim(cpu, t_ns, tid, 0)

    def add_record(self, thread: Thread, tid: int, end_ns: int) -> None:
        """Adds the query's record."""
        self._rows.append(
            (
                *(thread.query, thread.begin_ns, end_ns, thread.session, thread.shape),
                *(tid, thread.tgid, thread.executions, thread.flags, thread.statement_bytes),
                *(thread.server, AttachMode.SYMBOL, thread.command, 0, b"", 0, 0, 0),
                _NO_WAITS,
            )
        )

    def text(self, thread: Thread, arguments: Arguments, dialect: int) -> None:
        """The query's statement, as its probe has read it."""
        text = arguments.statement()
        reported_bytes = arguments.numbers.get("bytes")
        if text is None or (reported_bytes is not None and reported_bytes > STRING_BYTES):
            thread.flags |= QueryFlag.NO_TEXT
            thread.shape = 0
            self.lost[Loss.TEXT] += 1
            return
        size = len(text) if reported_bytes is None else reported_bytes
        thread.statement_bytes = size
        thread.shape = self._shapes.shape_of(text[:size], size, dialect, thread.server)
        if size > len(text):
            thread.flags |= QueryFlag.TRUNCATED
