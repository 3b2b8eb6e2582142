# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of a trace from what was captured.

The capture stays as it is until the tables are whole. A conversion that was interrupted at any
moment is begun anew by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np

from qjoule.contract import Block, OwnerKind
from qjoule.errors import QjouleError
from qjoule.spool.files import CONVERTING, FOLDER, is_captured, names_of, spool_of
from qjoule.spool.frames import SpoolFrame, SpoolReader
from qjoule.spool.names import NamesReader, News, Spooled, Untraced
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.statements import MAX_SHAPES, Shape
from qjoule.trace.columns import Array
from qjoule.trace.durable import sync, write_whole
from qjoule.trace.meta import Change, Meta, Server, parse_meta
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter

#: (bytes done, bytes in all)
Progress = Callable[[int, int], object]


def convert(
    trace: Path, *, keep: bool = False, progress: Progress = lambda _done, _all: None
) -> Meta:
    """Converts a captured trace in its own directory and returns its meta.

    Args:
        keep: leave the capture in place.

    Raises:
        QjouleError: there is nothing to convert, another conversion runs, another version captured
            it, or the disk is full. The capture is as it was.
    """
    if not is_captured(trace):
        raise QjouleError(f"{trace} has nothing to convert: it is no recording, or converted")
    try:
        with _alone(trace):
            meta = _convert(trace, progress)
            if not keep:
                shutil.rmtree(trace / FOLDER)
    except OSError as error:
        where = error.filename or trace
        raise QjouleError(f"{where}: {error.strerror}; the recording is as it was") from None
    return meta


@contextmanager
def _alone(trace: Path) -> Iterator[None]:
    """Raises QjouleError if another process converts the same trace."""
    with spool_of(trace).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QjouleError(f"{trace} is being converted by another process") from None
        yield


def _convert(trace: Path, progress: Progress) -> Meta:
    unfinished = trace / CONVERTING
    for name in (CONVERTING, *TABLES):  # of a conversion that was interrupted
        if (trace / name).is_dir():
            shutil.rmtree(trace / name)
    meta = parse_meta((trace / "meta.json").read_bytes())
    writer = TraceWriter(unfinished)
    converted = _Conversion(trace, meta, writer)
    for done, total in converted.steps():
        progress(done, total)
    meta = replace(writer.close(converted.finish()), captured=None)
    for name in TABLES:
        with suppress(FileNotFoundError):
            (unfinished / name).rename(trace / name)
    write_whole(trace / "meta.json", meta.to_json().encode())
    sync(trace)
    shutil.rmtree(unfinished)
    return meta


class _Conversion:
    def __init__(self, trace: Path, meta: Meta, writer: TraceWriter) -> None:
        self._trace = trace
        self._meta = meta
        untraced = _untraced(trace)
        self._watch = _Kept(untraced, meta)
        self._ingest = Ingest(
            writer.write,
            _unasked,
            replace(meta, captured=None, loss={}, lost_cpu_ns=0),
            max_shapes=MAX_SHAPES,
            watch=self._watch,
        )
        self._ended = False
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

    def finish(self) -> Meta:
        stopped = self._meta.stopped
        if stopped is None and not names_of(self._trace).is_file():
            stopped = "the names of the recording are missing"
        elif stopped is None and self._damaged:
            stopped = "parts of the recording are damaged"
        elif stopped is None and not self._ended:
            stopped = "the recording was cut off"
        return self._ingest.finish(complete=stopped is None, stopped=stopped)

    def _learn_until(self, news: Iterator[News], number: int | None) -> None:
        """Takes in the names that frame `number` refers to; None: all the rest."""
        for one in news:
            if isinstance(one, Spooled):
                if number is not None and one.frames >= number:
                    return
            elif not isinstance(one, Untraced):
                self._ingest.learn(one)

    def _add(self, frame: SpoolFrame) -> None:
        for block in Stream(BytesIO(frame.payload), begun=frame.number > 1):
            self._ended |= block.kind is Block.END
            self._ingest.add(block)


@contextmanager
def _names(trace: Path) -> Iterator[BytesIO]:
    """The names; none if there are none: queries then have no text."""
    try:
        file = names_of(trace).open("rb")
    except FileNotFoundError:
        file = BytesIO()  # type: ignore[assignment]
    with file:
        yield file  # type: ignore[misc]


def _untraced(trace: Path) -> dict[int, str]:
    with _names(trace) as names:
        found = (one for one in NamesReader(names) if isinstance(one, Untraced))
        return {tgid: one.process for one in found for tgid in one.tgids}


def _unasked(_text: bytes, _dialect: int, _truncated: bool) -> Shape:
    raise AssertionError("a capture has no statements, only shapes")


class _Kept:
    """What was seen of untraced servers while it was captured. Their CPU time is counted now."""

    def __init__(self, untraced: dict[int, str], meta: Meta) -> None:
        self.learnt: list[Callable[[Server], object]] = []
        self.news = 0
        self._untraced = untraced
        self._changes = meta.changes
        self._cpu_ns: Counter[str] = Counter()

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(
            replace(one, cpu_ns=self._cpu_ns[one.process]) if one.process else one
            for one in self._changes
        )

    def process_of(self, tgid: int) -> str:
        return self._untraced.get(tgid, "")

    def tasks(self, records: Array) -> None:
        """They were taken in when they came."""

    def ran(self, segments: Array) -> None:
        if not self._untraced:
            return
        others = segments["owner_kind"] == OwnerKind.PROCESS
        mine = segments[others & np.isin(segments["tgid"], list(self._untraced))]
        for tgid in np.unique(mine["tgid"]).tolist():
            its = mine[mine["tgid"] == tgid]
            self._cpu_ns[self._untraced[tgid]] += int((its["t1_ns"] - its["t0_ns"]).sum())

    def advance(self, t_ns: int, *, everything: bool = False) -> set[int]:
        del t_ns, everything
        return set()
