# SPDX-License-Identifier: Apache-2.0
"""The tracer's output: a sequence of blocks (`struct qj_block` of bpf/qjoule.h) as numpy arrays.

If a stream stops without its end block, it was cut off: iteration ends, and `Stream.ended_early`
gives the place. A stream that contradicts the contract raises `QjouleError`. The functions at the
end say which records are valid.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from qjoule.contract import (
    BLOCK,
    BLOCK_MAGIC,
    CONTRACT_VERSION,
    HELLO,
    RECORDS,
    SESSION,
    TEXT,
    Block,
    OwnerKind,
    TaskEvent,
)
from qjoule.errors import QjouleError

#: The tracer never writes a larger block. A larger one is refused before memory is allocated.
MAX_PAYLOAD_BYTES = 16 << 20
TIME_LIMIT_NS = 1 << 63  #: times are signed in the dataset, to allow subtraction
#: PID_MAX_LIMIT of include/linux/threads.h: pids and tgids have 22 bits.
PID_LIMIT = 1 << 22

Records = npt.NDArray[Any]
#: Blocks that hold one record, followed by bytes of text.
_WITH_TEXT = {Block.TEXT: TEXT, Block.SESSION: SESSION}


class Source(Protocol):
    """The source of a stream: a file object. `read` may return less than asked for."""

    def read(self, size: int, /) -> bytes | None: ...


class _Descriptor:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, size: int, /) -> bytes:
        return os.read(self._fd, size)


@dataclass(frozen=True)
class Frame:
    """One block. `records` is a structured array of the kind's dtype in `qjoule.contract`
    (empty for FLUSH); `text` the bytes that follow the record of a TEXT or SESSION block.
    """

    kind: Block
    t_ns: int
    records: Records
    text: bytes = b""


class Stream:
    """Iterates over the blocks of a file descriptor or file object. Blocks when the source blocks.

    The first block is the hello, unless the stream has `begun` before. Its contract version must be
    the one of this qjoule.
    """

    def __init__(self, source: Source | int, *, begun: bool = False) -> None:
        self._begun = begun
        self._source: Source = _Descriptor(source) if isinstance(source, int) else source
        self._offset = 0
        self.complete = False  #: the end block was read
        self.ended_early: str | None = None  #: where a stream that lacks its end block stopped
        self.stop_errno: int | None = None  #: why the tracer ended the stream; 0: on request

    @property
    def stopped(self) -> str | None:
        """Returns why the stream ended; None: on request."""
        if self.ended_early or not self.stop_errno:
            return self.ended_early
        if self.stop_errno == errno.EFBIG:
            return "what was captured has reached its limit (--spool-mb)"
        return f"the tracer stopped: {os.strerror(self.stop_errno)}"

    def __iter__(self) -> Iterator[Frame]:
        frame = self._next()
        if frame is not None and frame.kind is not Block.HELLO and not self._begun:
            raise self._damaged("it does not begin with a hello")
        while frame is not None:
            yield frame
            if frame.kind is Block.END:
                self.complete = True
                self.stop_errno = int(frame.records["reason"][0])
                return
            frame = self._next()
        self.ended_early = f"the tracer's output ends at byte {self._offset} without an end block"

    def _end_as(self, inner: Stream) -> None:
        """Takes over the end state of the stream that this one wraps."""
        self.complete, self.stop_errno = inner.complete, inner.stop_errno
        self.ended_early = inner.ended_early

    def _next(self) -> Frame | None:
        head = self._read(BLOCK.itemsize)
        if head is None:
            return None
        block = np.frombuffer(head, BLOCK)[0]
        if block["magic"] != BLOCK_MAGIC:
            raise self._damaged("no block begins there")
        if int(block["kind"]) not in Block._value2member_map_:
            raise self._damaged(f"unknown block kind {block['kind']}")
        kind = Block(int(block["kind"]))
        if block["payload_bytes"] > MAX_PAYLOAD_BYTES:
            raise self._damaged(f"a block of {block['payload_bytes']} bytes is too large")
        payload = self._read(int(block["payload_bytes"]))
        if payload is None:
            return None
        return self._frame(kind, int(block["count"]), int(block["t_ns"]), payload)

    def _frame(self, kind: Block, count: int, t_ns: int, payload: bytes) -> Frame:
        if kind is Block.HELLO:
            self._check_version(payload)
        if kind is Block.FLUSH:
            return Frame(kind, t_ns, np.empty(0, np.uint8))
        if kind in _WITH_TEXT:
            return self._text_frame(kind, count, t_ns, payload)
        dtype = RECORDS[kind]
        if count * dtype.itemsize != len(payload):
            raise self._damaged(f"{count} {kind.name} records do not make {len(payload)} bytes")
        if kind in (Block.HELLO, Block.END) and count != 1:
            raise self._damaged(f"{count} records in a {kind.name} block")
        return Frame(kind, t_ns, np.frombuffer(payload, dtype))

    def _text_frame(self, kind: Block, count: int, t_ns: int, payload: bytes) -> Frame:
        dtype = _WITH_TEXT[kind]
        if count != 1 or len(payload) < dtype.itemsize:
            raise self._damaged(f"a {kind.name} block without its record")
        records = np.frombuffer(payload, dtype, count=1)
        end = dtype.itemsize + int(records["text_bytes"][0])
        if end > len(payload):
            raise self._damaged(f"a {kind.name} block shorter than its text")
        return Frame(kind, t_ns, records, payload[dtype.itemsize : end])

    def _check_version(self, payload: bytes) -> None:
        """Checked before the rest of the hello is read: another version may have another size."""
        version = int.from_bytes(payload[:4], "little")
        if version > CONTRACT_VERSION:
            raise QjouleError(
                f"qjoule-tracer speaks contract version {version}, this qjoule reads "
                f"{CONTRACT_VERSION}: upgrade qjoule"
            )
        if version < CONTRACT_VERSION:
            raise QjouleError(
                f"qjoule-tracer speaks contract version {version}, this qjoule needs "
                f"{CONTRACT_VERSION}: rebuild the tracer"
            )
        if len(payload) != HELLO.itemsize:
            raise self._damaged("its hello has a wrong size")

    def _read(self, size: int) -> bytes | None:
        """Exactly `size` bytes, or None if the stream ends before."""
        pieces: list[bytes] = []
        missing = size
        while missing:
            piece = self._source.read(missing)
            if not piece:
                self._offset += size - missing
                return None
            pieces.append(piece)
            missing -= len(piece)
        self._offset += size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _damaged(self, what: str) -> QjouleError:
        return QjouleError(
            f"the tracer's output is damaged before byte {self._offset} ({what}): "
            "check that qjoule and qjoule-tracer are of one build, and record again"
        )


def encode_block(
    kind: Block, records: Records | None = None, *, t_ns: int = 0, text: bytes = b""
) -> bytes:
    """The bytes of one block, as the tracer would write it.

    `records` has the kind's dtype (FLUSH: none; TEXT and SESSION: one record, whose
    `text_bytes` must be the length of `text`). Raises `ValueError` otherwise.
    """
    dtype = _WITH_TEXT.get(kind) or RECORDS.get(kind)
    if records is None:
        records = np.empty(0, dtype or np.uint8)
    elif dtype is None or records.dtype != dtype:
        raise ValueError(f"{kind.name} records are {dtype}, not {records.dtype}")
    if kind in _WITH_TEXT and (records.size != 1 or records["text_bytes"][0] != len(text)):
        raise ValueError(f"a {kind.name} block holds one record and its text_bytes of text")
    payload = records.tobytes() + text
    payload += bytes(-len(payload) % 8)
    head = np.array([(BLOCK_MAGIC, kind, records.size, len(payload), t_ns)], BLOCK)
    return head.tobytes() + payload


def forward(begin_ns: Records, end_ns: Records) -> Records:
    """Mask of the spans that do not end before they begin."""
    mask: Records = (begin_ns <= end_ns) & (end_ns < TIME_LIMIT_NS)
    return mask


def valid_segments(segments: Records) -> Records:
    """Mask of the valid segments: a span of time, a thread, and an owner that is not idle."""
    kind = segments["owner_kind"]
    owned = (kind != OwnerKind.IDLE) & (kind <= max(OwnerKind))
    threads = (segments["pid"] < PID_LIMIT) & (segments["tgid"] < PID_LIMIT)
    mask: Records = forward(segments["t0_ns"], segments["t1_ns"]) & owned & threads
    return mask


def valid_tasks(tasks: Records) -> Records:
    """Mask of the valid task events."""
    threads = (tasks["pid"] < PID_LIMIT) & (tasks["tgid"] < PID_LIMIT)
    event = (tasks["event"] >= min(TaskEvent)) & (tasks["event"] <= max(TaskEvent))
    mask: Records = threads & event & (tasks["t_ns"] < TIME_LIMIT_NS)
    return mask
