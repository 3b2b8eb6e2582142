# SPDX-License-Identifier: Apache-2.0
"""Messages that clients compressed: OP_COMPRESSED to what it stands for.

The kernel sees through Snappy alone (bpf/mongodb/packed.h). Any other such request it tells by
itself, as far as it tells any message: so what is inflated here is a beginning. zlib gives as much
of one as there is; of zstd, whose blocks are of up to 128 KB, a block that was cut gives nothing.

MongoDB manual, "MongoDB Wire Protocol", OP_COMPRESSED; MongoDB's transport/message_compressor_*.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from qjoule.servers.mongodb.dialect_message import BODY_BYTES, HEAD, MESSAGE_MAX
from qjoule.servers.mongodb.dialect_tree import Opcode
from qjoule.shapes.inflate import zlib_stream, zstd_frame

COMPRESSORS = {0: "none", 1: "snappy", 2: "zlib", 3: "zstd"}  #: MessageCompressorId
_COMPRESSION = struct.Struct("<IIB")  #: the opcode and size of what was compressed, by what
_INSIDE = frozenset(Opcode) - {Opcode.COMPRESSED}


def _as_it_is(data: bytes, limit: int) -> bytes:
    return data[:limit]


_INFLATE: dict[int, Callable[[bytes, int], bytes]] = {
    0: _as_it_is,
    2: zlib_stream,
    3: zstd_frame,
}


def inflated(told: bytes) -> bytes | None:
    """An OP_COMPRESSED message as the kernel would have told it plain.

    None if nothing can be said of it: nothing was told, it is damaged, or it is not of the length
    that its client claims. Never raises; what it returns is no longer than what the kernel tells.
    """
    start = HEAD.size + _COMPRESSION.size
    if len(told) <= start:
        return None
    _, length, _ = HEAD.unpack_from(told)
    opcode, size, compressor = _COMPRESSION.unpack_from(told, HEAD.size)
    inflate = _INFLATE.get(compressor)
    if inflate is None or opcode not in _INSIDE or size > MESSAGE_MAX:
        return None
    is_whole = len(told) == HEAD.size + length
    plain = inflate(told[start:], min(size + 1, BODY_BYTES))
    wanted = min(size, BODY_BYTES)
    if not plain or len(plain) > size or (is_whole and len(plain) < wanted):
        return None
    return HEAD.pack(opcode, size, 0) + plain[:wanted]
