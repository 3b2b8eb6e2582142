# SPDX-License-Identifier: Apache-2.0
"""The beginning of what a client compressed, from the beginning of what it sent.

Libraries refuse a block that was cut off; of a long request only the first bytes are at hand. Each
function takes any bytes and returns at most `limit` bytes of what they stand for: as far as they
make sense, and never more than the whole input would give. None of them raises.

Sources: RFC 1950 (zlib), RFC 8878 (Zstandard). The kernel inflates other formats
(bpf/core/inflate.h).
"""

from __future__ import annotations

import zlib

import pyarrow as pa

_ZLIB_STEP = 64  #: bytes at a time; what follows damage in these is not told


def zlib_stream(data: bytes, limit: int) -> bytes:
    """A zlib stream."""
    inflater = zlib.decompressobj()
    out = bytearray()
    for at in range(0, len(data), _ZLIB_STEP):
        if len(out) >= limit or inflater.eof:
            break
        try:
            piece = inflater.unconsumed_tail + data[at : at + _ZLIB_STEP]
            out += inflater.decompress(piece, limit - len(out))
        except zlib.error:
            break
    return bytes(out)


def zstd_frame(data: bytes, limit: int) -> bytes:
    """A Zstandard frame, as far as its blocks are whole: a block that was cut yields nothing."""
    wanted = limit
    while wanted:
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return bytes(stream.read(wanted))
        except (OSError, pa.ArrowException):
            # What was cut off raises only once it is asked for.
            wanted //= 2
    return b""
