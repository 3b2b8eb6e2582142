# SPDX-License-Identifier: Apache-2.0
"""Encodes fields of protobuf messages (https://protobuf.dev/programming-guides/encoding/) for the
page of metrics and for profiles, and decodes profiles. `field`: its number in the message."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

_VARINT, _DOUBLE, _BYTES = 0, 1, 2
_UNSIGNED = (1 << 64) - 1


def text(field: int, value: str) -> bytes:
    return message(field, value.encode("utf-8", "replace"))


def message(field: int, value: bytes) -> bytes:
    """An embedded message (its fields one after the other), or any other bytes."""
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


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of numbers and bytes, in order. Raises `ValueError`: it is no such
    message.
    """
    offset = 0
    while offset < len(content):
        key, offset = _number_at(content, offset)
        value, offset = _number_at(content, offset)
        if key & 7 == _VARINT:
            yield key >> 3, value
        elif key & 7 == _BYTES and offset + value <= len(content):
            yield key >> 3, content[offset : offset + value]
            offset += value
        else:
            raise ValueError("it is no message of numbers and bytes")


def numbers(content: bytes) -> Iterator[int]:
    """The values of a `packed` field. Raises `ValueError`."""
    offset = 0
    while offset < len(content):
        value, offset = _number_at(content, offset)
        yield value - _UNSIGNED - 1 if value >> 63 else value


def _number_at(content: bytes, offset: int) -> tuple[int, int]:
    """A varint, and where it ends. Raises `ValueError`."""
    value = 0
    for shift in range(0, 64, 7):
        if offset >= len(content):
            break
        value |= (content[offset] & 0x7F) << shift
        offset += 1
        if content[offset - 1] < 0x80:
            return value & _UNSIGNED, offset
    raise ValueError("it has a number that does not end")
