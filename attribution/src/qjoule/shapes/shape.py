# SPDX-License-Identifier: Apache-2.0
"""A statement's shape: its text without literals, and the id of that text.

`Texts` caches such texts by the shape's hash, within bounded memory.

For key-value protocols, whose commands consist of a name and a key, a shape has the key's pattern.
The kernel side sends a request's text as its commands in RESP, each cut to its name and its first
argument; equal ones in a row are sent once (``bpf/core/key_request.bpf.h``). In keys, letters
usually carry structure and digits carry values. So a pattern contains words of letters and replaces
the rest, by the rules at the top of ``bpf/core/shape_hash.h``. The kernel side hashes by the same
rules: equal hash implies equal pattern.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from qjoule.lazy_import import blake2b
from qjoule.shapes.safe_text import ELLIPSIS, shorten

TEXT_LENGTH = 4096  #: default bound on the characters of a shape's text
KEY_BYTES = 64  #: QJ_KEY_BYTES of bpf/core/shape_hash.h
HEX_MIN = 8  #: QJ_KEY_HEX_MIN
MARK = "?"

_HEAD = re.compile(rb"\*([12])\r\n")
_LENGTH = re.compile(rb"\$(\d\d)\r\n")
_WORDS = re.compile(rb"([0-9A-Za-z\x00-\x1f\x7f-\xff]+)|([^0-9A-Za-z\x00-\x1f\x7f-\xff])")
_HEX = re.compile(rb"[0-9A-Fa-f]+")
_LETTERS = re.compile(rb"[A-Za-z]+")
_NUMBERED = re.compile(rb"([A-Za-z]+)[0-9]+")


@dataclass(frozen=True)
class Shape:
    """A statement without its literals. The text is safe to print and of bounded length.

    `fingerprint` is 16 hex digits, BLAKE2b-64 of the whole shape text in UTF-8.
    """

    fingerprint: str
    text: str
    truncated: bool
    dialect: int


def shape_of(whole: str, truncated: bool, dialect: int, length: int) -> Shape:
    """Makes a shape from its whole text, which is safe to print. `length` bounds the shown text."""
    digest = blake2b(whole.encode(), digest_size=8).hexdigest()
    return Shape(digest, shorten(whole, length), truncated, dialect)


class OtherId(NamedTuple):
    """An id that another tool uses, or the reason why it is unknown: never a guess."""

    name: str  #: the tool's name for such ids
    id: str | None
    of: str  #: the tool, or the server and its version, that uses this id
    why: str = ""  #: the reason if there is no id


def certain(ids: Iterable[OtherId]) -> tuple[OtherId, ...]:
    """Removes duplicates, and reasons for a missing id if the same tool has an id."""
    distinct = tuple(dict.fromkeys(ids))
    with_id = {(other_id.name, other_id.of) for other_id in distinct if other_id.id is not None}
    return tuple(
        other_id
        for other_id in distinct
        if other_id.id is not None or (other_id.name, other_id.of) not in with_id
    )


TEXTS_BYTES = 16 << 20


class Texts:
    """A cache: drops the least recently used texts once all together exceed `max_bytes`."""

    def __init__(self, max_bytes: int = TEXTS_BYTES) -> None:
        self._max_bytes = max_bytes
        self._texts: OrderedDict[int, str] = OrderedDict()
        self.bytes = 0  #: approximate: a character counts as one

    def __contains__(self, shape: int) -> bool:
        return shape in self._texts

    def add(self, shape: int, text: str) -> None:
        self.forget(shape)
        self._texts[shape] = text
        self.bytes += len(text)
        while self.bytes > self._max_bytes:
            self.forget(next(iter(self._texts)))

    def get(self, shape: int) -> str | None:
        """The shape's text, or None if it is unknown or was dropped."""
        text = self._texts.get(shape)
        if text is not None:
            self._texts.move_to_end(shape)
        return text

    def forget(self, shape: int) -> None:
        self.bytes -= len(self._texts.pop(shape, ""))


def key_pattern(key: bytes) -> str:
    """Replaces values in a key: `user:1000:cart` becomes `user:?:cart`. Reads KEY_BYTES at most."""
    out: list[str] = []
    marked = False  # the last thing added is a mark
    joined = False  # the last things added are a mark and "-"
    for match in _WORDS.finditer(key[:KEY_BYTES]):
        word, sign = match.groups()
        if sign:
            joined = marked and sign == b"-"
            marked = False
            out.append(sign.decode("latin-1"))
            continue
        reduced = _word(word, joined)
        marked = reduced.endswith(MARK)
        if reduced == MARK and joined:
            out.pop()  # the "-": the two marks are merged
        else:
            out.append(reduced)
        joined = False
    return "".join(out) + (ELLIPSIS if len(key) >= KEY_BYTES else "")


def _word(word: bytes, joined: bool) -> str:
    if _HEX.fullmatch(word) and (joined or len(word) >= HEX_MIN):
        return MARK
    if _LETTERS.fullmatch(word):
        return word.decode("ascii")
    numbered = _NUMBERED.fullmatch(word)
    return numbered[1].decode("ascii") + MARK if numbered else MARK


def commands_in(text: bytes) -> list[tuple[bytes, bytes | None]]:
    """(name, first argument) of each complete command of a text from the kernel side."""
    commands: list[tuple[bytes, bytes | None]] = []
    at = 0
    while head := _HEAD.match(text, at):
        at = head.end()
        parts: list[bytes] = []
        for _ in range(int(head[1])):
            length = _LENGTH.match(text, at)
            if length is None or length.end() + int(length[1]) + 2 > len(text):
                return commands
            parts.append(text[length.end() : length.end() + int(length[1])])
            at = length.end() + int(length[1]) + 2
        commands.append((parts[0], parts[1] if len(parts) > 1 else None))
    return commands


def joined_shapes(shapes: Iterable[str], truncated: bool) -> str:
    """The shape of a request of several commands; equal ones in a row appear once."""
    in_a_row: list[str] = []
    for shape in shapes:
        if not in_a_row or in_a_row[-1] != shape:
            in_a_row.append(shape)
    if truncated or not in_a_row:
        in_a_row.append(ELLIPSIS)
    return "; ".join(in_a_row)
