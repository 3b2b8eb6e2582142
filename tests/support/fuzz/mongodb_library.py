# SPDX-License-Identifier: Apache-2.0
"""mongodb_shape.h compiled for the host, and messages to feed to it."""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import bson
import pyarrow as pa
import snappy

from host_library import TRAPPED, compiled
from qjoule.servers.mongodb.message import BODY_BYTES, Opcode, fnv


@cache
def _library() -> ctypes.CDLL:
    loaded = compiled("tests/support/fuzz/mongodb_host.c", flags=TRAPPED)
    in_pieces: list[Any] = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
    number = ctypes.POINTER(ctypes.c_int64)
    loaded.mongodb_host.restype = ctypes.c_uint64
    loaded.mongodb_host.argtypes = [*in_pieces, ctypes.c_uint64]
    loaded.mongodb_reply_host.restype = ctypes.c_uint32
    loaded.mongodb_reply_host.argtypes = [
        *in_pieces,
        ctypes.c_uint32,
        number,
        ctypes.c_uint32,
        number,
    ]
    return loaded


def kernel_reply(sent: bytes, request: int, step: int = 0) -> tuple[str | None, int | None]:
    """Outcome ("ok", "error") and cursor id from the server's bytes, which come in pieces of
    `step` bytes (0: at once). None: not known.
    """
    return _reply(sent, request, step, "")[:2]


def kernel_documents(sent: bytes, request: int, command: str, step: int = 0) -> int | None:
    """How many documents the reply to that command reports; None: not known."""
    return _reply(sent, request, step, command)[2]


def _reply(
    sent: bytes, request: int, step: int, command: str
) -> tuple[str | None, int | None, int | None]:
    cursor, rows = ctypes.c_int64(), ctypes.c_int64()
    flags = _library().mongodb_reply_host(
        *(sent, len(sent), step, request, ctypes.byref(cursor)),
        *(fnv(command.encode()), ctypes.byref(rows)),
    )
    outcome = {1: "ok", 2: "error"}.get(flags & 3)
    cursor_id = cursor.value if flags & 4 else None
    return outcome, cursor_id, rows.value if rows.value >= 0 else None


def kernel_hash(message: bytes, step: int = 0) -> int:
    """The hash of a whole message, fed in pieces of `step` bytes; 0: not a request.

    `step` 0: as the kernel does it, without looking at values.
    """
    return int(_library().mongodb_host(message, len(message), step, 1))


def message(body: bytes, opcode: int = Opcode.MSG, response_to: int = 0) -> bytes:
    return struct.pack("<IIII", 16 + len(body), 7, response_to, opcode) + body


def op_msg(
    command: Mapping[str, Any],
    sections: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    *,
    checksum: bool = False,
    flags: int = 0,
) -> bytes:
    """A command as OP_MSG; `sections` are sent as document sequences."""
    body = struct.pack("<I", flags | checksum) + b"\0" + bson.encode(command)
    for name, documents in (sections or {}).items():
        rest = name.encode() + b"\0" + b"".join(map(bson.encode, documents))
        body += b"\1" + struct.pack("<I", 4 + len(rest)) + rest
    return message(body + (b"abcd" if checksum else b""))


def op_query(namespace: str, document: Mapping[str, Any]) -> bytes:
    head = struct.pack("<I", 4) + namespace.encode() + b"\0" + struct.pack("<ii", 0, -1)
    return message(head + bson.encode(document), Opcode.QUERY)


def kernel_report(message: bytes, origin: int = 0) -> bytes:
    """What the kernel reports of a message. For a getMore, `origin` names its cursor's query."""
    opcode = struct.unpack_from("<I", message, 12)[0]
    head = struct.pack("<IIQ", opcode, len(message) - 16, origin)
    return head + message[16 : 16 + BODY_BYTES]


#: By the number of MongoDB's compressor: functions to compress and to decompress.
PACK: dict[int, Callable[[bytes], bytes]] = {
    1: lambda data: bytes(snappy.compress(data)),
    2: zlib.compress,
    3: lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
}
SNAPPY = 1
READ_HERE = sorted(PACK.keys() - {SNAPPY})  #: by the reader, not in the kernel
_UNPACK: dict[int, Callable[[bytes, int], bytes]] = {
    1: lambda data, _size: bytes(snappy.decompress(data)),
    2: lambda data, _size: zlib.decompress(data),
    3: lambda data, size: bytes(pa.Codec("zstd").decompress(data, size, asbytes=True)),
}


def compressed(plain: bytes, compressor: int = 2) -> bytes:
    """A message as OP_COMPRESSED."""
    opcode = struct.unpack_from("<I", plain, 12)[0]
    head = struct.pack("<iiB", opcode, len(plain) - 16, compressor)
    return message(head + PACK[compressor](plain[16:]), Opcode.COMPRESSED)


def decompressed(message: bytes) -> bytes:
    """The message inside an OP_COMPRESSED; any other message unchanged."""
    length, number, response_to, opcode = struct.unpack_from("<4I", message)
    if opcode != Opcode.COMPRESSED:
        return message
    opcode, size, compressor = struct.unpack_from("<IIB", message, 16)
    plain = _UNPACK[compressor](message[25:length], size)
    return struct.pack("<4I", 16 + size, number, response_to, opcode) + plain
