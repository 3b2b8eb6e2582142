# SPDX-License-Identifier: Apache-2.0
"""Converts compressed messages (OP_COMPRESSED) to the messages they contain.

The kernel side inflates only Snappy (bpf/mongodb/packed.h). It sends other compressed requests
unchanged, cut like any message. So only the beginning is inflated here. zlib yields as much as
there is. zstd has blocks of up to 128 KB, and a cut block yields nothing.

Libraries refuse a truncated block, but of a long request only the first bytes are sent. The
functions that inflate accept any bytes and return at most `limit` bytes: only valid ones, and never
more than the whole input would give. They never raise.

RFC 1950 (zlib), RFC 8878 (Zstandard); MongoDB manual, "MongoDB Wire Protocol", OP_COMPRESSED;
MongoDB's transport/message_compressor_*.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from qjoule.lazy_import import pa
from qjoule.servers.mongodb.message import (
    BODY_BYTES,
    HEAD,
    MESSAGE_MAX,
    Opcode,
)

_ZLIB_STEP = 64  #: bytes per step; in a damaged step, the rest is lost
COMPRESSORS = {0: "none", 1: "snappy", 2: "zlib", 3: "zstd"}  #: MessageCompressorId
_COMPRESSION = struct.Struct("<IIB")  #: original opcode, uncompressed size, compressor
_INSIDE = frozenset(Opcode) - {Opcode.COMPRESSED}


def zlib_stream(data: bytes, limit: int) -> bytes:
    """Inflates a zlib stream."""
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
    """Inflates a Zstandard frame, as far as its blocks are complete."""
    wanted = limit
    while wanted:
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return bytes(stream.read(wanted))
        except (OSError, pa.ArrowException):
            # A truncated part raises only when it is read.
            wanted //= 2
    return b""


_INFLATE: dict[int, Callable[[bytes, int], bytes]] = {
    0: lambda data, limit: data[:limit],
    2: zlib_stream,
    3: zstd_frame,
}


def inflated(sent: bytes) -> bytes | None:
    """Inflates an OP_COMPRESSED message to what the kernel side would send without compression.

    None if nothing was sent, if it is damaged, or if its length differs from the client's claim.
    Never raises. The result is no longer than a message that the kernel side sends.
    """
    start = HEAD.size + _COMPRESSION.size
    if len(sent) <= start:
        return None
    _, length, _ = HEAD.unpack_from(sent)
    opcode, size, compressor = _COMPRESSION.unpack_from(sent, HEAD.size)
    inflate = _INFLATE.get(compressor)
    if inflate is None or opcode not in _INSIDE or size > MESSAGE_MAX:
        return None
    is_whole = len(sent) == HEAD.size + length
    plain = inflate(sent[start:], min(size + 1, BODY_BYTES))
    wanted = min(size, BODY_BYTES)
    if not plain or len(plain) > size or (is_whole and len(plain) < wanted):
        return None
    return HEAD.pack(opcode, size, 0) + plain[:wanted]
