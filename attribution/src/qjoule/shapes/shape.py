# SPDX-License-Identifier: Apache-2.0
"""A statement's shape: its text without literals, and the id of that text.

`Texts` keeps such texts by the shape's hash, within bounded memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

try:
    from _blake2 import blake2b  # hashlib's own: importing that takes OpenSSL along, 4 MB
except ImportError:  # no CPython
    from hashlib import blake2b

from qjoule.shapes.safe_text import shorten

TEXT_LENGTH = 4096  #: characters of a shape's text, unless another length is asked for


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
    """The shape with this whole text, which is safe to print. `length` bounds what is shown."""
    digest = blake2b(whole.encode(), digest_size=8).hexdigest()
    return Shape(digest, shorten(whole, length), truncated, dialect)


class OtherId(NamedTuple):
    """An id, or the reason why there is none: never a guess."""

    name: str  #: what users of that tool call it
    id: str | None
    of: str  #: the tool, or the server and its version, that has this id
    why: str = ""  #: without an id: the reason


def certain(ids: Iterable[OtherId]) -> tuple[OtherId, ...]:
    """Each id once. The reason why one was missing goes once the same tool has an id."""
    distinct = tuple(dict.fromkeys(ids))
    with_id = {(other_id.name, other_id.of) for other_id in distinct if other_id.id is not None}
    return tuple(
        other_id
        for other_id in distinct
        if other_id.id is not None or (other_id.name, other_id.of) not in with_id
    )


TEXTS_BYTES = 16 << 20


class Texts:
    """Forgets the least recently used texts once all together exceed `max_bytes`."""

    def __init__(self, max_bytes: int = TEXTS_BYTES) -> None:
        self._max_bytes = max_bytes
        self._texts: OrderedDict[int, str] = OrderedDict()
        self.bytes = 0  #: approximate: a character counts as one

    def __contains__(self, shape: int) -> bool:
        return shape in self._texts

    def add(self, shape: int, text: str) -> None:
        """Stores the shape's text."""
        self.forget(shape)
        self._texts[shape] = text
        self.bytes += len(text)
        while self.bytes > self._max_bytes:
            self.forget(next(iter(self._texts)))

    def get(self, shape: int) -> str | None:
        """The shape's text; None: not known (any more)."""
        text = self._texts.get(shape)
        if text is not None:
            self._texts.move_to_end(shape)
        return text

    def forget(self, shape: int) -> None:
        """Forgets the shape's text."""
        self.bytes -= len(self._texts.pop(shape, ""))
