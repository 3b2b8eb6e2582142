# SPDX-License-Identifier: Apache-2.0
"""Texts of shapes by hash, within bounded memory."""

from __future__ import annotations

from collections import OrderedDict

MAX_BYTES = 16 << 20


class Texts:
    """Forgets the least recently used texts once all together exceed `max_bytes`."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
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
