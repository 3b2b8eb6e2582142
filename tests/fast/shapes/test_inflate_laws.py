# SPDX-License-Identifier: Apache-2.0
"""Inflating gives what the libraries give; of a prefix of the input, a prefix of the output."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qjoule.servers.mongodb import compressed as inflate

Inflate = Callable[[bytes, int], bytes]
Deflate = Callable[[bytes], bytes]
LIMIT = 4096


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


FORMATS: list[tuple[Inflate, Deflate]] = [
    (inflate.zlib_stream, zlib.compress),
    (inflate.zstd_frame, _zstd),
]
_each = pytest.mark.parametrize("inflated, deflated", FORMATS, ids=["zlib", "zstd"])
#: Text that repeats itself, near and far, and noise that cannot be compressed.
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([b"SELECT id FROM orders WHERE ", b"note = ", b"a" * 40, b"\0" * 300]),
        st.binary(max_size=300),
    ),
    max_size=40,
).map(b"".join)


@_each
@given(text=TEXTS, limit=st.integers(0, 20_000), kept=st.floats(0, 1))
@example(text=b"", limit=LIMIT, kept=1)
@example(text=b"ab" * 50_000, limit=200_000, kept=0.5)
@example(text=bytes(range(256)) * 300, limit=70_000, kept=0.5)
def test_all_or_a_prefix_is_inflated_as_by_the_library(
    inflated: Inflate, deflated: Deflate, text: bytes, limit: int, kept: float
) -> None:
    packed = deflated(text)
    assert inflated(packed, limit) == text[:limit]
    assert text[:limit].startswith(inflated(packed[: int(kept * len(packed))], limit))


@pytest.mark.parametrize("inflated", [inflated for inflated, _ in FORMATS])
@given(noise=st.binary(max_size=400), limit=st.integers(0, 2000))
@example(noise=b"\x10a\x01\x00\xff\xff\xff", limit=2000)
@example(noise=b"\xff" * 400, limit=2000)
@example(noise=b"\xff\xff\xff\xff\x0f\xfc\xff\xff\xff\xffab", limit=2000)
def test_the_output_for_any_input_is_bounded(inflated: Inflate, noise: bytes, limit: int) -> None:
    assert len(inflated(noise, limit)) <= limit
