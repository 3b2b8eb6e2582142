# SPDX-License-Identifier: Apache-2.0
"""Makes one share of a trace's tables from what was captured, in the process that calls it: the
tracer's records, and what was kept of untraced servers, of applications and of a meter.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from qjoule.contract import Block
from qjoule.spool.files import meta_of, names_of, spool_of
from qjoule.spool.frames import SpoolFrame, SpoolReader
from qjoule.spool.names import (
    KINDS_OF_INPUTS,
    KINDS_OF_QUERIES,
    KINDS_OF_TIMES,
    CaptureEvent,
    Counted,
    Ended,
    Metered,
    MeterReading,
    NamesReader,
    Spooled,
    Untraced,
)
from qjoule.stream.blocks import Stream
from qjoule.stream.context import Share, StreamContext, untraced_cpu_ns
from qjoule.stream.ingest import Ingest
from qjoule.stream.names import Shape
from qjoule.tags.kept_calls import KeptCall, KeptCalls
from qjoule.tags.reported_calls import Call
from qjoule.trace.columns import Array
from qjoule.trace.meta import Change, Meta, MeterInfo, Server
from qjoule.trace.meta_file import open_regular
from qjoule.trace.writer import TraceWriter


class CapturedInputs(KeptCalls):
    """Answers `qjoule.stream.ingest` in place of the live sources: all is known from the start.

    The CPU time of untraced servers is counted here, from the segments.
    """

    def __init__(self, meta: Meta, lines: Iterable[CaptureEvent]) -> None:
        calls: list[KeptCall] = []
        counted = Counted()
        self._readings: list[MeterReading] = []
        self._unseen: list[Call] = []
        self._untraced: dict[int, str] = {}
        for line in lines:
            match line:
                case KeptCall():
                    calls.append(line)
                case Call():
                    self._unseen.append(line)
                case Untraced():
                    self._untraced |= dict.fromkeys(line.tgids, line.process)
                case Metered():
                    self._readings += line.rows
                case Counted():
                    counted = line
        super().__init__(calls)
        self._changes = meta.changes
        self._cpu_ns: Counter[str] = Counter()
        self.info: MeterInfo | None = meta.meter
        self.lost, self.unverified = counted.lost_calls, counted.unverified_calls
        self.bad = counted.bad_meter_lines
        self.learnt: list[Callable[[Server], object]] = []
        self.news = 0

    # ---- untraced servers: qjoule.stream.ingest.Watching -----------------------------------------

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(
            replace(change, cpu_ns=self._cpu_ns[change.process]) if change.process else change
            for change in self._changes
        )

    def process_of(self, tgid: int) -> str:
        return self._untraced.get(tgid, "")

    untraced_now = process_of

    def tasks(self, records: Array) -> None:
        """Does nothing: the capture has evaluated these records."""

    sessions = tasks

    def ran(self, segments: Array) -> None:
        if not self._untraced:
            return
        for tgid, cpu_ns in untraced_cpu_ns(segments, self._untraced):
            self._cpu_ns[self._untraced[tgid]] += cpu_ns

    def advance(self, t_ns: int, *, everything: bool = False) -> set[int]:
        del t_ns, everything
        return set()

    # ---- applications: qjoule.stream.client_reports.CallReports ----------------------------------

    def reported(self, opaque: Mapping[str, int], *, everything: bool = False) -> list[Call]:
        """Returns all calls to servers whose queries no probe sees, the first time it is called."""
        del opaque, everything
        unseen, self._unseen = self._unseen, []
        return unseen

    # ---- meter: qjoule.stream.context.Metering --------------------------------------------------

    def readings(self) -> list[MeterReading]:
        """Returns all readings the first time it is called."""
        readings, self._readings = self._readings, []
        return readings


@dataclass(frozen=True)
class Made:
    """The result of converting one share of a trace."""

    meta: Meta
    tagged: int  #: queries whose call was reported
    damaged: bool  #: something could not be read
    whole: bool  #: both files have their end


class Tables:
    """The tables of `share`, written to the directory `folder`, which must be absent.

    Raises:
        QjouleError: another version captured it, or the disk is full.
    """

    def __init__(self, trace: Path, folder: Path, share: Share = Share.ALL) -> None:
        self._trace, self._share = trace, share
        meta = meta_of(trace)
        self._captured = self._read_inputs(meta)
        # One batch waits for the disk at most: nobody needs what we read in time.
        self._writer = TraceWriter(folder, waiting=1, merging=False)
        context = StreamContext(
            _no_fingerprint,
            _initial_meta(meta),
            client_tags=meta.captured is not None and meta.captured.client_tags,
            reports=self._captured,
            meter=None if meta.meter is None else self._captured,
            watch=self._captured,
        )
        self._ingest = Ingest(self._writer.write, context, share=share)
        self._ended = self._spooled_all = False
        self._damaged = 0

    def steps(self) -> Iterator[tuple[int, int]]:
        """Converts frame by frame; yields (bytes done, bytes in all)."""
        kinds = (KINDS_OF_TIMES if self._share.has_times else frozenset()) | (
            KINDS_OF_QUERIES if self._share.has_queries else frozenset()
        )
        with open_regular(spool_of(self._trace)) as spool, _open_names(self._trace) as names:
            reader = SpoolReader(spool)
            lines = NamesReader(names, kinds)
            news = iter(lines)
            for frame in reader:
                self._apply_names_until(news, frame.number)
                self._ingest.missing_frames += frame.missing
                self._add(frame)
                yield reader.position, os.fstat(spool.fileno()).st_size
            self._apply_names_until(news, None)
            self._damaged = reader.damage.bytes + lines.damaged

    def finish(self) -> Made:
        """Writes the rest."""
        made = self._writer.close(self._ingest.finish(complete=False))
        whole = self._ended and self._spooled_all
        return Made(made, self._captured.joined, bool(self._damaged), whole)

    def _read_inputs(self, meta: Meta) -> CapturedInputs:
        with _open_names(self._trace) as names:
            return CapturedInputs(meta, NamesReader(names, KINDS_OF_INPUTS))

    def _apply_names_until(self, news: Iterator[CaptureEvent], number: int | None) -> None:
        """Takes in the names that frame `number` refers to; None: all the rest."""
        for event in news:
            if isinstance(event, Ended):
                self._ended = True
            elif isinstance(event, Spooled):
                if number is not None and event.frames >= number:
                    return
            else:
                self._ingest.apply_metadata(event)  # type: ignore[arg-type] # other kinds are not read

    def _add(self, frame: SpoolFrame) -> None:
        for block in Stream(BytesIO(frame.payload), begun=frame.number > 1):
            self._spooled_all |= block.kind is Block.END
            self._ingest.add(block)


def _initial_meta(meta: Meta) -> Meta:
    """`meta` without what the stream itself says."""
    return replace(meta, captured=None, loss={}, lost_cpu_ns=0)


def _open_names(trace: Path) -> BinaryIO:
    """The names; none if there are none: queries then have no text."""
    try:
        return open_regular(names_of(trace))
    except FileNotFoundError:
        return BytesIO()


def _no_fingerprint(text: bytes, dialect: int, truncated: bool, *, rules: int | None) -> Shape:
    del text, dialect, truncated, rules
    raise AssertionError("a capture has no statements, only shapes")
