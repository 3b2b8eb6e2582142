# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL's wire format in any pieces: each execution is counted, and no text is wrong.

The reference is a Python parser of whole messages. The kernel side, given the same bytes in pieces,
must report the same or report that it cannot.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.wire_library import READY, STARTUP, UNKNOWN, Connection, Query, split
from qjoule.contract import Loss, QueryFlag
from qjoule.servers import registry
from tracing.postgres_client import FLUSH, SYNC, bind, execute, message, parse, query

BUFFER = 8192  #: PQ_RECV_BUFFER_SIZE
NAMES = st.sampled_from([b"", b"a", b"b", b"n" * 40])
#: Distinct shapes: a kernel side that mixes them up reports the wrong one. Some end where the bytes
#: end that are read at once.
LONG = [b"x" * size for size in (62, 63, 64, 65, 4096, 4097)]
TEXTS = st.sampled_from([b"select a", b"select b", b"insert into t values (1)", *LONG, b""])
PORTALS = st.sampled_from([b"", b"p", b"q"])


def describe() -> bytes:
    return message("D", b"P\0")


def forged_data(size: int) -> bytes:
    """Rows that look like statements: a parser in step is not misled."""
    return message("d", b"Q\0\0\0\x10select wrong\0"[: size % 18] * (size // 18 + 1))


def plain_data(size: int) -> bytes:
    return message("d", (b"1,row\n" * (size // 6 + 1))[:size])


#: A request ends with a Sync, or is a simple Query.
_PARTS = st.one_of(
    st.builds(lambda name, text: [parse(text, name), bind(name), execute()], NAMES, TEXTS),
    st.builds(lambda name: [bind(name), execute()], NAMES),
    st.builds(lambda name, portal: [bind(name, portal), describe()], NAMES, PORTALS),
    st.builds(lambda portal: [execute(5, portal)], PORTALS),
    st.builds(lambda text: [parse(text)], TEXTS),
    st.just([FLUSH]),
)


def _requests(copy_data: Callable[[int], bytes]) -> st.SearchStrategy[list[bytes]]:
    copy, end = query(b"copy t from stdin"), message("c", b"")
    return st.one_of(
        st.builds(lambda text: [query(text)], TEXTS),
        st.builds(
            lambda parts: [*chain.from_iterable(parts), SYNC],
            st.lists(_PARTS, min_size=1, max_size=5),
        ),
        st.builds(
            lambda sizes: [copy, *map(copy_data, sizes), end],
            st.lists(st.integers(1, 9000), max_size=3),
        ),
    )


REQUESTS = _requests(forged_data)
SIZES = st.lists(st.one_of(st.integers(1, 12), st.integers(1, BUFFER)), min_size=1, max_size=8)


def executed(messages: Sequence[bytes]) -> Counter[bytes]:
    """How often each text was executed, by the rules of the protocol: a portal once."""
    counts: Counter[bytes] = Counter()
    prepared: dict[bytes, bytes] = {}
    bound: dict[bytes, bytes] = {}
    for request in messages:
        kind, body = request[:1], request[5:]
        if kind == b"Q":
            counts[body[:-1]] += 1
            bound.pop(b"", None)
        elif kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            prepared[name] = text
        elif kind == b"B":
            portal, name, _ = body.split(b"\0", 2)
            bound[portal] = prepared.get(name, b"?")
        elif kind == b"E" and body[:-5] in bound:
            counts[bound.pop(body[:-5])] += 1
    return counts


def executions_by_text(queries: Sequence[Query]) -> Counter[bytes]:
    """Executions by the text claimed for them; `?` means none."""
    counts: Counter[bytes] = Counter()
    for query_ in queries:
        if query_.executions:
            counts[b"?" if query_.text is None else query_.text] += query_.executions
    return counts


def run(pieces: Sequence[bytes], phase: int = READY) -> tuple[list[Query], dict[Loss, int]]:
    connection = Connection(registry.kind_of("postgres"), phase)
    for piece in pieces:
        connection.receive(piece)
        connection.wait()
    return connection.close(), connection.loss


def by_start(counts: Counter[bytes]) -> Counter[bytes]:
    """Texts are recorded up to 4,096 bytes."""
    return Counter(text[:4096] for text in counts.elements())


@given(st.lists(REQUESTS, min_size=1, max_size=6), SIZES)
@example([[parse(b"select a"), bind(), execute(), SYNC]], [1])
@example([[parse(b"select a"), bind(), execute(), SYNC]], [5])
@example([[query(b"select a")], [query(b"select b")]], [1])
@example([[query(b"select a")], [parse(b"select a"), bind(), execute(), SYNC]], [1, 35])
def test_pieces_lose_no_execution_and_claim_no_wrong_text(
    requests: list[list[bytes]], sizes: list[int]
) -> None:
    messages = list(chain(*requests))
    truth = by_start(executed(messages))
    for lengths in (sizes, [1], [BUFFER]):
        queries, loss = run(split(b"".join(messages), lengths, BUFFER))
        counted = executions_by_text(queries)
        assert counted.total() == truth.total()
        assert all(counted[text] <= truth[text] for text in counted if text != b"?")
        assert loss == {}
    # A quiet connection is joined at once: its next request arrives whole, with its statement.
    arriving_at_once = [
        request
        for request in requests
        if request[0][:1] in b"QP" and sum(map(len, request)) < BUFFER
    ]
    queries, loss = run([b"".join(request) for request in arriving_at_once], UNKNOWN)
    assert executions_by_text(queries).total() == executed(list(chain(*arriving_at_once))).total()
    assert Loss.FRAMING not in loss


@given(st.lists(st.tuples(TEXTS, NAMES, st.booleans()), min_size=1, max_size=4), SIZES)
@example([(b"x" * 4097, b"n" * 40, True), (b"x" * 4096, b"", False)], [1448, 3])
@example([(b"select a /*k='v'*/", b"", True), (b"select b /*k='v'*/", b"n", False)], [9])
def test_no_text_is_lost_in_pieces(
    statements: list[tuple[bytes, bytes, bool]], sizes: list[int]
) -> None:
    for text, name, is_simple in statements:
        request = query(text) if is_simple else parse(text, name) + bind(name) + execute() + SYNC
        for lengths in (sizes, [1], [BUFFER]):
            (only,), loss = run(split(request, lengths, BUFFER))
            assert only.tags == (b"k='v'" if b"/*" in text else None)
            assert (only.text, only.executions, loss) == (text[:4096], 1, {})
            assert bool(only.flags & QueryFlag.TRUNCATED) == (len(text) > 4096)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=30),
            st.integers(0, 40),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    SIZES,
)
@example([([b"a", b"b", b"b"], 0, False)], [BUFFER])
@example([([b"a"], 0, False), ([b"a", b"a"], 0, False)], [113])
def test_what_is_skipped_after_an_error_is_not_counted(
    pipelines: list[tuple[list[bytes], int, bool]], sizes: list[int]
) -> None:
    """In each pipeline that is long enough, one execution fails: at its Bind, or when it runs."""
    data = b"".join(parse(b"select " + name, name) for name in (b"a", b"b")) + SYNC
    ends, ran = [], []
    for names, fails, at_bind in pipelines:
        for number, name in enumerate(names):
            parts = bind(name), execute()
            if number == fails:
                ends.append(len(data) + sum(map(len, parts[: 1 if at_bind else 2])))
            data += b"".join(parts)
        data += SYNC
        ran.append(names[: fails + 1])
    connection, read = Connection(registry.kind_of("postgres"), READY), 0
    for piece in split(data, sizes, BUFFER):
        connection.receive(piece)
        for end in ends:
            if read < end <= read + len(piece):
                connection.failed(read + len(piece) - end)
        read += len(piece)
        connection.wait()
    counted, truth = (
        executions_by_text(connection.close()),
        Counter(b"select " + n for n in chain(*ran)),
    )
    assert counted.total() == truth.total()
    assert all(counted[text] <= truth[text] for text in counted if text != b"?")
    if len(pipelines) == 1 and len(truth) == 1:
        assert counted == truth


@given(st.lists(_requests(plain_data), min_size=2, max_size=6), st.integers(1, 400), SIZES)
def test_a_connection_met_in_the_middle(
    requests: list[list[bytes]], missing: int, sizes: list[int]
) -> None:
    """What is reported of the rest is true. Unseen executions are counted as lost, or ended before.

    Not tested: a client that forges messages in its data and cuts them exactly there deceives us
    only about itself.
    """
    messages = [message_ for request in requests for message_ in request]
    data = b"".join(messages)
    queries, _ = run(split(data[missing:], sizes, BUFFER), UNKNOWN)
    truth, counted = by_start(executed(messages)), executions_by_text(queries)
    assert counted.total() <= truth.total()
    assert all(counted[text] <= truth[text] for text in counted if text != b"?")


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=12), st.sampled_from([0, 1, 2]))
@example([struct.pack(">IIII", 16, 80877102, 1234, 5678)], STARTUP)  # CancelRequest
@example([b"P", struct.pack(">I", 4)], READY)  # a Parse without its texts
def test_any_bytes_are_survived(pieces: list[bytes], phase: int) -> None:
    for query_ in run(pieces, phase)[0]:
        assert not query_.flags & 0xFFFF & ~sum(QueryFlag)  # above: the server's own


def startup(**parameters: str) -> bytes:
    body = struct.pack(">I", 3 << 16)
    for name, value in parameters.items():
        body += name.encode() + b"\0" + value.encode() + b"\0"
    return struct.pack(">I", len(body) + 5) + body + b"\0"


SSL_REQUEST = struct.pack(">II", 8, 80877103)
GSS_REQUEST = struct.pack(">II", 8, 80877104)


@given(st.lists(st.sampled_from([SSL_REQUEST, GSS_REQUEST]), max_size=3), SIZES)
@example([SSL_REQUEST], [1])
def test_a_connection_from_its_first_byte(before: list[bytes], sizes: list[int]) -> None:
    """Refused requests for encryption, the login with its password, and statements."""
    login = [startup(user="u", database="d"), message("p", b"secret\0")]
    pieces = [p for sent in [*before, *login] for p in split(sent, sizes, BUFFER)]
    connection = Connection(registry.kind_of("postgres"), STARTUP)
    for piece in [*pieces, query(b"select a"), query(b"select b")]:
        connection.receive(piece)
        connection.wait()
    queries = connection.close()
    assert [query_.command for query_ in queries] == [4, 1, 1]
    assert executions_by_text(queries) == {b"select a": 1, b"select b": 1}
    events, told_bytes = connection.sessions
    assert events == 1
    assert told_bytes <= len(login[0])
    assert connection.loss == {}


def test_encryption_is_counted_and_not_read() -> None:
    for request, hidden in (
        (SSL_REQUEST, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(300)),
        (GSS_REQUEST, struct.pack(">I", 16000) + b"\x60" * 8000),
    ):
        connection = Connection(registry.kind_of("postgres"), STARTUP)
        for piece in (request, hidden, query(b"select a")):
            connection.receive(piece)
            connection.wait()
        assert connection.close() == []
        assert connection.loss == {Loss.OPAQUE_SESSION: 1}


def test_rows_fetched_in_later_requests_are_their_statements() -> None:
    opened = parse(b"select many") + bind(portal=b"p") + execute(5, b"p") + SYNC
    queries, _ = run([opened, query(b"select other"), *[execute(5, b"p") + SYNC] * 3])
    assert executions_by_text(queries) == {b"select many": 1, b"select other": 1}
    assert [query_.text for query_ in queries] == [b"select many", b"select other"] + [
        b"select many"
    ] * 3
    queries, _ = run([execute(5, b"never seen") + SYNC])
    assert [(q.text, q.executions) for q in queries] == [(None, 0)]
    for name in (b"", b"known before"):
        (unknown,), _ = run([bind(name) + execute() + SYNC])
        assert (unknown.text, unknown.executions) == (None, 1)
        assert unknown.flags & QueryFlag.NO_TEXT


def test_a_worker_that_reads_from_another_server_has_no_queries() -> None:
    upstream = message("R", bytes(4)) + message("Z", b"I") + message("D", b"\0\1")
    for phase in (STARTUP, UNKNOWN):
        queries, loss = run([b"N", upstream, message("d", b"w" * 500)][phase == UNKNOWN :], phase)
        assert queries == []
        assert loss == {}
