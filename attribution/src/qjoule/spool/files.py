# SPDX-License-Identifier: Apache-2.0
"""The files of a recording that is not converted yet, below the trace's directory, and those of a
flight recorder, in the folder `ring` of its directory.

`spool-0`, `spool-1`, …: segments of the ring, which the tracer writes over in turn. `names-N`: what
was named while segment N was written. `state-N`: what was named before and is still needed from
segment N on; it begins with `SegmentBegins`. `socket`: where `qjoule dump` asks for a save.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from qjoule.contract import QUERY, Block
from qjoule.errors import QjouleError
from qjoule.spool.frames import SpoolReader
from qjoule.spool.names import NamesReader, SegmentBegins
from qjoule.stream.blocks import Stream
from qjoule.trace.columns import Array
from qjoule.trace.meta import Meta
from qjoule.trace.meta_file import open_regular, read_meta

#: The folder of both; removed once the trace is complete.
FOLDER = "capture"
SPOOL, NAMES = "spool", "names"
#: Where a conversion writes its tables until they are whole.
CONVERTING = "converting"
RING = "ring"
SOCKET = "socket"
#: Name of the directory of a part that was saved.
PART = re.compile(r"kept-[A-Za-z0-9-]{1,100}")
#: Files of a ring. Eight whole ones hold what is to be kept, one is being written, and one is left
#: to be written over while a save copies it.
SEGMENTS = 10
WHOLE = SEGMENTS - 2
#: What a ring needs at least, in MiB: a frame of a busy machine must fit into a segment.
LEAST_MB = 64


def spool_of(trace: Path) -> Path:
    return trace / FOLDER / SPOOL


def names_of(trace: Path) -> Path:
    return trace / FOLDER / NAMES


def is_captured(trace: Path) -> bool:
    """Whether a trace has something to convert."""
    return os.path.lexists(spool_of(trace))


def meta_of(trace: Path) -> Meta:
    """Raises QjouleError: meta.json is damaged; `OSError`."""
    try:
        return read_meta(trace)
    except ValueError as error:
        raise QjouleError(f"{trace / 'meta.json'}: {error}; the recording is as it was") from None


@dataclass(frozen=True)
class RingFiles:
    """The files of a trace's ring."""

    trace: Path

    @property
    def folder(self) -> Path:
        return self.trace / RING

    @property
    def socket(self) -> Path:
        return self.folder / SOCKET

    def spool(self, segment: int) -> Path:
        """Path of a segment, also of one that was overwritten. Segments count from 1."""
        return self.folder / f"spool-{(segment - 1) % SEGMENTS}"

    def names(self, segment: int) -> Path:
        return self.folder / f"names-{segment}"

    def state(self, segment: int) -> Path:
        return self.folder / f"state-{segment}"

    @property
    def are_there(self) -> bool:
        return self.folder.is_dir() and self.spool(1).is_file()

    def segments(self) -> list[SegmentBegins]:
        """The segments whose names are there, oldest first. Damaged ones are left out."""
        segments: list[SegmentBegins] = []
        for path in self.folder.glob("state-*"):
            with suppress(OSError, QjouleError), open_regular(path) as file:
                first = next(iter(NamesReader(file)), None)
                if isinstance(first, SegmentBegins):
                    segments.append(first)
        return sorted(segments, key=lambda segment: segment.segment)

    def forget(self, before: int) -> None:
        """Removes the names of segments before this one, whose records are written over."""
        for path in self.folder.iterdir():
            kind, _, number = path.name.partition("-")
            if kind in ("names", "state") and number.isdigit() and int(number) < before:
                path.unlink(missing_ok=True)


@contextmanager
def open_ring(trace: Path) -> Iterator[tuple[int, ...]]:
    """Descriptors of the new segments of a trace's ring.

    Raises:
        QjouleError: they cannot be made.
    """
    files = RingFiles(trace)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as opened:
        descriptors = []
        try:
            files.folder.mkdir(mode=0o777)
            for segment in range(1, SEGMENTS + 1):
                descriptors.append(os.open(files.spool(segment), flags, 0o666))
                opened.callback(os.close, descriptors[-1])
        except OSError as error:
            where = files.folder.absolute()
            raise QjouleError(f"cannot write {where}: {error.strerror}") from None
        try:
            yield tuple(descriptors)
        finally:
            # If tracing did not begin:
            if not any(os.fstat(descriptor).st_size for descriptor in descriptors):
                with suppress(OSError):
                    for path in files.folder.iterdir():
                        path.unlink()
                    files.folder.rmdir()


def queries_in(spool: Path) -> Iterator[Array]:
    """The queries of a segment, as `contract.QUERY`, frame by frame. Raises `OSError`."""
    with spool.open("rb") as file:
        for frame in SpoolReader(file):
            for block in Stream(BytesIO(frame.payload), begun=True):
                if block.kind is Block.QUERY and block.records.dtype == QUERY:
                    yield block.records
