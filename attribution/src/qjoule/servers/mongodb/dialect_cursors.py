# SPDX-License-Identifier: Apache-2.0
"""Commands that open cursors, so that a getMore can be told by the one that opened its own."""

from __future__ import annotations

from qjoule.servers.mongodb.dialect_message import origin_of
from qjoule.servers.registry import dialect as number_of
from qjoule.shapes.texts import Texts

_MONGODB = number_of("mongodb")


class Cursors:
    """Texts of MongoDB shapes by hash.

    It holds the texts that were asked for last: see `Texts`.
    """

    def __init__(self) -> None:
        self._texts = Texts()

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """The shape's text, once it has been made."""
        if dialect == _MONGODB:
            self._texts.add(shape, text)

    def waits(self, text: bytes, dialect: int) -> bool:
        """Whether what is told refers to a command that has not been told yet.

        It may come later: CPUs have buffers of their own.
        """
        if dialect != _MONGODB:
            return False
        origin = origin_of(text)
        return origin != 0 and origin not in self._texts

    def forget(self, shape: int) -> None:
        """The shape's text is no longer known."""
        self._texts.forget(shape)

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """A getMore with the command behind it that opened its cursor; any other as it is."""
        if dialect != _MONGODB:
            return text, dialect
        return text + (self._texts.get(origin_of(text)) or "").encode(), dialect
