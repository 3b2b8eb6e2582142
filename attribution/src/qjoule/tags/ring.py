"""Reads the memory that an application shares: see drivers/PROTOCOL.md."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

MAGIC = b"QJTAGS\x00\x01"
HEADER_BYTES = 4096
SLOT_BYTES = 64
LEAST_SLOTS, MOST_SLOTS = 2048, 65536
BEGIN, BEGIN_IN_TRACE, END = 1, 2, 3
#: Threads of a process that may be writing at the same time.
WRITERS = 256
MOST_AHEAD = 1 << 32
#: A slot that is not whole after this is passed over: its writer has died.
PATIENCE_NS = 100_000_000

SLOT = np.dtype(
    [
        ("trace", "V16"),
        ("span", "V8"),
        ("end", "u8"),
        ("t_ns", "u8"),
        ("tags", "u4"),
        ("connection", "u4"),
        ("kind", "u4"),
        ("stream", "u4"),
        ("number", "u8"),
    ]
)
Slots = NDArray[np.void]

_TAIL, _CLOSED, _DROPPED, _ERRORS = 64, 72, 128, 136
_WORD = struct.Struct("=Q")
_SHRINK_SEALED = 0x2  # F_SEAL_SHRINK, <linux/fcntl.h>
_F_GET_SEALS = 1034


class NotARing(Exception):
    """What was handed over is not what PROTOCOL.md describes."""


class RingReader:
    """Takes the records of one process.

    The process may write anything at any time: every batch is a copy, made before it is looked at.
    """

    def __init__(self, descriptor: int) -> None:
        """Maps the ring and closes the descriptor. Raises NotARing."""
        try:
            # Unsealed, it could be cut under the mapping, and reading it would kill this process.
            if not fcntl.fcntl(descriptor, _F_GET_SEALS) & _SHRINK_SEALED:
                raise NotARing("it may shrink")
            size = os.fstat(descriptor).st_size
            if size > HEADER_BYTES + MOST_SLOTS * SLOT_BYTES:
                raise NotARing(f"{size} bytes")
            self._memory = mmap.mmap(descriptor, size)
        except (OSError, ValueError) as error:
            raise NotARing(str(error)) from None
        finally:
            os.close(descriptor)
        magic, slots, slot_bytes = struct.unpack_from("=8sII", self._memory, 0)
        if (
            magic != MAGIC
            or slot_bytes != SLOT_BYTES
            or not LEAST_SLOTS <= slots <= MOST_SLOTS
            or slots & (slots - 1)
            or size < HEADER_BYTES + slots * SLOT_BYTES
        ):
            raise NotARing("another version")
        self._slots = np.frombuffer(self._memory, SLOT, slots, HEADER_BYTES)
        self._numbers = self._slots["number"]
        self._mask = slots - 1
        self._taken = 0
        self._stuck_since_ns = 0
        self.lost = 0  #: records that were never whole, or overtaken

    @property
    def told_lost(self) -> int:
        """Records that the process itself counts as dropped, as far as it may be believed."""
        return min(int(_WORD.unpack_from(self._memory, _DROPPED)[0]), 1 << 40)

    @property
    def errors(self) -> int:
        """Exceptions that the shim kept from the application."""
        return min(int(_WORD.unpack_from(self._memory, _ERRORS)[0]), 1 << 40)

    def take(self, now_ns: int) -> Iterator[Slots]:
        """Copies of the records that became whole, in order, up to a ring full; makes room again.

        Raises NotARing if the process contradicts itself.
        """
        left = len(self._slots)
        while left > 0:
            first = self._taken & self._mask
            count = min(len(self._slots) - first, left)
            expected = np.arange(self._taken + 1, self._taken + 1 + count, dtype=np.uint64)
            # The numbers first, for they are written last.
            is_whole = self._numbers[first : first + count] == expected
            whole = int(np.argmin(np.append(is_whole, False)))
            found = self._slots[first : first + whole].copy()
            if whole:
                self._taken += whole
                self._stuck_since_ns = 0
                left -= whole
                yield found
            if whole < count and not self._pass_over(now_ns):
                break
        _WORD.pack_into(self._memory, _TAIL, self._taken)

    def ends(self, calls: NDArray[np.int64]) -> NDArray[np.uint64]:
        """What is now in the `end` of these calls' records: 0 not known, and where overtaken."""
        at = (calls - 1) & self._mask
        ends: NDArray[np.uint64] = self._slots["end"][at]
        return np.where(self._numbers[at] == calls.astype(np.uint64), ends, np.uint64(0))

    @property
    def keeps(self) -> int:
        """Ends of so many last records are written into them."""
        return len(self._slots) // 4

    @property
    def taken(self) -> int:
        """Number of the last record that was taken."""
        return self._taken

    def close(self) -> None:
        """Says that no more is taken, and lets go."""
        _WORD.pack_into(self._memory, _CLOSED, 1)
        del self._slots, self._numbers
        self._memory.close()

    def _pass_over(self, now_ns: int) -> bool:
        """Whether to go on behind a slot that is not whole: overtaken, or its writer died."""
        ahead = int(self._numbers[self._taken & self._mask]) - (self._taken + 1)
        if ahead > 0:
            if ahead > MOST_AHEAD:
                raise NotARing("numbers that were never counted")
            self._skip(ahead)
            return True
        next_ones = np.arange(self._taken + 1, self._taken + 1 + WRITERS)
        whole = self._numbers[next_ones & self._mask] == (next_ones + 1).astype(np.uint64)
        if not whole.any():
            self._stuck_since_ns = 0
            return False
        if not self._stuck_since_ns:
            self._stuck_since_ns = now_ns
        if now_ns - self._stuck_since_ns < PATIENCE_NS:
            return False
        self._skip(1 + int(np.argmax(whole)))
        return True

    def _skip(self, count: int) -> None:
        self._stuck_since_ns = 0
        self._taken += count
        self.lost += count
