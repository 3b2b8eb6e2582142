# SPDX-License-Identifier: Apache-2.0
"""cql_wire.h and inflate.h compiled for the host, and requests to feed to them."""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import lz4.block
import snappy

from host_library import TRAPPED, compiled

QUERY, PREPARE, EXECUTE, BATCH, STARTUP = 0x07, 0x09, 0x0A, 0x0D, 0x01
COMPRESSED, TRACING, PAYLOAD = 0x01, 0x02, 0x04
SEGMENT_MOST = (1 << 17) - 1
_REQUESTS_MOST, _TAGS_MOST = 4096, 1 << 16
Size = ctypes.c_size_t


class _Request(ctypes.Structure):
    _fields_ = (
        ("shape", ctypes.c_uint64),
        ("text_bytes", ctypes.c_uint32),
        ("tags_bytes", ctypes.c_uint16),
        ("command", ctypes.c_uint8),
        ("opcode", ctypes.c_uint8),
    )


class Request(NamedTuple):
    """A request as the parser reported it."""

    shape: int
    text_bytes: int
    command: int
    tags: bytes = b""  #: entries of its payload that are tags


@cache
def _library() -> ctypes.CDLL:
    loaded = compiled("tests/support/fuzz/cql_host.c", flags=TRAPPED)
    loaded.cql_host.restype = loaded.inflate_host.restype = Size
    return loaded


def requests_of(connection: bytes, step: int = 0) -> tuple[list[Request], int] | None:
    """The requests of a connection that is read in pieces of `step` bytes (0: at once)."""
    slots, tags = (_Request * _REQUESTS_MOST)(), ctypes.create_string_buffer(_TAGS_MOST)
    opaque, sizes = Size(), (Size(len(connection)), Size(step))
    count = _library().cql_host(connection, *sizes, slots, ctypes.byref(opaque), tags)
    if count == Size(-1).value:
        return None
    assert count <= _REQUESTS_MOST
    requests, tag_bytes, at = [], tags.raw, 0
    for slot in slots[:count]:
        end = at + slot.tags_bytes
        requests.append(Request(slot.shape, slot.text_bytes, slot.command, tag_bytes[at:end]))
        at = end
    return requests, opaque.value


def inflated(packed: bytes, limit: int, *, is_snappy: bool) -> bytes:
    """An LZ4 block, or Snappy's raw format, inflated as far as the kernel inflates it."""
    room, kind = ctypes.create_string_buffer(limit + 1), ctypes.c_uint8(2 if is_snappy else 1)
    count = _library().inflate_host(packed, Size(len(packed)), kind, Size(limit), room)
    return room.raw[:count]


def long_string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def startup(version: int, compression: str = "") -> bytes:
    options = {"CQL_VERSION": "3.0.0"} | ({"COMPRESSION": compression} if compression else {})
    body = struct.pack(">H", len(options))
    for pair in options.items():
        for word in pair:
            body += struct.pack(">H", len(word)) + word.encode()
    return envelope(version, STARTUP, body)


def envelope(version: int, opcode: int, body: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return struct.pack(">BBhBI", version, flags, stream, opcode, len(body)) + body


def payload(entries: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """[bytes map] that precedes the body of a request with the flag `PAYLOAD`."""
    return struct.pack(">H", len(entries)) + b"".join(entry(*fields) for fields in entries)


def entry(key: bytes, value: bytes | None) -> bytes:
    sized = b"\xff" * 4 if value is None else long_string(value)
    return struct.pack(">H", len(key)) + key + sized


def compressed(version: int, opcode: int, body: bytes, compression: str, flags: int = 0) -> bytes:
    """An envelope of protocol 3 or 4 whose body is compressed."""
    if compression == "lz4":
        packed = struct.pack(">I", len(body)) + lz4.block.compress(body, store_size=False)
    else:
        packed = snappy.compress(body)
    return envelope(version, opcode, packed, COMPRESSED | flags)


def _crc24(head: bytes) -> bytes:
    crc = 0x875060
    for byte in head:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1974F0B
    return struct.pack("<I", crc & 0xFFFFFF)[:3]


def segment(payload: bytes, *, whole: bool, with_lz4: bool) -> bytes:
    """A segment of protocol 5. With LZ4 it stays uncompressed if compression makes it no
    shorter.
    """
    head = len(payload)
    if with_lz4:
        packed = lz4.block.compress(payload, store_size=False)
        if len(packed) < len(payload):
            head, payload = len(packed) | len(payload) << 17, packed
        number, size = head | whole << 34, 5
    else:
        number, size = head | whole << 17, 3
    header = number.to_bytes(size, "little")
    trailer = struct.pack("<I", zlib.crc32(payload, zlib.crc32(b"\xfa\x2d\x55\xca")))
    return header + _crc24(header) + payload + trailer


def segments(envelopes: Sequence[bytes], *, together: int, with_lz4: bool) -> bytes:
    """Envelopes in segments: as many as fit if `together`; longer ones in parts."""
    sent, gathered = b"", b""
    for number, envelope in enumerate(envelopes):
        if len(gathered) + len(envelope) > SEGMENT_MOST and gathered:
            sent += segment(gathered, whole=True, with_lz4=with_lz4)
            gathered = b""
        if len(envelope) > SEGMENT_MOST:
            for at in range(0, len(envelope), SEGMENT_MOST):
                part = envelope[at : at + SEGMENT_MOST]
                sent += segment(part, whole=False, with_lz4=with_lz4)
            continue
        gathered += envelope
        if number % together == together - 1:
            sent += segment(gathered, whole=True, with_lz4=with_lz4)
            gathered = b""
    return sent + (segment(gathered, whole=True, with_lz4=with_lz4) if gathered else b"")
