# SPDX-License-Identifier: Apache-2.0
"""Inflates the beginning of compressed data, of which only the first bytes are available.

Libraries refuse a truncated block, but of a long request only the first bytes are sent. Each
function takes any bytes and returns at most `limit` bytes: the valid ones, and never more than the
whole input would give. None of them raises.

Sources: RFC 1950 (zlib), RFC 8878 (Zstandard). The kernel side inflates other formats
(bpf/core/inflate.h).
"""

from __future__ import annotations

import zlib

from qjoule.late import pa

_ZLIB_STEP = 64  #: bytes at a time; in a damaged step, what follows the damage is lost


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
    """A Zstandard frame, as far as its blocks are complete: a truncated block yields nothing."""
    wanted = limit
    while wanted:
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return bytes(stream.read(wanted))
        except (OSError, pa.ArrowException):
            # The truncated part raises only once it is requested.
            wanted //= 2
    return b""
