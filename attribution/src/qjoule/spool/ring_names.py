# SPDX-License-Identifier: Apache-2.0
"""The names of a flight recorder: a file for each segment of its ring.

So they are as bounded as the ring: when its oldest segment is written over, the names that came
with it go, except for those that are still needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qjoule.spool.live_name_table import LiveNameTable
from qjoule.spool.names import CaptureEvent, NamesWriter, SegmentBegins, Spooled, line_of
from qjoule.spool.ring_files import SEGMENTS, RingFiles, queries_in
from qjoule.stream.pending import LostBefore

Sums = Mapping[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Moment:
    """Up to where the ring can be saved.

    `names`: the size of each segment's names, by number, oldest first.
    """

    segments: tuple[SegmentBegins, ...]
    names: Mapping[int, int]
    frame: int
    t_ns: int = 0  #: of the last frame; 0: not known


class RingNames(NamesWriter):
    """Writes names by segment.

    `databases`: what statements change the default database to, by shape. `turned` is called with
    the number of each segment that begins.
    """

    def __init__(
        self,
        trace: Path,
        databases: Callable[[], Mapping[int, str | None]],
        turned: Callable[[int], object] = lambda _segment: None,
    ) -> None:
        self._files = RingFiles(trace)
        self._databases = databases
        self._turned = turned
        self.needed = LiveNameTable()
        self._lost: Sums = {}
        self._lost_then: Sums = {}
        self._then_ns = 0
        self._segments: list[SegmentBegins] = []
        self._sizes: dict[int, int] = {}
        self._frame = 0
        self.t_ns = 0  #: of the frames so far
        self._segment = 1
        super().__init__(self._files.names(1).open("wb", buffering=0))

    def add(self, news: CaptureEvent) -> None:
        self.needed.learn(news)
        super().add(news)

    def moment(self) -> Moment:
        return Moment(tuple(self._segments), dict(self._sizes), self._frame, self.t_ns)

    def lost(self, sums: Sums, t_ns: int) -> None:
        """What was lost, and the time, up to the frames of the next call of `spooled`."""
        self._lost_then, self._then_ns = sums, t_ns

    def spooled(self, frames: int, segment: int, segment_begins: int) -> None:
        """All that these frames refer to was added before. Raises `OSError`."""
        if not self._segments or segment != self._segment:
            self._begin(segment, segment_begins)
        super().add(Spooled(frames))
        self.flush()
        self._sizes[self._segment] = self._file.tell()
        self._frame = frames
        self._lost, self.t_ns = self._lost_then, self._then_ns

    def _begin(self, segment: int, frame: int) -> None:
        """Begins the names of a segment, whose first frames are described by what was added."""
        if not self._segments:
            self._lines.clear()  # they are in the state
        else:
            self.flush()
            self._sizes[self._segment] = self._file.tell()
            self._file.close()
            self._look_through(self._files.spool(self._segment))
            self.needed.turn()
            self._file = self._files.names(segment).open("wb", buffering=0)
        self._segment = segment
        lost = tuple(LostBefore(*one, *sums) for one, sums in sorted(self._lost.items()))
        begins = SegmentBegins(segment, frame, self.t_ns, lost, self.needed.counted)
        self._write_state(begins)
        oldest = segment - SEGMENTS + 1
        self._segments = [one for one in self._segments if one.segment >= oldest] + [begins]
        self._sizes = {n: size for n, size in self._sizes.items() if n >= oldest}
        self._files.forget(oldest)
        self._turned(segment)

    def _write_state(self, begins: SegmentBegins) -> None:
        """Whole or not at all: a save may be made of what a crash left."""
        path = self._files.state(begins.segment)
        unfinished = path.with_name(f".{path.name}")
        with unfinished.open("wb") as file:
            file.write(line_of(begins))
            for news in self.needed.lines():
                file.write(line_of(news))
        unfinished.rename(path)

    def _look_through(self, spool: Path) -> None:
        """Learns from a whole segment what is in use, only where that matters."""
        databases = self._databases()
        if not databases and not self.needed.crowded:
            return
        for queries in queries_in(spool):
            self.needed.use(queries[["shape", "tags", "session"]])
            if databases:
                self.needed.follow(queries, databases)
