# SPDX-License-Identifier: Apache-2.0
"""Laws of CQL's wire format: compression, segments and read sizes do not change the
requests found.
"""

from __future__ import annotations

import struct

import lz4.block
import snappy
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.cql_library import (
    BATCH,
    EXECUTE,
    PREPARE,
    QUERY,
    compressed,
    envelope,
    inflated,
    long_string,
    segments,
    startup,
    told,
)

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
    assert told(sent, step) == told(plain(4, requests)) is not None
    # On a connection that was open before, the format shows by itself.
    assert told(b"".join(packed)) == told(plain(4, requests))


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
    assert told(sent, step) == told(plain(4, requests)) is not None


@given(noise=st.binary(min_size=1, max_size=3000), step=st.sampled_from([0, 13]))
@example(noise=b"\0\0\1\0garbage", step=0)
def test_a_damaged_compressed_request_is_counted(noise: bytes, step: int) -> None:
    for compression in ("lz4", "snappy"):
        read = told(startup(4, compression) + envelope(4, QUERY, noise, flags=1), step)
        assert read is not None
        assert len(read[0]) == 1


@given(text=st.binary(max_size=5000), repeat=st.integers(1, 40), limit=st.integers(1, 130_000))
def test_inflated_as_the_libraries_do(text: bytes, repeat: int, limit: int) -> None:
    whole = text * repeat
    packed = lz4.block.compress(whole, store_size=False)
    if len(packed) <= 1 << 16:
        assert inflated(packed, limit, is_snappy=False) == whole[:limit]
    packed = snappy.compress(whole)
    if len(packed) <= 1 << 16:
        assert inflated(packed, limit, is_snappy=True) == whole[:limit]
