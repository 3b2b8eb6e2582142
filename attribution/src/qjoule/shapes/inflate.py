"""The beginning of what a client compressed, from the beginning of what it sent.

Libraries refuse a block that was cut off; of a long request only the first bytes are at hand. Each
function takes any bytes and returns at most `limit` bytes of what they stand for: as far as they
make sense, and never more than the whole input would give. None of them raises.

Sources: Snappy's raw format (google/snappy format_description.txt), RFC 1950 (zlib), RFC 8878
(Zstandard).
"""

from __future__ import annotations

import zlib

import pyarrow as pa

_SNAPPY_LENGTH_BYTES = 5  #: of a 32-bit number, 7 bits each
_ZLIB_STEP = 64  #: bytes at a time; what follows damage in these is not told


def snappy_block(data: bytes, limit: int) -> bytes:
    """Snappy's raw format, which begins with the length of the whole."""
    at, whole = 0, 0
    while True:
        if at >= min(len(data), _SNAPPY_LENGTH_BYTES):
            return b""
        whole |= (data[at] & 0x7F) << 7 * at
        at += 1
        if data[at - 1] < 0x80:
            break
    limit = min(limit, whole)
    out = bytearray()
    while at < len(data) and len(out) < limit:
        tag = data[at]
        kind, extra = tag & 3, (0, 1, 2, 4)[tag & 3]
        if kind == 0 and tag >> 2 >= 60:
            extra = (tag >> 2) - 59
        at += 1
        if at + extra > len(data):
            break
        number = int.from_bytes(data[at : at + extra], "little")
        at += extra
        if kind == 0:
            literals = (number if extra else tag >> 2) + 1
            out += data[at : at + min(literals, limit - len(out))]
            at += literals
        elif kind == 1:
            if not _copy(out, tag >> 5 << 8 | number, (tag >> 2 & 7) + 4, limit):
                break
        elif not _copy(out, number, (tag >> 2) + 1, limit):
            break
    return bytes(out)


def _copy(out: bytearray, offset: int, length: int, limit: int) -> bool:
    """Appends `length` bytes from `offset` back, which may run into what it appends."""
    if not 0 < offset <= len(out):
        return False
    length = min(length, limit - len(out))
    start = len(out) - offset
    pattern = out[start : start + min(length, offset)]
    out += (pattern * (length // offset + 1))[:length]
    return True


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
