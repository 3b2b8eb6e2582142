# SPDX-License-Identifier: Apache-2.0
"""Laws of CQL's wire format: compression, segments and read sizes do not change the requests
found. Also: tags in custom payloads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import lz4.block
import pytest
import snappy
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.cql_library import (
    BATCH,
    EXECUTE,
    PAYLOAD,
    PREPARE,
    QUERY,
    TRACING,
    compressed,
    entry,
    envelope,
    inflated,
    long_string,
    payload,
    requests_of,
    segments,
    startup,
)
from qjoule.servers.cassandra.wire import tags_in_payload

Request = tuple[int, bytes]
_TEXTS = st.one_of(
    st.sampled_from(
        [
            b"SELECT note FROM shop.orders WHERE id = 42",
            b"INSERT INTO shop.orders (id, note) VALUES (1, 'secret secret secret secret')",
            b"SELECT " + b"column, " * 600 + b"id FROM t",
            b"",
        ]
    ),
    st.binary(max_size=60),
)
_VALUES = st.sampled_from([b"", b"x" * 5000, bytes(range(256)) * 20])


def query(text: bytes, values: bytes) -> Request:
    return QUERY, long_string(text) + b"\0\1\0" + values


def prepare(text: bytes) -> Request:
    return PREPARE, long_string(text) + b"\0\0\0\0"


def execute(number: int, values: bytes) -> Request:
    return EXECUTE, b"\0\x10" + bytes([number]) * 16 + b"\0\1\0" + values


def batch(texts: list[bytes], values: bytes) -> Request:
    body = b"\0" + struct.pack(">H", len(texts))
    for text in texts:
        body += b"\0" + long_string(text) + b"\0\1" + long_string(values)
    return BATCH, body + b"\0\1\0"


REQUESTS = st.lists(
    st.one_of(
        st.builds(query, _TEXTS, _VALUES),
        st.builds(prepare, _TEXTS),
        st.builds(execute, st.integers(1, 9), _VALUES),
        st.builds(batch, st.lists(_TEXTS, max_size=4), _VALUES),
    ),
    min_size=1,
    max_size=12,
)
STEPS = st.sampled_from([0, 1, 7, 100, 1448, 4096, 65536])


def plain(version: int, requests: list[Request]) -> bytes:
    return startup(version) + b"".join(envelope(version, *request) for request in requests)


@given(requests=REQUESTS, step=STEPS, compression=st.sampled_from(["lz4", "snappy"]))
def test_compressed_bodies_tell_the_same(
    requests: list[Request], step: int, compression: str
) -> None:
    packed = [compressed(4, *request, compression) for request in requests]
    sent = startup(4, compression) + b"".join(packed)
    assert requests_of(sent, step) == requests_of(plain(4, requests)) is not None
    # On a connection that was open before, the format shows by itself.
    assert requests_of(b"".join(packed)) == requests_of(plain(4, requests))


@given(
    requests=REQUESTS,
    step=STEPS,
    together=st.integers(1, 5),
    with_lz4=st.booleans(),
)
@example([query(b"SELECT a FROM t", b"z" * 300_000), execute(1, b"")], 0, 1, True)
@example([query(b"SELECT a FROM t", b"z" * 300_000), execute(1, b"")], 1448, 1, True)
@example([execute(1, b"z" * 9000), execute(2, b""), query(b"SELECT 1", b"")] * 20, 0, 60, True)
def test_segments_tell_the_same(
    requests: list[Request], step: int, together: int, with_lz4: bool
) -> None:
    envelopes = [envelope(5, *request) for request in requests]
    sent = startup(5, "lz4" if with_lz4 else "")
    sent += segments(envelopes, together=together, with_lz4=with_lz4)
    # Bodies of protocols 5 and 4 differ; here both have the additional fields of a PREPARE.
    assert requests_of(sent, step) == requests_of(plain(4, requests)) is not None


@given(noise=st.binary(min_size=1, max_size=3000), step=st.sampled_from([0, 13]))
@example(noise=b"\0\0\1\0garbage", step=0)
def test_a_damaged_compressed_request_is_counted(noise: bytes, step: int) -> None:
    for compression in ("lz4", "snappy"):
        read = requests_of(startup(4, compression) + envelope(4, QUERY, noise, flags=1), step)
        assert read is not None
        assert len(read[0]) == 1


@given(text=st.binary(max_size=5000), repeat=st.integers(1, 40), limit=st.integers(1, 130_000))
def test_inflated_as_the_libraries_do(text: bytes, repeat: int, limit: int) -> None:
    original = text * repeat
    packed = lz4.block.compress(original, store_size=False)
    if len(packed) <= 1 << 16:
        assert inflated(packed, limit, is_snappy=False) == original[:limit]
    packed = snappy.compress(original)
    if len(packed) <= 1 << 16:
        assert inflated(packed, limit, is_snappy=True) == original[:limit]


# ---- tags in CQL's custom payloads: each request has exactly its own tags, or none ---------------
#
# This holds however the request is sent and read, and whatever others put into the payload.

MOST = 480  #: bytes of tags (TAGS_BYTES of bpf/core/server_state.h)
Entry = tuple[bytes, bytes | None]
TaggedRequest = tuple[int, bytes, list[Entry] | None]  #: opcode, body, payload

_OWN = st.tuples(
    st.sampled_from([b"qjoule.a", b"qjoule.endpoint", b"qjoule." + b"k" * 64]),
    st.one_of(st.none(), st.binary(max_size=40), st.integers(400, 600).map(lambda n: b"v" * n)),
)
_OTHERS = st.tuples(
    st.one_of(
        st.sampled_from([b"", b"q", b"qjoule", b"qjoule.", b"Qjoule.a", b"xqjoule.a", b"k" * 700]),
        st.binary(max_size=20).filter(lambda key: not key.startswith(b"qjoule.")),
    ),
    st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"v" * 900, b"qjoule.a" * 9])),
)
PAYLOADS = st.one_of(st.none(), st.lists(st.one_of(_OWN, _OTHERS), max_size=8))
TAGGED_REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                (QUERY, long_string(b"SELECT note FROM shop.orders WHERE id = 42") + b"\0\1\0"),
                (QUERY, long_string(b"SELECT a FROM t") + b"\0\1\0" + b"value" * 900),
                (PREPARE, long_string(b"SELECT b FROM t")),
                (EXECUTE, b"\0\x10" + b"i" * 16 + b"\0\1\0"),
                (BATCH, b"\0\0\1\0" + long_string(b"DELETE FROM t") + b"\0\1\0\0\0\1v\0\1\0"),
            ]
        ),
        PAYLOADS,
    ).map(lambda pair: (*pair[0], pair[1])),
    min_size=1,
    max_size=6,
)
TAGGED_STEPS = st.sampled_from([0, 1, 2, 7, 100, 1448])
TAGGED: list[Entry] = [(b"qjoule.a", b"x"), (b"theirs", b"y"), (b"qjoule.b", b"")]
SELECT = long_string(b"SELECT a FROM t") + b"\0\1\0"


def kept_entries(entries: Sequence[Entry] | None) -> bytes:
    """The reference: what is kept of a payload."""
    mine = [
        entry(*payload_entry)
        for payload_entry in entries or ()
        if payload_entry[0][:7] == b"qjoule." and len(payload_entry[0]) > 7
    ]
    return b"".join(mine) if sum(map(len, mine)) <= MOST else b""


def _sent(request: TaggedRequest) -> tuple[int, bytes, int]:
    """Opcode, body, flags."""
    opcode, body, entries = request
    return (opcode, body, 0) if entries is None else (opcode, payload(entries) + body, PAYLOAD)


def _same(connection: bytes, requests: list[TaggedRequest], step: int) -> None:
    """Asserts the same shapes as without a payload, and each request's tags."""
    bare = b"".join(envelope(4, opcode, body) for opcode, body, _ in requests)
    expected, with_payloads = requests_of(startup(4) + bare), requests_of(connection, step)
    assert expected is not None and with_payloads is not None
    tagged = [
        request._replace(tags=kept_entries(of))
        for request, (_, _, of) in zip(expected[0], requests, strict=True)
    ]
    assert with_payloads == (tagged, 0)


@given(TAGGED_REQUESTS, TAGGED_STEPS)
@example([(QUERY, SELECT, TAGGED), (QUERY, SELECT, None), (QUERY, SELECT, [])], 1)
def test_plain_and_compressed_bodies(requests: list[TaggedRequest], step: int) -> None:
    """The TRACING flag adds to the response; a request has nothing extra before its body."""
    sent = [_sent(request) for request in requests]
    plain = b"".join(
        envelope(4, opcode, body, flags | (TRACING if number % 2 else 0))
        for number, (opcode, body, flags) in enumerate(sent)
    )
    _same(startup(4) + plain, requests, step)
    _same(plain, requests, step)  # joined later
    for how in ("lz4", "snappy"):
        packed = (compressed(4, opcode, body, how, flags) for opcode, body, flags in sent)
        _same(startup(4, how) + b"".join(packed), requests, step)


@given(TAGGED_REQUESTS, TAGGED_STEPS, st.integers(1, 5), st.booleans())
@example([(QUERY, SELECT, [(b"theirs", b"z" * 300_000), *TAGGED])] * 2, 0, 1, False)
@example([(QUERY, SELECT, [(b"theirs", b"z" * 131_030), *TAGGED])] * 2, 1448, 1, False)
def test_segments(requests: list[TaggedRequest], step: int, together: int, with_lz4: bool) -> None:
    envelopes = [envelope(5, *_sent(request)) for request in requests]
    sent = startup(5, "lz4" if with_lz4 else "")
    sent += segments(envelopes, together=together, with_lz4=with_lz4)
    _same(sent, requests, step)


_MALFORMED = [
    b"\xff\xff" + entry(b"qjoule.a", b"x") * 200,  # entries without end
    b"\0\1\xff\xffqjoule.a",
    b"\0\1\0\x08qjoule.a\x7f\xff\xff\xff",
    b"\0\1\0\x08qjoule.a\0\0\0\x09shorter!",
    b"\0\2" + entry(b"qjoule.a", b"x") + b"\0\x08qjoule.",
    b"\0",
    b"",
]


@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize("body", _MALFORMED, ids=range(len(_MALFORMED)))
def test_what_does_not_fit_its_frame(body: bytes, step: int) -> None:
    """The server refuses it too. Requests after it are not affected."""
    behind = envelope(4, QUERY, payload(TAGGED) + SELECT, PAYLOAD) + envelope(4, QUERY, SELECT)
    result = requests_of(startup(4) + envelope(4, QUERY, body, PAYLOAD) + behind, step)
    assert result is not None
    assert [request.tags for request in result[0]][-2:] == [kept_entries(TAGGED), b""]
    assert len(result[0]) == 2


@given(st.binary(max_size=600), TAGGED_STEPS)
@example(b"\0\2\0\x08qjoule.n\xff\xff\xff\xfe" + entry(b"qjoule.a", b"x") + SELECT, 1)
def test_whatever_is_there_is_bounded(noise: bytes, step: int) -> None:
    result = requests_of(startup(4) + envelope(4, QUERY, noise, PAYLOAD), step)
    assert result is not None
    for request in result[0]:
        assert len(request.tags) <= MOST and request.tags in noise


@given(PAYLOADS)
def test_what_is_kept_is_read(entries: list[Entry] | None) -> None:
    mine = [
        (key.decode().removeprefix("qjoule."), value.decode("utf-8", "replace"))
        for key, value in entries or ()
        if value is not None and kept_entries([(key, b"")])
    ]
    read = dict(tags_in_payload(kept_entries(entries)))
    too_long = any(len(value) > 256 for _, value in mine)
    assert read == (dict(mine) if kept_entries(entries) and not too_long else {})
