# SPDX-License-Identifier: Apache-2.0
"""Makes one share of a trace's tables from what was captured, in the process that calls it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from qjoule.contract import Block
from qjoule.spool.captured_inputs import CapturedInputs
from qjoule.spool.files import meta_of, names_of, spool_of
from qjoule.spool.frames import SpoolFrame, SpoolReader
from qjoule.spool.names import (
    CaptureEvent,
    Ended,
    NamesReader,
    Spooled,
    of_kept,
    of_queries,
    of_times,
)
from qjoule.stream.blocks import Stream
from qjoule.stream.context import Share, StreamContext
from qjoule.stream.ingest import Ingest
from qjoule.stream.names import Shape
from qjoule.trace.meta import Meta, open_regular
from qjoule.trace.writer import TraceWriter


@dataclass(frozen=True)
class Made:
    """What one share says of the whole trace."""

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
        self._kept = self._read_kept(meta)
        # One batch waits for the disk at most: nobody needs what we read in time.
        self._writer = TraceWriter(folder, waiting=1, merging=False)
        context = StreamContext(
            _unasked,
            _begun(meta),
            client_tags=meta.captured is not None and meta.captured.client_tags,
            reports=self._kept,
            meter=None if meta.meter is None else self._kept,
            watch=self._kept,
        )
        self._ingest = Ingest(self._writer.write, context, share=share)
        self._ended = self._spooled_all = False
        self._damaged = 0

    def steps(self) -> Iterator[tuple[int, int]]:
        """Converts frame by frame; yields (bytes done, bytes in all)."""
        kinds = (of_times if self._share.has_times else frozenset()) | (
            of_queries if self._share.has_queries else frozenset()
        )
        with open_regular(spool_of(self._trace)) as spool, _names(self._trace) as names:
            reader = SpoolReader(spool)
            lines = NamesReader(names, kinds)
            news = iter(lines)
            for frame in reader:
                self._learn_until(news, frame.number)
                self._ingest.missing_frames += frame.missing
                self._add(frame)
                yield reader.position, os.fstat(spool.fileno()).st_size
            self._learn_until(news, None)
            self._damaged = reader.damage.bytes + lines.damaged

    def finish(self) -> Made:
        """Writes the rest."""
        made = self._writer.close(self._ingest.finish(complete=False))
        whole = self._ended and self._spooled_all
        return Made(made, self._kept.joined, bool(self._damaged), whole)

    def _read_kept(self, meta: Meta) -> CapturedInputs:
        with _names(self._trace) as names:
            return CapturedInputs(meta, NamesReader(names, of_kept))

    def _learn_until(self, news: Iterator[CaptureEvent], number: int | None) -> None:
        """Takes in the names that frame `number` refers to; None: all the rest."""
        for one in news:
            if isinstance(one, Ended):
                self._ended = True
            elif isinstance(one, Spooled):
                if number is not None and one.frames >= number:
                    return
            else:
                self._ingest.apply_metadata(one)  # type: ignore[arg-type] # other kinds are not read

    def _add(self, frame: SpoolFrame) -> None:
        for block in Stream(BytesIO(frame.payload), begun=frame.number > 1):
            self._spooled_all |= block.kind is Block.END
            self._ingest.add(block)


def _begun(meta: Meta) -> Meta:
    """`meta` without what the stream itself says."""
    return replace(meta, captured=None, loss={}, lost_cpu_ns=0)


def _names(trace: Path) -> BinaryIO:
    """The names; none if there are none: queries then have no text."""
    try:
        return open_regular(names_of(trace))
    except FileNotFoundError:
        return BytesIO()


def _unasked(text: bytes, dialect: int, truncated: bool, *, rules: int | None) -> Shape:
    del text, dialect, truncated, rules
    raise AssertionError("a capture has no statements, only shapes")
