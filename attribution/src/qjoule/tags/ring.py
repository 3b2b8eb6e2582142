# SPDX-License-Identifier: Apache-2.0
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
#: Added to the first two: it holds for all that follows on its connection and stream.
HOLDS = 4
OVER = 7
#: In place of the tags' number: what is carried could not be defined.
NOT_DEFINED = (1 << 32) - 1
#: Threads of a process that may be writing at the same time.
WRITERS = 256
MOST_AHEAD = 1 << 32
#: A slot that is not whole after this is passed over: its writer has died.
PATIENCE_NS = 500_000_000
#: Slots that are looked at at a time: few, so that a process is not asked to share memory again
#: that it wrote long ago; more than the writers.
STRETCH = 512
#: Gaps that are told apart; the oldest are taken for one.
KEPT_GAPS = 64
#: Ends of so many last records are remembered.
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
            # Memory in huge pages can be sealed and have holes that no page is left to fill: that
            # would kill this process too.
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
        #: The same for `ends`, which another thread asks; None once the memory has been let go.
        self._shared: Slots | None = self._slots
        self._mask = slots - 1
        self._taken = 0
        #: Number of the last record that was taken from each slot.
        self._before = np.zeros(slots, np.uint64)
        #: Ends that were seen, and whose; touched as far as there are calls.
        self._ends = np.zeros(KEPT_ENDS, np.uint64)
        self._ended = np.zeros(KEPT_ENDS, np.int64)
        self._open = np.empty(0, np.int64)  # calls whose end may still come into their record
        self._kept_up_to = 0
        self._stuck_since_ns = 0
        self._gap = 0
        self._looked_ns = 0
        #: From when to when, in ns, the process could not tell what it had to: what it had told by
        #: then does not hold for what began since.
        self.gaps: list[tuple[int, int]] = []
        self.lost = 0  #: records that were never whole, or overtaken
        self._told_lost = 0
        self._was_late = False

    def ask(self, *, each_call: bool) -> None:
        """For the begin and end of each call; else for what changes, which costs less."""
        _WORD.pack_into(self._memory, _CHANGES, not each_call)

    @property
    def told_lost(self) -> int:
        """Records that the process itself counts as dropped, as far as it may be believed."""
        if self._shared is not None:
            self._told_lost = min(int(_WORD.unpack_from(self._memory, _DROPPED)[0]), 1 << 40)
        return self._told_lost

    @property
    def errors(self) -> int:
        """Exceptions that the shim kept from the application."""
        return min(int(_WORD.unpack_from(self._memory, _ERRORS)[0]), 1 << 40)

    def take(self, now_ns: int) -> Iterator[Slots]:
        """Copies of the records that became whole, up to a ring full; makes room again.

        A record is taken as soon as it is whole, also before earlier ones of threads that were
        stopped between taking a number and writing: its statement may be under way. Raises
        NotARing if the process contradicts itself.
        """
        self._look_for_a_gap(now_ns)
        left = len(self._slots)
        before = self._taken
        while left > 0:
            for found in self._whole_ones():
                left -= found.size
                yield found
            left -= 1  # whatever the process does meanwhile, this ends
            if not (self._advance() or self._pass_over(now_ns)):
                break
        self._was_late |= self._taken - before > len(self._slots) // 2
        self._keep_ends()
        _WORD.pack_into(self._memory, _TAIL, self._taken)

    def ends(self, calls: NDArray[np.int64]) -> NDArray[np.uint64]:
        """What is known of the `end` of these calls' records: 0 not known."""
        slots = self._shared
        now = None if slots is None else self._ends_in(slots, calls)
        # After that: what is not there any more has been kept by then.
        at = (calls - 1) & (KEPT_ENDS - 1)
        kept = np.where(self._ended[at] == calls, self._ends[at], np.uint64(0))
        return kept if now is None else np.where(now > 0, now, kept)

    def _ends_in(self, slots: Slots, calls: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Ends that stand in these calls' own records."""
        at = (calls - 1) & self._mask
        ends = slots["end"][at]
        return np.where(slots["number"][at] == calls.astype(np.uint64), ends, np.uint64(0))

    def may_have_ended(self, calls: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of calls whose end is not known: whether it may have been missed. So it is in a process
        that lost records, or was read so late that it nearly did, for calls that are so old that
        their slots may be others' by now.
        """
        slots = self._shared
        if not (self.lost or self.told_lost or self._was_late):
            return np.zeros(calls.size, np.bool_)
        if slots is None:
            return calls <= self._taken - len(self._before)
        old: NDArray[np.bool_] = slots["number"][(calls - 1) & self._mask] != calls
        return old

    @property
    def bytes(self) -> int:
        """About what it takes of the recorder's memory, beside what the process shares."""
        return self._before.nbytes + 16 * self.remembers

    @property
    def keeps(self) -> int:
        """Ends of so many last records are written into them."""
        return len(self._slots) // 4

    @property
    def taken(self) -> int:
        """Number of the last record that was taken."""
        return self._taken

    @property
    def remembers(self) -> int:
        """About how many calls' ends it keeps."""
        return min(self._taken, KEPT_ENDS)

    def close(self) -> None:
        """Says that no more is taken, and lets go of the memory. What was lost, the gaps and the
        ends that are known by now can still be asked for.
        """
        _WORD.pack_into(self._memory, _CLOSED, 1)
        self._kept_up_to = 0  # also those of calls that had been going on for long
        self._keep_ends()
        self._told_lost = self.told_lost
        self._shared = None
        # Another thread may still be looking: the mapping goes with its last user.
        del self._slots, self._numbers, self._memory

    def _look_for_a_gap(self, now_ns: int) -> None:
        """Its words say since when, and until when; it did not begin before we looked last."""
        gap = int(_WORD.unpack_from(self._memory, _GAP)[0])
        if gap != self._gap:
            since = min(int(_WORD.unpack_from(self._memory, _SINCE)[0]), gap, 1 << 62)
            _WORD.pack_into(self._memory, _SEEN, gap)  # after `since`: the next one may begin
            self.gaps.append((max(since, self._looked_ns), min(gap, 1 << 62)))
            if len(self.gaps) > KEPT_GAPS:
                (first, _), (_, last), *others = self.gaps
                self.gaps = [(first, last), *others]
        self._gap = gap
        self._looked_ns = now_ns

    def _whole_ones(self) -> Iterator[Slots]:
        """Copies of records that were not taken before, until a stretch has none that is whole."""
        at, end = self._taken, self._taken + len(self._slots)
        while at < end:
            first = at & self._mask
            count = min(STRETCH, len(self._slots) - first, end - at)
            expected = np.arange(at + 1, at + 1 + count, dtype=np.uint64)
            # The numbers first, for they are written last.
            whole = self._numbers[first : first + count] == expected
            if not whole.any():
                return
            before = self._before[first : first + count]
            new = whole & (before != expected)
            if new.any():
                found = self._slots[first : first + count][new]
                before[new] = expected[new]
                yield found
            at += count

    def _advance(self) -> bool:
        """Counts what has been taken without a gap; false if that is no more than before."""
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

    def _keep_ends(self) -> None:
        """Remembers ends before their slots are written again."""
        first = 1 + max(self._kept_up_to, self._taken - len(self._slots))
        calls = np.append(self._open, np.arange(first, self._taken + 1))
        self._kept_up_to = self._taken
        if not calls.size:
            return
        at = (calls - 1) & self._mask
        ends = self._slots["end"][at]
        known = (ends > 0) & (self._numbers[at] == calls.astype(np.uint64))
        at = (calls[known] - 1) & (KEPT_ENDS - 1)
        self._ends[at] = ends[known]  # before what says whose they are: another thread may read
        self._ended[at] = calls[known]
        self._open = calls[~known & (calls > self._taken - self.keeps - WRITERS)]

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
