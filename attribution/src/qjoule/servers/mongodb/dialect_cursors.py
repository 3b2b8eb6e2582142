# SPDX-License-Identifier: Apache-2.0
"""Remembers commands that open cursors, so that a getMore can be shown with its own command."""

from __future__ import annotations

from qjoule.servers.mongodb.dialect_message import origin_of
from qjoule.servers.registry import dialect as number_of
from qjoule.shapes.texts import Texts

_MONGODB = number_of("mongodb")


class Cursors:
    """Texts of MongoDB shapes by hash.

    Keeps the most recently used texts: see `Texts`.
    """

    def __init__(self) -> None:
        self._texts = Texts()

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """Takes the shape's text, once it is known."""
        if dialect == _MONGODB:
            self._texts.add(shape, text)

    def waits(self, text: bytes, dialect: int) -> bool:
        """Whether a message refers to a command that has not arrived yet.

        It may come later, because CPUs have separate buffers.
        """
        if dialect != _MONGODB:
            return False
        origin = origin_of(text)
        return origin != 0 and origin not in self._texts

    def forget(self, shape: int) -> None:
        """Forgets the shape's text."""
        self._texts.forget(shape)

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """A getMore, followed by the command that opened its cursor; any other text unchanged."""
        if dialect != _MONGODB:
            return text, dialect
        return text + (self._texts.get(origin_of(text)) or "").encode(), dialect
