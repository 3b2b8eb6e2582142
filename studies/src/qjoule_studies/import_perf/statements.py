# SPDX-License-Identifier: Apache-2.0
"""Turns statements into shapes and sends each shape once, as the tracer's TEXT blocks do."""

from __future__ import annotations

import numpy as np

from qjoule.api.capture import MAX_SHAPES, SHAPE_OTHER, TEXT, Block, Frame
from qjoule.api.statements import LANGUAGES, Lexis, fingerprint, reduce_statement

_REDUCED_MAX = 4 * MAX_SHAPES  #: distinct statements without literals that are remembered


class Shapes:
    """Memory is bounded: beyond `_REDUCED_MAX` distinct statements, all others share one shape."""

    def __init__(self) -> None:
        self._shape_of: dict[tuple[int, str], int] = {}
        self._told: set[int] = set()
        self._frames: list[Frame] = []

    def shape_of(self, text: bytes, statement_bytes: int, dialect: int, server: int) -> int:
        """The shape's number; its text is sent before any query that has it."""
        # The settings of the session are not known: 0.
        is_cut = statement_bytes > len(text)
        reduced, _ = reduce_statement(text, LANGUAGES[dialect].lexis or Lexis.STANDARD, 0)
        key = dialect, reduced + ("…" if is_cut else "")
        known = self._shape_of.get(key)
        if known is not None:
            return known
        if len(self._shape_of) >= _REDUCED_MAX:
            return SHAPE_OTHER
        shape = int(fingerprint(text, dialect, is_cut, rules=0).fingerprint, 16) or 1
        self._shape_of[key] = shape
        if shape not in self._told:
            self._told.add(shape)
            row = (shape, statement_bytes, len(text), server, dialect, 0, 0, (0, 0, 0))
            self._frames.append(Frame(Block.TEXT, 0, np.array([row], TEXT), text))
        return shape

    def take_frames(self) -> list[Frame]:
        """TEXT blocks since the last call."""
        frames, self._frames = self._frames, []
        return frames
