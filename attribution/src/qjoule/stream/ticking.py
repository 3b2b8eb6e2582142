# SPDX-License-Identifier: Apache-2.0
"""A stream that calls a function a few times a second, whether or not anything happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qjoule.contract import Block
from qjoule.stream.blocks import Frame, Stream


class TickingStream(Stream):
    """`tick` is called after each FLUSH block, which the tracer writes five times a second."""

    def __init__(self, inner: Stream, tick: Callable[[], object]) -> None:
        super().__init__(-1)
        self._inner, self._tick = inner, tick

    def __iter__(self) -> Iterator[Frame]:
        for frame in self._inner:
            yield frame
            if frame.kind is Block.FLUSH:
                self._tick()
        self._end_as(self._inner)
