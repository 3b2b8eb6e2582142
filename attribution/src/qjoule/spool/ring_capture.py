# SPDX-License-Identifier: Apache-2.0
"""Reads the tracer's pipe while the bulk of a recording goes to a ring (`Capture` does so for a
spool).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qjoule.contract import Block
from qjoule.spool.capture import Capture, CaptureContext
from qjoule.spool.names import SegmentBegins
from qjoule.spool.recorder import Now, Recorder
from qjoule.spool.ring_names import RingNames
from qjoule.stream.blocks import Frame, Stream
from qjoule.trace.meta import Meta

#: See `RingCapture.whole`.
Whole = Callable[[SegmentBegins, int, Meta], object]
#: Texts taken in before what is not needed any more is forgotten.
MAX_TEXTS = 50_000


class RingCapture(Capture):
    """Writes the names of a flight recorder, and has its recorder save.

    `whole` is called with each segment that is whole, up to when all is known of it, and what is
    known of the recording.
    """

    def __init__(
        self,
        directory: Path,
        context: CaptureContext,
        recorder: Recorder,
    ) -> None:
        self._ring = RingNames(directory, lambda: self._statements.databases, self._turn)
        self._recorder = recorder
        self.whole: Whole = lambda _begins, _end_ns, _meta: None
        self._flushed_ns = 0
        super().__init__(directory, context, names=self._ring)

    def run(self, stream: Stream) -> Meta:
        try:
            return super().run(stream)
        finally:
            self._recorder.close(self.now)

    def _on_announced(self, frame: Frame) -> None:
        if frame.kind is Block.HELLO:
            self._ring.t_ns = int(frame.records[0]["t_ns"])

    def _on_flush(self, t_ns: int) -> None:
        self._flushed_ns = t_ns
        super()._on_flush(t_ns)

    def _on_records(self, frame: Frame) -> None:
        if frame.kind is Block.SPOOLED:
            self._ring.lost(self._losses.sums, frame.t_ns)
            super()._on_records(frame)
            self._recorder.process_requests(self.now)  # all is named that the frames refer to

    def _on_end(self, t_ns: int) -> None:
        super()._on_end(t_ns)
        self._recorder.process_requests(self.now)

    def now(self) -> Now:
        """Up to where the ring can be saved."""
        return Now(self._ring.moment(), self.meta, self._ring.needed.counted)

    def _turn(self, segment: int) -> None:
        if self._statements.taken > MAX_TEXTS:
            known = self._ring.needed.shapes
            self._statements = self._statements.anew(known)
        before = [one for one in self._ring.moment().segments if one.segment == segment - 1]
        if before and self._flushed_ns > before[0].begin_ns:
            self.whole(before[0], self._flushed_ns, self.meta)
