# SPDX-License-Identifier: Apache-2.0
"""Reads the tracer's spool: frames of blocks with checksums (`struct qj_frame` of bpf/qjoule.h).

A spool may have been cut off at any byte, or damaged since. A frame that is not whole is left out,
and the reader looks for the next one. What is missing is counted in `Damage`, never guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from xxhash import xxh3_64

from qjoule.contract import CONTRACT_VERSION, FRAME, FRAME_BYTES, FRAME_MAGIC, Codec
from qjoule.errors import QjouleError
from qjoule.lazy_import import pa

_MAGIC = struct.pack("<I", FRAME_MAGIC)
_CHECKSUM_AT = FRAME.fields["checksum"][1] if FRAME.fields is not None else 0
#: A compressed payload may be a little longer than the payload itself (ZSTD_compressBound).
_MOST_STORED_BYTES = FRAME_BYTES + (FRAME_BYTES >> 8) + 64
_SEARCH_BYTES = 1 << 20


@dataclass(frozen=True)
class SpoolFrame:
    """One frame. `payload` is a sequence of blocks, see `qjoule.stream.blocks`."""

    number: int  #: from 1
    t_ns: int  #: when it was written, CLOCK_MONOTONIC
    payload: bytes
    missing: int  #: frames before it that were left out


@dataclass
class Damage:
    """What could not be read."""

    frames: int = 0  #: known to be missing, by their numbers
    bytes: int = 0  #: that belong to no whole frame


class SpoolReader:
    """Iterates over the whole frames of `file`, a seekable file.

    The numbers of frames ascend. A frame that repeats a number, or precedes it, is left out.

    Raises:
        QjouleError: another version of qjoule wrote it, or a machine of another byte order.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        self._number = 0
        self.damage = Damage()

    @property
    def position(self) -> int:
        """The offset up to which the file was read."""
        return self._position

    def __iter__(self) -> Iterator[SpoolFrame]:
        self._file.seek(0)
        if self._file.read(len(_MAGIC)) == _MAGIC[::-1]:
            raise QjouleError(
                "the recording was captured on a machine of another byte order: convert it there"
            )
        while True:
            begin = self._position
            frame = self._frame(begin)
            if frame is None:
                next_begin = self._search(begin + 1)
                self.damage.bytes += (
                    self._file.seek(0, 2) if next_begin is None else next_begin
                ) - begin
                if next_begin is None:
                    return
                self._position = next_begin
                continue
            self.damage.frames += frame.missing
            self._number = frame.number
            yield frame

    def _frame(self, begin: int) -> SpoolFrame | None:
        """The whole frame that begins at `begin`, or None."""
        stored = stored_frame(self._file, begin)
        if stored is None:
            return None
        payload = stored.payload
        if payload is None or stored.number <= self._number:
            return None
        self._position = begin + stored.size
        return SpoolFrame(stored.number, stored.t_ns, payload, stored.number - self._number - 1)

    def _search(self, begin: int) -> int | None:
        """Where the next whole frame begins, at `begin` or later."""
        position = begin
        while True:
            self._file.seek(position)
            piece = self._file.read(_SEARCH_BYTES)
            offset = piece.find(_MAGIC)
            if offset < 0 and len(piece) < _SEARCH_BYTES:
                return None
            if offset < 0:
                position += len(piece) - len(_MAGIC) + 1
                continue
            if self._is_whole(position + offset):
                return position + offset
            position += offset + 1

    def _is_whole(self, begin: int) -> bool:
        before = self._position
        whole = self._frame(begin) is not None
        self._position = before
        return whole


@dataclass(frozen=True)
class StoredFrame:
    """A whole frame as it is stored; its checksum is right."""

    number: int
    t_ns: int
    head: bytes
    stored: bytes

    @property
    def size(self) -> int:
        return len(self.head) + len(self.stored)

    @property
    def payload(self) -> bytes | None:
        """The blocks; None: it cannot be unpacked."""
        fields = np.frombuffer(self.head, FRAME)[0]
        return _unpacked(self.stored, int(fields["codec"]), int(fields["bytes"]))


def stored_frame(file: BinaryIO, at: int) -> StoredFrame | None:
    """The whole frame that begins at `at`; None: none does.

    Raises:
        QjouleError: another version of qjoule wrote it.
    """
    file.seek(at)
    head = file.read(FRAME.itemsize)
    if len(head) < FRAME.itemsize or not head.startswith(_MAGIC):
        return None
    fields = np.frombuffer(head, FRAME)[0]
    stored_bytes = int(fields["stored_bytes"])
    if stored_bytes > _MOST_STORED_BYTES or fields["bytes"] > FRAME_BYTES:
        return None
    stored = file.read(stored_bytes)
    if len(stored) < stored_bytes or _checksum(head, stored) != fields["checksum"]:
        return None
    # Only now: a flipped bit in the version is damage, not another version.
    if fields["version"] != CONTRACT_VERSION:
        raise QjouleError(
            f"the recording was captured by a qjoule of contract version {fields['version']}, "
            f"this one reads {CONTRACT_VERSION}: convert it with the qjoule that recorded it"
        )
    return StoredFrame(int(fields["number"]), int(fields["t_ns"]), head, stored)


def encoded_frame(number: int, t_ns: int, payload: bytes) -> bytes:
    """A frame as the tracer would write it, not compressed."""
    head = np.zeros(1, FRAME)
    head["magic"], head["version"] = FRAME_MAGIC, CONTRACT_VERSION
    head["number"], head["t_ns"] = number, t_ns
    head["bytes"] = head["stored_bytes"] = len(payload)
    head["checksum"] = _checksum(head.tobytes(), payload)
    return head.tobytes() + payload


def _checksum(head: bytes, stored: bytes) -> int:
    digest = xxh3_64(head[:_CHECKSUM_AT] + bytes(8) + head[_CHECKSUM_AT + 8 :])
    digest.update(stored)  # without a copy of it
    return digest.intdigest()


def _unpacked(stored: bytes, codec: int, size: int) -> bytes | None:
    """The payload, of exactly `size` bytes; None if it is not that long."""
    if codec == Codec.NONE:
        return stored if len(stored) == size else None
    if codec != Codec.ZSTD:
        return None
    try:
        return bytes(pa.Codec("zstd").decompress(stored, size, asbytes=True))
    except (OSError, ValueError):  # it is whole, but no such data: a tracer does not write that
        return None
