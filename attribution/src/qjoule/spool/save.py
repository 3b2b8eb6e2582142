# SPDX-License-Identifier: Apache-2.0
"""Saves what a flight recorder holds as a recording of its own, to be converted later.

The tracer goes on writing meanwhile, and may write over a segment while it is copied. Frames have
ascending numbers and checksums, so this is noticed: the part then begins with the next segment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from qjoule.contract import BLOCK, BLOCK_MAGIC, END, Block
from qjoule.errors import QjouleError
from qjoule.spool.files import FOLDER, RingFiles, meta_of, names_of, spool_of
from qjoule.spool.frames import StoredFrame, encoded_frame, stored_frame
from qjoule.spool.names import Counted, Ended, NamesReader, SegmentBegins, Spooled, line_of
from qjoule.spool.ring_names import Moment
from qjoule.stream.blocks import Stream, encode_block
from qjoule.stream.pending import PartOf
from qjoule.trace.durable import replace_meta, sync
from qjoule.trace.meta import Captured, Change, Meta, Part
from qjoule.trace.meta_file import open_regular

#: A save never has more dirty pages than this: the server's own writes do not wait for them.
STEP_BYTES = 4 << 20
#: Files that a part gets beside its tables.
_COPIED_FILES = ("calibration.json", "memory.bin")
_MOST_COPIED_BYTES = 16 << 20


@dataclass(frozen=True)
class Saved:
    """A part that was saved. `late`: segments that were written over before they were copied."""

    directory: Path
    seconds: float
    late: int = 0


class _WrittenOver(Exception):
    """A segment was written over while it was copied."""

    def __init__(self, segment: SegmentBegins) -> None:
        self.segment = segment


def save(
    trace: Path, moment: Moment, meta: Meta, part: Part, *, counted: Counted | None = None
) -> Saved:
    """Saves what is kept, `part.keep_s` at least if the ring holds it, up to `moment`.

    Args:
        trace: the recorder's directory; the part is put there.
        meta: of the recording so far.
        counted: what was lost on the way from applications, so far.

    Raises:
        QjouleError: nothing is there yet, or there is no room. Nothing is left behind then.
    """
    unfinished = trace / f".saving-{os.getpid()}"
    segments = _segments_to_keep(moment, part)
    late = 0
    try:
        _need_room(trace, segments)
        while segments:
            shutil.rmtree(unfinished, ignore_errors=True)
            try:
                copied = _Copy(trace, unfinished, moment, counted).save(segments, meta, part)
                sync(unfinished)
                return replace(copied, directory=_give_name(unfinished, trace, part), late=late)
            except _WrittenOver as over:
                late += 1
                segments = [
                    segment for segment in segments if segment.segment > over.segment.segment
                ]
        raise QjouleError("not saved: nothing is recorded yet")
    except OSError as error:
        raise QjouleError(f"not saved: {error.strerror}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def left_behind(trace: Path) -> tuple[Moment, Meta]:
    """Reads what an ended recorder left in its directory, even after a crash.

    Raises:
        QjouleError: there is nothing to save.
    """
    files = RingFiles(trace)
    sizes, frame = {}, 0
    segments = files.segments()
    try:
        for segment in segments:
            with open_regular(files.names(segment.segment)) as file:
                frame_counts = [
                    line.frames for line in NamesReader(file) if isinstance(line, Spooled)
                ]
                sizes[segment.segment] = file.tell()
            frame = max([frame, *frame_counts])
        meta = meta_of(trace)
    except OSError as error:
        raise QjouleError(f"{error.filename or trace}: {error.strerror}") from None
    return Moment(tuple(segments), sizes, frame), meta


def _segments_to_keep(moment: Moment, part: Part) -> list[SegmentBegins]:
    """The fewest segments that hold all that is to be kept."""
    segments = list(moment.segments)
    if part.keep_s is None or not segments or not moment.t_ns:
        return segments
    since_ns = moment.t_ns - round(part.keep_s * 1e9)
    first = max(
        (index for index, segment in enumerate(segments) if segment.begin_ns <= since_ns), default=0
    )
    return segments[first:]


def _need_room(trace: Path, segments: Sequence[SegmentBegins]) -> None:
    """Raises unless the part has room, and the ring afterwards has what it may still take."""
    files = RingFiles(trace)
    sizes = [files.spool(segment.segment).stat().st_size for segment in segments]
    needed = sum(sizes) + max(sizes, default=0) + STEP_BYTES
    room = os.statvfs(trace)
    free = room.f_bavail * room.f_frsize
    if free < needed:
        raise QjouleError(
            f"not saved: it needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free"
        )


def _give_name(unfinished: Path, trace: Path, part: Part) -> Path:
    """Gives a finished part its name: when it was saved and why."""
    name = f"kept-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{part.why}"
    for number in range(1, 1000):
        final = trace / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            final.mkdir()  # nobody else has it; rename() replaces an empty directory
            unfinished.rename(final)
            return final
    raise QjouleError(f"not saved: there are too many {name}")


class _Copy:
    def __init__(self, trace: Path, output: Path, moment: Moment, counted: Counted | None) -> None:
        self._files = RingFiles(trace)
        self._trace, self._output = trace, output
        self._moment = moment
        self._counted = counted
        self._last: StoredFrame | None = None
        self._end_ns = 0
        self._bytes = 0

    def save(self, segments: Sequence[SegmentBegins], meta: Meta, part: Part) -> Saved:
        self._output.mkdir(mode=0o777)
        (self._output / FOLDER).mkdir()
        with ExitStack() as stack:
            # Opened at once: the recorder may remove names while segments are copied.
            names = [self._open_names(stack, segment, segments[0]) for segment in segments]
            with spool_of(self._output).open("xb") as spool:
                for segment in segments:
                    self._copy_segment(segment, spool)
                if self._last is None or self._end_ns <= segments[0].begin_ns:
                    raise QjouleError("not saved: nothing is recorded yet")
                ended = self._write_end(spool)
                _to_disk(spool)
            with names_of(self._output).open("xb") as file:
                begins = segments[0]
                file.write(
                    line_of(PartOf(begins.begin_ns, self._end_ns, begins.frame - 1, begins.lost))
                )
                for opened in names:
                    _copy_names(*opened, file)
                file.write(b"".join(self._last_lines(begins)))
                if not ended:
                    file.write(line_of(Ended(self._end_ns)))
                _to_disk(file)
        begin_ns = segments[0].begin_ns
        for name in _COPIED_FILES:
            with suppress(FileNotFoundError), open_regular(self._trace / name) as file:
                (self._output / name).write_bytes(file.read(_MOST_COPIED_BYTES))
        captured = replace(meta.captured or Captured(), frames=0, queries=0, bytes=self._bytes)
        part = replace(part, recorder_begin_ns=meta.begin_ns)
        changes = tuple(change for change in meta.changes if _is_in_part(change, begin_ns))
        meta = replace(meta, changes=changes)
        saved = replace(meta, begin_ns=begin_ns, end_ns=self._end_ns, loss={}, lost_cpu_ns=0)
        saved = replace(saved, complete=False, stopped=None, captured=captured, part=part)
        replace_meta(self._output, saved)
        return Saved(self._output, (self._end_ns - begin_ns) * 1e-9)

    def _open_names(
        self, stack: ExitStack, segment: SegmentBegins, first: SegmentBegins
    ) -> tuple[BinaryIO | None, BinaryIO, int]:
        """Opens the state (first segment alone) and the names; returns how many bytes count."""
        try:
            state = None
            if segment is first:
                state = stack.enter_context(open_regular(self._files.state(segment.segment)))
            names = stack.enter_context(open_regular(self._files.names(segment.segment)))
        except FileNotFoundError:
            raise _WrittenOver(segment) from None
        return state, names, self._moment.names.get(segment.segment, 0)

    def _copy_segment(self, segment: SegmentBegins, spool: BinaryIO) -> None:
        """Copies whole frames whose numbers follow on each other, up to the moment's."""
        position, stepped = 0, 0
        with open_regular(self._files.spool(segment.segment)) as file:
            number = segment.frame
            while number <= self._moment.frame and number < self._frame_after(segment):
                frame = stored_frame(file, position)
                if frame is None and segment is self._moment.segments[-1]:
                    break  # of a recorder that was killed: up to its last whole frame
                if frame is None or frame.number != number:
                    raise _WrittenOver(segment)
                spool.write(frame.head)
                spool.write(frame.stored)
                position += frame.size
                number += 1
                self._last = frame
                self._end_ns = _flushed_ns(frame) or self._end_ns
                if position - stepped >= STEP_BYTES:
                    stepped = position
                    _to_disk(spool)
        self._bytes += position

    def _frame_after(self, segment: SegmentBegins) -> int:
        """Number of the first frame after a segment."""
        later = [other.frame for other in self._moment.segments if other.segment > segment.segment]
        return min(later, default=self._moment.frame + 1)

    def _write_end(self, spool: BinaryIO) -> bool:
        """Ends the spool as the tracer would. Returns whether the tracer has done so already."""
        assert self._last is not None
        payload = self._last.payload
        blocks = [] if payload is None else list(Stream(BytesIO(payload), begun=True))
        if blocks and blocks[-1].kind is Block.END:
            self._end_ns = max(self._end_ns, int(blocks[-1].records["t_ns"][0]))
            return True
        end = np.zeros(1, END)
        end["t_ns"] = self._end_ns
        last = encode_block(Block.END, end, t_ns=self._end_ns)
        spool.write(encoded_frame(self._last.number + 1, self._end_ns, last))
        return False

    def _last_lines(self, begins: SegmentBegins) -> list[bytes]:
        """Lines that end the names: the last frame, and losses since the part began."""
        assert self._last is not None
        lines = [line_of(Spooled(self._last.number + 1))]
        if self._counted is not None:
            before, now = begins.counted, self._counted
            since = Counted(
                now.lost_calls - before.lost_calls,
                now.unverified_calls - before.unverified_calls,
                now.bad_meter_lines - before.bad_meter_lines,
            )
            if since != Counted():
                lines.append(line_of(since))
        return lines


def _is_in_part(change: Change, begin_ns: int) -> bool:
    """Whether a change of a server was still so when the part began, or happened in it."""
    if change.until_ns is not None:
        return change.until_ns >= begin_ns
    return change.what != "followed" or change.t_ns is None or change.t_ns >= begin_ns


def _copy_names(state: BinaryIO | None, names: BinaryIO, size: int, output: BinaryIO) -> None:
    if state is not None:
        state.readline()  # SegmentBegins
        shutil.copyfileobj(state, output)
    while size > 0 and (piece := names.read(min(size, STEP_BYTES))):
        output.write(piece)
        size -= len(piece)


def _flushed_ns(frame: StoredFrame) -> int:
    """The time of the FLUSH block that ends a frame: all before it was sent; 0: it ends in none."""
    payload = frame.payload or b""
    if len(payload) < BLOCK.itemsize:
        return 0
    last = np.frombuffer(payload[-BLOCK.itemsize :], BLOCK)[0]
    is_flush = last["magic"] == BLOCK_MAGIC and last["kind"] == Block.FLUSH
    return int(last["t_ns"]) if is_flush else 0


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fdatasync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
