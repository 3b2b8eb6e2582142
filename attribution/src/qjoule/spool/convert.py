# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of a trace from what was captured.

The capture stays as it is until the tables are whole. A conversion that was interrupted at any
moment is begun anew by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from qjoule.contract import Block
from qjoule.errors import QjouleError
from qjoule.spool.files import CONVERTING, FOLDER, is_captured, names_of, spool_of
from qjoule.spool.frames import SpoolFrame, SpoolReader
from qjoule.spool.kept import Kept
from qjoule.spool.names import Counted, Ended, Metered, NamesReader, News, Spooled, Untraced
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.named import Shape
from qjoule.stream.statements import MAX_SHAPES
from qjoule.tags.kept_calls import KeptCall
from qjoule.tags.reported_calls import Call
from qjoule.trace.durable import sync
from qjoule.trace.meta import Meta, parse_meta
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter, replace_meta

#: (bytes done, bytes in all)
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Converted:
    """The trace's meta, and how many of its queries have tags that their application reported."""

    meta: Meta
    tagged: int


def convert(
    trace: Path,
    output: Path | None = None,
    *,
    keep: bool = False,
    progress: Progress = lambda _done, _all: None,
) -> Converted:
    """Converts a captured trace.

    Args:
        output: an absent directory for the tables; None: the trace's own, from which the capture is
            then removed.
        keep: leave the capture in place.

    Raises:
        QjouleError: there is nothing to convert, another conversion runs, another version captured
            it, or the disk is full. The capture is as it was.
    """
    if not is_captured(trace):
        raise QjouleError(
            f"{trace} has nothing to convert: it is no recording, or it is converted already"
        )
    try:
        with _alone(trace):
            if output is not None:
                output.mkdir()
                for path in trace.iterdir():
                    if path.is_file():
                        shutil.copyfile(path, output / path.name)
            converted = _convert(trace, output or trace, progress)
            if not keep and output is None:
                shutil.rmtree(trace / FOLDER)
    except OSError as error:
        where = error.filename or trace
        raise QjouleError(f"{where}: {error.strerror}; the recording is as it was") from None
    return converted


@contextmanager
def _alone(trace: Path) -> Iterator[None]:
    """Raises QjouleError if another process converts the same trace."""
    with spool_of(trace).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QjouleError(f"{trace} is being converted by another process") from None
        yield


def _convert(trace: Path, output: Path, progress: Progress) -> Converted:
    unfinished = output / CONVERTING
    for name in (CONVERTING, *TABLES):  # of a conversion that was interrupted
        if (output / name).is_dir():
            shutil.rmtree(output / name)
    meta = _meta_of(trace)
    writer = TraceWriter(unfinished)
    converted = _Conversion(trace, meta, writer)
    for done, total in converted.steps():
        progress(done, total)
    meta = replace(writer.close(converted.finish()), captured=None)
    for name in TABLES:
        with suppress(FileNotFoundError):
            (unfinished / name).rename(output / name)
    replace_meta(output, meta)
    sync(output)
    shutil.rmtree(unfinished)
    return Converted(meta, converted.tagged)


def _meta_of(trace: Path) -> Meta:
    try:
        return parse_meta((trace / "meta.json").read_bytes())
    except ValueError as error:
        raise QjouleError(f"{trace / 'meta.json'}: {error}; the recording is as it was") from None


class _Conversion:
    def __init__(self, trace: Path, meta: Meta, writer: TraceWriter) -> None:
        self._trace = trace
        self._meta = meta
        with _names(trace) as names:
            self._kept = Kept(meta, NamesReader(names))
        self._ingest = Ingest(
            writer.write,
            _unasked,
            replace(meta, captured=None, loss={}, lost_cpu_ns=0),
            max_shapes=MAX_SHAPES,
            watch=self._kept,
            reports=self._kept,
            meter=None if meta.meter is None else self._kept,
            client_tags=meta.captured is not None and meta.captured.client_tags,
        )
        self._ended = self._spooled_all = False
        self._damaged = 0

    def steps(self) -> Iterator[tuple[int, int]]:
        """Converts frame by frame; yields (bytes done, bytes in all)."""
        with spool_of(self._trace).open("rb") as spool, _names(self._trace) as names:
            total = os.fstat(spool.fileno()).st_size
            reader, lines = SpoolReader(spool), NamesReader(names)
            news = iter(lines)
            for frame in reader:
                self._learn_until(news, frame.number)
                self._ingest.missing_frames += frame.missing
                self._add(frame)
                yield reader.position, total
            self._learn_until(news, None)
            self._damaged = reader.damage.bytes + lines.damaged

    @property
    def tagged(self) -> int:
        """Number of queries whose call was reported."""
        return self._kept.joined

    def finish(self) -> Meta:
        stopped = self._meta.stopped
        if stopped is None and not names_of(self._trace).is_file():
            stopped = "the names of the recording are missing"
        elif stopped is None and self._damaged:
            stopped = "parts of the recording are damaged"
        elif stopped is None and not (self._ended and self._spooled_all):
            stopped = "the recording was cut off"
        return self._ingest.finish(complete=stopped is None, stopped=stopped)

    def _learn_until(self, news: Iterator[News], number: int | None) -> None:
        """Takes in the names that frame `number` refers to; None: all the rest."""
        for one in news:
            self._ended |= isinstance(one, Ended)
            if isinstance(one, Spooled):
                if number is not None and one.frames >= number:
                    return
            elif not isinstance(one, Ended | Untraced | KeptCall | Call | Counted | Metered):
                self._ingest.learn(one)

    def _add(self, frame: SpoolFrame) -> None:
        for block in Stream(BytesIO(frame.payload), begun=frame.number > 1):
            self._spooled_all |= block.kind is Block.END
            self._ingest.add(block)


def _names(trace: Path) -> BinaryIO:
    """The names; none if there are none: queries then have no text."""
    try:
        return names_of(trace).open("rb")
    except FileNotFoundError:
        return BytesIO()


def _unasked(text: bytes, dialect: int, truncated: bool, *, rules: int | None) -> Shape:
    del text, dialect, truncated, rules
    raise AssertionError("a capture has no statements, only shapes")
