# SPDX-License-Identifier: Apache-2.0
"""Reads the ring that an application shares: see drivers/PROTOCOL.md."""

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
#: Added to the first two kinds: the tags hold for all later calls on the connection and stream.
HOLDS = 4
OVER = 7
#: In place of the tags' number: the tags could not be defined.
NOT_DEFINED = (1 << 32) - 1
#: Threads of a process that may be writing at the same time.
WRITERS = 256
MOST_AHEAD = 1 << 32
#: A slot that is incomplete for longer than this is skipped: its writer has died.
PATIENCE_NS = 500_000_000
#: Slots examined at a time: more than there are writers, but few, so that parts of the ring that
#: the process has freed are not touched again.
STRETCH = 512
#: Gaps stored separately. Beyond this number the oldest are merged into one.
KEPT_GAPS = 64
#: Number of last records whose ends are stored.
KEPT_ENDS = 1 << 16

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

_TAIL, _CLOSED, _CHANGES, _SEEN = 64, 72, 80, 88
_DROPPED, _ERRORS, _GAP, _SINCE = 128, 136, 144, 152
_WORD = struct.Struct("=Q")
_SHRINK_SEALED = 0x2  # F_SEAL_SHRINK, <linux/fcntl.h>
_F_GET_SEALS = 1034


class NotARing(Exception):
    """The shared memory is not a ring as PROTOCOL.md describes it."""


class RingReader:
    """Takes the records of one process.

    The process may write anything at any time, so every batch is copied before it is examined.
    """

    def __init__(self, descriptor: int) -> None:
        """Maps the ring and closes the descriptor. Raises NotARing."""
        try:
            # If the file shrank under the mapping, reading it would kill this process.
            if not fcntl.fcntl(descriptor, _F_GET_SEALS) & _SHRINK_SEALED:
                raise NotARing("it may shrink")
            # Touching a hole in huge pages kills this process if no such page is free.
            if os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
                raise NotARing("huge pages")
            size = os.fstat(descriptor).st_size
            if not HEADER_BYTES < size <= HEADER_BYTES + MOST_SLOTS * SLOT_BYTES:
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
        #: The same slots for `ends`, which other threads call; None once the memory is released.
        self._shared: Slots | None = self._slots
        self._mask = slots - 1
        self._taken = 0
        #: Number of the last record that was taken from each slot, to recognise new ones.
        self._before = np.zeros(slots, np.uint64)
        #: Known ends, and the numbers of their calls. Pages are allocated as calls arrive.
        self._ends = np.zeros(KEPT_ENDS, np.uint64)
        self._ended = np.zeros(KEPT_ENDS, np.int64)
        self._open = np.empty(0, np.int64)  # calls whose record the end may still be written into
        self._kept_up_to = 0
        self._stuck_since_ns = 0
        self._gap = 0
        self._looked_ns = 0
        #: Times (from, to), in ns, in which the process could not report changes. Reports from
        #: before a gap's end are invalid for queries that begin after its start.
        self.gaps: list[tuple[int, int]] = []
        self.lost = 0  #: records that were never complete, or were overwritten
        self._reported_lost = 0
        self._was_late = False

    def ask(self, *, each_call: bool) -> None:
        """Asks the process to report each call, or only changes, which costs less."""
        _WORD.pack_into(self._memory, _CHANGES, not each_call)

    @property
    def reported_lost(self) -> int:
        """Records that the process counts as dropped, bounded."""
        if self._shared is not None:
            self._reported_lost = min(int(_WORD.unpack_from(self._memory, _DROPPED)[0]), 1 << 40)
        return self._reported_lost

    @property
    def errors(self) -> int:
        """Exceptions that the shim kept from the application."""
        return min(int(_WORD.unpack_from(self._memory, _ERRORS)[0]), 1 << 40)

    def take(self, now_ns: int) -> Iterator[Slots]:
        """Yields copies of records that are complete, up to a full ring, and frees their slots.

        A record is taken as soon as it is complete, even if earlier records of stopped threads are
        not: its statement may be under way. Raises NotARing if the process contradicts itself.
        """
        self._read_gap(now_ns)
        remaining = len(self._slots)
        before = self._taken
        while remaining > 0:
            for records in self._complete_records():
                remaining -= records.size
                yield records
            remaining -= 1  # bounds the loop, whatever the process writes meanwhile
            if not (self._advance() or self._skip_stuck_slot(now_ns)):
                break
        self._was_late |= self._taken - before > len(self._slots) // 2
        self._store_ends()
        _WORD.pack_into(self._memory, _TAIL, self._taken)

    def ends(self, calls: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Returns the known `end` of these calls' records; 0: unknown."""
        slots = self._shared
        now = None if slots is None else self._ends_in(slots, calls)
        # Read second: an end that was just overwritten in the ring has been stored by then.
        places = (calls - 1) & (KEPT_ENDS - 1)
        remembered = np.where(self._ended[places] == calls, self._ends[places], np.uint64(0))
        return remembered if now is None else np.where(now > 0, now, remembered)

    def _ends_in(self, slots: Slots, calls: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Ends found in these calls' own records."""
        at = (calls - 1) & self._mask
        ends = slots["end"][at]
        return np.where(slots["number"][at] == calls.astype(np.uint64), ends, np.uint64(0))

    def may_have_ended(self, calls: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns whether the end of each call (none is known) may have been missed.

        True if the process lost records, or was read so late that it nearly did, and the call's
        slot may have been reused.
        """
        slots = self._shared
        if not (self.lost or self.reported_lost or self._was_late):
            return np.zeros(calls.size, np.bool_)
        if slots is None:
            return calls <= self._taken - len(self._before)
        old: NDArray[np.bool_] = slots["number"][(calls - 1) & self._mask] != calls
        return old

    @property
    def bytes(self) -> int:
        """Approximate memory of the recorder for this ring, without the shared memory."""
        return self._before.nbytes + 16 * self.stored_ends

    @property
    def open_records(self) -> int:
        """Number of last records into which the process writes ends."""
        return len(self._slots) // 4

    @property
    def taken(self) -> int:
        """Number of the last record that was taken."""
        return self._taken

    @property
    def stored_ends(self) -> int:
        """Approximate number of calls whose ends are stored."""
        return min(self._taken, KEPT_ENDS)

    def close(self) -> None:
        """Ends taking and releases the memory. Losses, gaps and known ends stay available."""
        _WORD.pack_into(self._memory, _CLOSED, 1)
        self._kept_up_to = 0  # store the ends of old calls, too
        self._store_ends()
        self._reported_lost = self.reported_lost
        self._shared = None
        # Another thread may still be reading: the mapping ends with its last user.
        del self._slots, self._numbers, self._memory

    def _read_gap(self, now_ns: int) -> None:
        """Reads the gap that the process announces; it began after the last reading."""
        gap = int(_WORD.unpack_from(self._memory, _GAP)[0])
        if gap != self._gap:
            since = min(int(_WORD.unpack_from(self._memory, _SINCE)[0]), gap, 1 << 62)
            _WORD.pack_into(self._memory, _SEEN, gap)  # after `since`: the next gap may begin
            self.gaps.append((max(since, self._looked_ns), min(gap, 1 << 62)))
            if len(self.gaps) > KEPT_GAPS:
                (first, _), (_, last), *others = self.gaps
                self.gaps = [(first, last), *others]
        self._gap = gap
        self._looked_ns = now_ns

    def _complete_records(self) -> Iterator[Slots]:
        """Yields copies of new records, until a part of the ring has no complete record."""
        position, end = self._taken, self._taken + len(self._slots)
        while position < end:
            first = position & self._mask
            count = min(STRETCH, len(self._slots) - first, end - position)
            expected = np.arange(position + 1, position + 1 + count, dtype=np.uint64)
            # Read the numbers first, because the process writes them last.
            whole = self._numbers[first : first + count] == expected
            if not whole.any():
                return
            before = self._before[first : first + count]
            new = whole & (before != expected)
            if new.any():
                records = self._slots[first : first + count][new]
                before[new] = expected[new]
                yield records
            position += count

    def _advance(self) -> bool:
        """Counts the consecutive records taken. Returns false if the count has not grown."""
        since = self._taken
        while True:
            first = self._taken & self._mask
            count = min(STRETCH, len(self._slots) - first)
            expected = np.arange(self._taken + 1, self._taken + 1 + count, dtype=np.uint64)
            is_taken = self._before[first : first + count] == expected
            self._taken += int(np.argmin(np.append(is_taken, False)))
            if not is_taken.all():
                break
        if self._taken > since:
            self._stuck_since_ns = 0
        return self._taken > since

    def _store_ends(self) -> None:
        """Stores ends before their slots are reused."""
        first = 1 + max(self._kept_up_to, self._taken - len(self._slots))
        calls = np.append(self._open, np.arange(first, self._taken + 1))
        self._kept_up_to = self._taken
        if not calls.size:
            return
        places = (calls - 1) & self._mask
        ends = self._slots["end"][places]
        has_end = (ends > 0) & (self._numbers[places] == calls.astype(np.uint64))
        places = (calls[has_end] - 1) & (KEPT_ENDS - 1)
        # Ends are written before the numbers, because another thread may be reading.
        self._ends[places] = ends[has_end]
        self._ended[places] = calls[has_end]
        self._open = calls[~has_end & (calls > self._taken - self.open_records - WRITERS)]

    def _skip_stuck_slot(self, now_ns: int) -> bool:
        """Skips an incomplete slot if it was overwritten or its writer died. Returns true if so."""
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
