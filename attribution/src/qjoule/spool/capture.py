# SPDX-License-Identifier: Apache-2.0
"""Reads the tracer's pipe while the bulk of a recording goes to the spool, or to a ring.

The pipe carries little: the machine, processes, statements, sessions and tags. Statements lose
their literals here, as in every recording, before anything of them is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.contract import Block
from qjoule.errors import QjouleError
from qjoule.spool.files import names_of, spool_of
from qjoule.spool.names import (
    Counted,
    Ended,
    Metered,
    MeterReading,
    NamesWriter,
    SegmentBegins,
    Untraced,
)
from qjoule.spool.recorder import Now, Recorder
from qjoule.spool.ring_names import RingNames
from qjoule.stream.block_reader import BlockReader
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.client_tags import ClientTags
from qjoule.stream.context import StreamContext, with_meter
from qjoule.stream.names import CompiledCode, CompiledListing
from qjoule.stream.session_updates import OpaqueConnections, read_session
from qjoule.stream.statements import Statements
from qjoule.tags.tagging import TagSource
from qjoule.trace.columns import Array
from qjoule.trace.durable import replace_meta
from qjoule.trace.meta import Captured, Meta, Server, Throttled

#: Stream time between two checks of servers, applications and meters.
CHECK_NS = 1_000_000_000
_CODE_OF_LINE = 1000  #: methods in a line of names
#: Blocks that come before anything is known of the trace.
_FIRST = (Block.HELLO, Block.CPU, Block.DOMAIN)
#: See `RingCapture.whole`.
Whole = Callable[[SegmentBegins, int, Meta], object]
#: Number of texts after which those that are not needed any more are forgotten.
MAX_TEXTS = 50_000


@dataclass(frozen=True)
class CaptureContext(StreamContext):
    """`reports`: the source of applications' calls, which are captured too. `compiled`: names what
    JVMs have compiled, once tracing has ended. `throttled`: how often CPUs throttled themselves
    until then.
    """

    reports: TagSource | None = None
    compiled: Callable[[], Sequence[CompiledCode]] = tuple
    throttled: Callable[[], Throttled | None] = lambda: None


class Capture(BlockReader):
    """Writes the names of one recording beside its spool."""

    def __init__(
        self, directory: Path, context: CaptureContext, *, names: NamesWriter | None = None
    ) -> None:
        """`directory`: of the trace, with the folder that its spool is in; `names`: where names go
        in place of a file there. Raises `OSError`.
        """
        self._directory = directory
        self._names = names or NamesWriter(names_of(directory).open("wb", buffering=0))
        super().__init__(context)
        self._context = context
        self._statements = self._new_statements()
        self._tags = ClientTags(on_tags=self._names.add)
        self._reports = context.reports
        self._meter = context.meter
        self._opaque = OpaqueConnections()
        self._checked_ns = 0
        self.captured = Captured(client_tags=context.client_tags)

    @property
    def meta(self) -> Meta:
        """What is known of the trace so far."""
        loss = dict(sorted(self._losses.counts().items()))
        changes = () if self._watch is None else self._watch.changes
        return replace(
            self._announced.meta,
            loss=loss,
            lost_cpu_ns=self._losses.lost_ns,
            changes=changes,
            captured=self.captured,
        )

    @property
    def news(self) -> tuple[int, tuple[Server, ...]]:
        """Changes when servers exit, are followed, or run untraced."""
        return 0 if self._watch is None else self._watch.news, self._announced.meta.servers

    def run(self, stream: Stream) -> Meta:
        """Reads a whole stream, whose bulk the tracer writes elsewhere; returns the trace's meta.

        Raises:
            QjouleError: the stream is damaged, or the disk is full; what came before is kept.
        """
        written_news = None
        try:
            for frame in stream:
                # Readers of meta.json meanwhile see which servers have exited or are followed.
                if written_news != self.news and frame.kind not in _FIRST:
                    written_news = self.news
                    replace_meta(self._directory, self.meta)
                self.add(frame)
        except OSError as error:
            path = names_of(self._directory)
            raise QjouleError(f"{path}: {error.strerror}; what came before is kept") from None
        finally:
            throttled = self._context.throttled()
            meta = replace(self.meta, stopped=stream.stopped, throttled=throttled)
            self._names.close()
            with suppress(OSError):
                replace_meta(self._directory, meta)
        return meta

    def _on_text(self, frame: Frame) -> None:
        if not self._tags.take(frame):
            self._statements.add(frame)

    def _on_session(self, frame: Frame) -> bool:
        if (event := read_session(frame)) is None:
            return False
        self._opaque.learn(event)
        self._names.add(event)
        return True

    def _on_tasks(self, records: Array) -> None:
        self._names.add(records)

    def _on_flush(self, t_ns: int) -> None:
        self._statements.drop_rows()
        if t_ns >= self._checked_ns + CHECK_NS:
            self._checked_ns = t_ns
            self._update_changes(t_ns)

    def _on_end(self, t_ns: int) -> None:
        self._statements.settle()
        self._update_changes(t_ns, everything=True)
        compiled = self._context.compiled()
        for at in range(0, len(compiled), _CODE_OF_LINE):
            self._names.add(CompiledListing(tuple(compiled[at : at + _CODE_OF_LINE])))
        self._names.add(Ended(t_ns))
        self._names.flush()

    def _on_records(self, frame: Frame) -> None:
        if frame.kind is not Block.SPOOLED:
            return
        frames, size, queries, *segment = frame.records[0].tolist()
        self.captured = replace(self.captured, frames=frames, queries=queries, bytes=size)
        self._names.spooled(frames, *segment)

    def _new_statements(self) -> Statements:
        return Statements(
            self._context.fingerprint,
            capture=self._announced.meta.literals,
            ids=self._context.ids,
            on_named=self._names.add,
            starts=False,
        )

    def _update_changes(self, t_ns: int, *, everything: bool = False) -> None:
        self._read_reports(everything=everything)
        if self._watch is None:
            return
        by_process: dict[str, list[int]] = {}
        for tgid in self._watch.advance(t_ns, everything=everything):
            by_process.setdefault(self._watch.process_of(tgid), []).append(tgid)
        for process, tgids in by_process.items():
            self._names.add(Untraced(process, tuple(sorted(tgids))))

    def _read_reports(self, *, everything: bool) -> None:
        """Takes in what applications and an external meter reported."""
        lost, unverified, bad = 0, 0, 0
        if self._reports is not None:
            for finished in self._reports.take_finished(everything=everything):
                self._names.add(finished)
            for call in self._reports.reported(self._opaque.servers, everything=everything):
                self._names.add(call)
            lost, unverified = self._reports.lost, self._reports.unverified
        if self._meter is not None:
            bad = self._meter.bad
            if readings := self._meter.readings():
                rows = (
                    MeterReading(reading.t_ns, reading.stamp_ns, reading.raw)
                    for reading in readings
                )
                self._names.add(Metered(tuple(rows)))
            self._announced.meta = with_meter(self._announced.meta, self._meter.info)
        if everything and (lost or unverified or bad):
            self._names.add(Counted(lost, unverified, bad))


@contextmanager
def open_spool(directory: Path) -> Iterator[int]:
    """A descriptor of the new spool of a trace.

    Raises:
        QjouleError: it cannot be made.
    """
    # Relative to the working directory: our user may have no access to the directories above.
    path = spool_of(directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o777)
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise QjouleError(f"cannot write {path.absolute()}: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        is_empty = not os.fstat(descriptor).st_size
        os.close(descriptor)
        if is_empty:  # tracing did not begin
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()


class RingCapture(Capture):
    """Writes the names of a flight recorder, and has its recorder save.

    `whole` is called with each complete segment, the time until which all of it is known, and the
    recording's meta.
    """

    def __init__(
        self,
        directory: Path,
        context: CaptureContext,
        recorder: Recorder,
    ) -> None:
        self._ring = RingNames(directory, lambda: self._statements.databases, self._on_segment)
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
            self._recorder.process_requests(self.now)  # all names in the frames are written

    def _on_end(self, t_ns: int) -> None:
        super()._on_end(t_ns)
        self._recorder.process_requests(self.now)

    def now(self) -> Now:
        """The state that a save needs, such as the point up to which the ring can be saved."""
        return Now(self._ring.moment(), self.meta, self._ring.needed.counted)

    def _on_segment(self, segment: int) -> None:
        if self._statements.taken > MAX_TEXTS:
            shapes = self._ring.needed.shapes
            self._statements = self._statements.anew(shapes)
        before = [
            begins for begins in self._ring.moment().segments if begins.segment == segment - 1
        ]
        if before and self._flushed_ns > before[0].begin_ns:
            self.whole(before[0], self._flushed_ns, self.meta)
