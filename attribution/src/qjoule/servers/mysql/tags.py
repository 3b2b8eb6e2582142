# SPDX-License-Identifier: Apache-2.0
"""Tags in MySQL's attributes, of queries and of connections. Attributes with names `qjoule.KEY`
count; of query attributes only strings and whole numbers.

MySQL Source Code Documentation, "COM_QUERY", "Binary Protocol Value".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from qjoule.tags.comments import PREFIX, believed
from qjoule.tags.definitions import MAX_TAGS, Tags

# include/field_types.h
_STRINGS = {15, 252, 253, 254}  #: VARCHAR, BLOB, VAR_STRING, STRING
#: Bytes of numbers: TINY, SHORT, LONG, LONGLONG, INT24, YEAR.
_NUMBERS = {1: 1, 2: 2, 3: 4, 8: 8, 9: 4, 13: 2}
_NULL_TYPE = 6
_UNSIGNED = 0x80  #: in the byte behind a type


@lru_cache(maxsize=4096)
def tags_in_attributes(block: bytes) -> Tags:
    """Tags by key, from query attributes as sent, from their count to their last value.

    Attributes with other names are left out. A value that is neither a string nor a whole number
    makes all of them unreadable.
    """
    try:
        return believed(_attributes(block))
    except IndexError:
        return ()


def tags_of_attributes(attributes: Iterable[tuple[bytes, bytes]]) -> Tags:
    """Tags by key, from attributes of a connection. Attributes with other names are left out."""
    pairs = ((key.decode("utf-8", "replace"), value) for key, value in attributes)
    return believed(
        (key.removeprefix(PREFIX), value.decode("utf-8", "replace"))
        for key, value in pairs
        if key.startswith(PREFIX)
    )


def _attributes(block: bytes) -> Iterable[tuple[str, str]]:
    """(name, value) of each tag. Raises IndexError if the block is cut off or malformed."""
    count = block[0]
    nulls = (count + 7) // 8
    if count > MAX_TAGS or block[1] != 1 or block[2 + nulls] != 1:
        raise IndexError
    names: list[str] = []
    kinds: list[tuple[int, int]] = []
    at = 3 + nulls
    for _ in range(count):
        kinds.append((block[at], block[at + 1]))
        word, at = _counted(block, at + 2)
        names.append(word.decode("utf-8", "replace"))
    for number, (name, (kind, flags)) in enumerate(zip(names, kinds, strict=True)):
        if kind == _NULL_TYPE or block[2 + number // 8] >> number % 8 & 1:
            continue
        value, at = _value(block, at, kind, signed=not flags & _UNSIGNED)
        if name.startswith(PREFIX):
            yield name.removeprefix(PREFIX), value
    if at != len(block):
        raise IndexError


def _value(block: bytes, at: int, kind: int, *, signed: bool) -> tuple[str, int]:
    """The value as text, and where it ends."""
    if kind in _STRINGS:
        data, at = _counted(block, at)
        return data.decode("utf-8", "replace"), at
    size = _NUMBERS.get(kind, len(block))
    if at + size > len(block):
        raise IndexError
    return str(int.from_bytes(block[at : at + size], "little", signed=signed)), at + size


def _counted(block: bytes, at: int) -> tuple[bytes, int]:
    """A length-encoded string, and where it ends."""
    size, at = block[at], at + 1
    if size == 0xFC:
        size, at = block[at] | block[at + 1] << 8, at + 2
    elif size > 0xFA:
        raise IndexError
    if at + size > len(block):
        raise IndexError
    return block[at : at + size], at + size
