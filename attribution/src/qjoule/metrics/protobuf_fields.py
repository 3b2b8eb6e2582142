# SPDX-License-Identifier: Apache-2.0
"""Fields of protobuf messages (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

import struct

_VARINT, _DOUBLE, _BYTES = 0, 1, 2


def text(field: int, content: str) -> bytes:
    return message(field, content.encode("utf-8", "replace"))


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", value)


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
