# SPDX-License-Identifier: Apache-2.0
"""Fields of protobuf messages as bytes (https://protobuf.dev/programming-guides/encoding/): for the
page of metrics and for profiles. `field`: its number in the message."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_VARINT, _DOUBLE, _BYTES = 0, 1, 2
_UNSIGNED = (1 << 64) - 1


def text(field: int, value: str) -> bytes:
    return message(field, value.encode("utf-8", "replace"))


def message(field: int, value: bytes) -> bytes:
    """A message in it, which may be several fields one after the other, or any other bytes."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def number(field: int, value: int) -> bytes:
    """A number of up to 64 bits; a negative one as int64 has it."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", value)


def packed(field: int, values: Iterable[int]) -> bytes:
    """A repeated field of numbers."""
    return message(field, b"".join(map(varint, values)))


def varint(value: int) -> bytes:
    if value < 0:
        value &= _UNSIGNED
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
