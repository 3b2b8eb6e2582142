# SPDX-License-Identifier: Apache-2.0
"""The outcome of a PostgreSQL query, read from what its backend has left in its send buffer.

The reference implements the backend's side of src/backend/libpq/pqcomm.c: a buffer of 8 KB that is
sent when it is full, after an error or a notice, and after ReadyForQuery. Whatever the backend
answers, the reported outcome is right or none is reported.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.wire_library import READY, Connection, Query
from qjoule.contract import QueryFlag
from qjoule.servers import registry
from tracing.postgres_client import FLUSH, SYNC, bind, execute, message, parse, query

BUFFER = 8192  #: PQ_SEND_BUFFER_SIZE
PARSED, BOUND = message("1", b""), message("2", b"")


class Backend:
    """A backend's send buffer; `connection` gets its contents whenever it is examined."""

    def __init__(self) -> None:
        self.connection = Connection(registry.kind_of("postgres"), READY)
        self._buffer = bytearray(BUFFER)
        self._used = 0

    def put(self, data: bytes) -> None:
        while data:
            if self._used == BUFFER:
                self.flush()
            part = data[: BUFFER - self._used]
            self._buffer[self._used : self._used + len(part)] = part
            self._used += len(part)
            data = data[len(part) :]

    def flush(self) -> None:
        self._used = 0

    def ready(self, state: bytes = b"I") -> None:
        self.put(message("Z", state))
        self.flush()

    def serve(self, request: bytes, *parts: bytes, state: bytes = b"I") -> None:
        """Reads a request, answers it and waits for the next one."""
        self.connection.receive(request)
        for part in parts:
            self.put(part)
            if part[:1] in b"EN":
                self.flush()
        self.ready(state)
        self.connection.reply(bytes(self._buffer))
        self.connection.wait()


def described(name: bytes = b"?column?") -> bytes:
    return message("T", struct.pack(">H", 1) + name + b"\0" + bytes(18))


def row(value: bytes) -> bytes:
    return message("D", struct.pack(">HI", 1, len(value)) + value)


def done(tag: str) -> bytes:
    return message("C", tag.encode() + b"\0")


def failure(sqlstate: str, severity: str = "ERROR") -> bytes:
    """`severity` is in the server's language; field V never is translated."""
    fields = f"S{severity}\0VERROR\0C{sqlstate}\0Mno such thing\0Fparse_relation.c\0L1384\0\0"
    return message("E", fields.encode())


def notice(kind: str = "N") -> bytes:
    return message(kind, b"SNOTICE\0VNOTICE\0C00000\0Mhi\0\0")


@dataclass
class Answer:
    """A statement's messages, and the expected outcome."""

    parts: list[bytes]
    rows: int = 0
    sqlstate: str = ""
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = sum(map(len, self.parts))


#: A value that looks like a backend's messages. In a reply whose start is gone, it may be taken for
#: messages: a client can deceive us about its own rows this way.
FORGED = b"D\0\0\0\x0aC\0\0\0\x0fSELECT 777\0Z\0\0\0\x05I"
FORGED_MOST = 100
VALUES = st.one_of(st.text(max_size=60).map(str.encode), st.just(FORGED), st.just(b"x" * 3000))


@st.composite
def selects(draw: st.DrawFn) -> Answer:
    value, count = draw(VALUES), draw(st.integers(0, 400))
    if value == FORGED:
        count = min(count, FORGED_MOST)
    rows = [row(value)] * count
    return Answer([described(), *rows, done(f"SELECT {count}")], count)


WRITES = st.builds(
    lambda verb, count: Answer([done(verb.format(count))], count),
    st.sampled_from(["INSERT 0 {}", "UPDATE {}", "DELETE {}", "COPY {}", "MERGE {}"]),
    st.integers(0, 2**40),
)
COMMANDS = st.sampled_from(["BEGIN", "CREATE TABLE", "COMMIT PREPARED", "SET"]).map(
    lambda tag: Answer([done(tag)])
)
NOTICES = st.sampled_from("NSA").map(lambda kind: Answer([notice(kind), done("DO")]))
FAILURES = st.builds(
    lambda code, rows, word: Answer(
        [described(), *[row(b"1")] * rows, failure(code, word)], 0, code
    ),
    st.sampled_from(["42P01", "23505", "P0001"]),
    st.integers(0, 3000),
    st.sampled_from(["ERROR", "FEHLER", "ОШИБКА", "错误"]),
)
ANSWERS = st.one_of(selects(), WRITES, COMMANDS, NOTICES, FAILURES)


def outcome(query: Query) -> str | None:
    if query.flags & QueryFlag.ERROR:
        return "error"
    return "ok" if query.flags & QueryFlag.OK else None


@given(st.lists(st.tuples(ANSWERS, st.booleans()), min_size=1, max_size=6))
def test_what_is_told_of_an_outcome_is_true(answers: list[tuple[Answer, bool]]) -> None:
    """For single statements, simple and extended, with older replies still in the buffer."""
    backend = Backend()
    for answer, extended in answers:
        if extended:
            request = parse(b"select a") + bind() + execute() + SYNC
            backend.serve(request, PARSED, BOUND, *answer.parts)
        else:
            backend.serve(query(b"select a"), *answer.parts)
    queries = backend.connection.close()
    assert len(queries) == len(answers)
    for query_, (answer, extended) in zip(queries, answers, strict=True):
        expected = "error" if answer.sqlstate else "ok"
        assert outcome(query_) in (expected, None)
        assert query_.rows in ((answer.rows, None) if expected == "ok" else (None,))
        assert query_.sqlstate in (answer.sqlstate, "")
        if answer.bytes + 16 * extended < BUFFER - 6:
            assert outcome(query_) == expected, "a reply that is all there is told"
            assert query_.sqlstate == answer.sqlstate
            assert expected == "error" or query_.rows == answer.rows


@given(st.integers(1, 40), st.integers(200, 3000))
def test_the_end_of_a_long_reply_is_enough(width: int, count: int) -> None:
    """The reply's rows are narrow and do not look like messages."""
    backend = Backend()
    backend.serve(query(b"select before"), described(), row(b"1"), done("SELECT 1"))
    parts = [described(), *[row(b"x" * width)] * count, done(f"SELECT {count}")]
    backend.serve(query(b"select many"), *parts)
    _, long_query = backend.connection.close()
    unsent = sum(map(len, [*parts, SYNC])) + 1
    if unsent % BUFFER > len(row(b"x" * width)) + 40 or unsent < BUFFER:
        assert (outcome(long_query), long_query.rows) == ("ok", count)
    else:  # its last message, or the one before, was cut
        assert long_query.rows in (count, None)


@given(st.lists(st.one_of(selects(), WRITES), min_size=1, max_size=8), st.booleans())
def test_a_pipeline_is_counted_whole_or_not_at_all(answers: list[Answer], flushed: bool) -> None:
    backend = Backend()
    request, parts = [], []
    for number, answer in enumerate(answers):
        request += [parse(b"select a"), bind(), execute()]
        if flushed and number == 0:
            request.append(FLUSH)
        parts += [PARSED, BOUND, *answer.parts]
    backend.serve(b"".join(request) + SYNC, *parts)
    (pipeline,) = backend.connection.close()
    assert pipeline.executions == len(answers)
    assert pipeline.rows in (sum(answer.rows for answer in answers), None)
    if flushed:
        assert (outcome(pipeline), pipeline.rows) == (None, None)


def test_data_for_a_copy_is_asked_for_above_older_replies() -> None:
    """A COPY that does not look like one: when its server waits, it has not answered."""
    backend = Backend()
    backend.serve(parse(b"select a") + bind() + execute() + SYNC, PARSED, BOUND, done("SELECT 9"))
    backend.connection.receive(query(b"/* nightly */ copy t from stdin"))
    backend.connection.reply(message("G", bytes(5)))
    backend.connection.wait()
    backend.serve(message("d", b"1\n") + message("c", b""), done("COPY 1"))
    backend.serve(query(b"select a"), done("SELECT 1"))
    queries = backend.connection.close()
    assert [outcome(query_) for query_ in queries] == ["ok", None, "ok", "ok"]
    assert [query_.rows for query_ in queries] == [9, None, 1, 1]


@given(st.binary(max_size=9000), st.sampled_from([b"select a", b"", b"copy t from stdin"]))
@example(b"E\0\0\0\x04", b"select a")
@example(b"Z\0\0\0\x05I" + b"VERROR\0C" * 1000, b"select a")
@example(b"D\0\0\0\x05" * 1638, b"select a")
@example(b"C\0\0\0\x40" + b"9" * 64, b"select a")
def test_any_buffer_is_survived(buffer: bytes, text: bytes) -> None:
    connection = Connection(registry.kind_of("postgres"), READY)
    connection.receive(query(text))
    connection.reply(buffer)
    connection.wait()
    (query_,) = connection.close() if not text.startswith(b"copy") else connection.close()[-1:]
    assert query_.executions == 1
