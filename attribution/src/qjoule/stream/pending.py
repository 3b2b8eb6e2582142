# SPDX-License-Identifier: Apache-2.0
"""Selects a batch's records: those that waited until it is closed and, of a part that was cut out
of a recording, those within its bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.contract import RECORDS, SEGMENT_COUNTERS, SEGMENT_MORE, Block, QueryFlag
from qjoule.trace.columns import Array


@dataclass(frozen=True)
class LostBefore:
    """Running sums of a CPU and cause (`qj_loss_count`) when the part begins."""

    cpu: int
    cause: int
    count: int
    lost_ns: int


@dataclass(frozen=True)
class PartOf:
    """Bounds of a part of a recording.

    All that ran from `begin_ns` to `end_ns` is known. Records of later times are incomplete: slices
    may still have been open. So energy read after `end_ns` is left out, and so are queries that
    ended outside. A query that began before is marked: only what it took since is known.
    `frames_before`: frames that precede the part.
    """

    begin_ns: int
    end_ns: int
    frames_before: int = 0
    lost: tuple[LostBefore, ...] = ()

    def within(self, kind: Block, records: Array) -> Array:
        """The records that belong to the part; sums of loss count from its beginning."""
        match kind:
            case Block.ENERGY:
                mask = (records["t_ns"] >= self.begin_ns) & (records["t_ns"] <= self.end_ns)
                return records[mask]
            case Block.QUERY | Block.CHILD:
                return self._queries(records)
            case Block.HELPER:
                return self._ended_within(records)
            case Block.LOSS:
                return self._since_begin(records)
            case _:
                return records

    def _ended_within(self, records: Array) -> Array:
        ends_ns = records["end_ns"]
        inside: Array = records[(ends_ns >= self.begin_ns) & (ends_ns <= self.end_ns)]
        return inside

    def _queries(self, records: Array) -> Array:
        queries = self._ended_within(records)
        cut = queries["begin_ns"] < self.begin_ns
        if cut.any():
            queries = queries.copy()
            queries["flags"][cut] |= np.uint32(QueryFlag.CUT)
        return queries

    def _since_begin(self, records: Array) -> Array:
        before = {(loss.cpu, loss.cause): (loss.count, loss.lost_ns) for loss in self.lost}
        since = records.copy()
        for record in since:
            count, lost_ns = before.get((int(record["cpu"]), int(record["cause"])), (0, 0))
            record["count"] = max(int(record["count"]) - count, 0)
            record["lost_ns"] = max(int(record["lost_ns"]) - lost_ns, 0)
        increased: Array = since[np.logical_or(since["count"] > 0, since["lost_ns"] > 0)]
        return increased


class Pending:
    """Records by block kind, and their total number."""

    def __init__(self) -> None:
        self._records: dict[Block, list[Array]] = {}
        self.size = 0

    def add(self, kind: Block, records: Array) -> None:
        self._records.setdefault(kind, []).append(records)
        self.size += records.size

    def take(self, kind: Block) -> Array:
        """Removes and returns all records of a kind, in order of arrival."""
        parts = self._records.pop(kind, [])
        records = _joined(parts) if parts else np.empty(0, RECORDS[kind])
        self.size -= records.size
        return records

    def take_segments(self, before_ns: int | None) -> tuple[Array, Array | None, Array | None]:
        """Segments in order of t0_ns that began before `before_ns` (None: all).

        Returns (segments, counters, more). counters is (n, 3), or None if no segment has any. more
        has the fields `shares` and `more` of further counters, or is None. Segments that began
        later stay pending.
        """
        plain, with_counters = self.take(Block.SEGMENT), self.take(Block.SEGMENT_COUNTERS)
        more = self.take(Block.SEGMENT_MORE)
        if not with_counters.size and not more.size:
            return self._ready(Block.SEGMENT, plain, plain, before_ns), None, None
        widened = np.zeros(plain.size, SEGMENT_COUNTERS)
        widened["segment"] = plain
        widened["segment"]["valid"] = 0
        both = np.concatenate([widened, with_counters])
        if not more.size:
            ready = self._ready(Block.SEGMENT_COUNTERS, both, both["segment"], before_ns)
            return ready["segment"], ready["counters"], None
        wider = np.zeros(both.size, SEGMENT_MORE)
        wider["counted"] = both
        every = np.concatenate([wider, more])
        ready = self._ready(Block.SEGMENT_MORE, every, every["counted"]["segment"], before_ns)
        return ready["counted"]["segment"], ready["counted"]["counters"], ready

    def _ready(self, kind: Block, records: Array, segments: Array, before_ns: int | None) -> Array:
        t0_ns = segments["t0_ns"]
        if t0_ns.size > 1 and not bool(np.all(t0_ns[1:] >= t0_ns[:-1])):
            order = np.argsort(t0_ns, kind="stable")
            records, t0_ns = take_rows(records, order), t0_ns[order]
        if before_ns is None:
            return records
        ready = int(np.searchsorted(t0_ns, np.uint64(before_ns)))
        if ready < records.size:
            self.add(kind, records[ready:].copy())
        return records[:ready]


def take_rows(records: Array, which: Array) -> Array:
    """A copy of `records[which]`; `which` is a mask or an array of indices."""
    rows: Array = _as_words(records)[which].view(records.dtype)
    return rows.reshape(-1)


def _as_words(records: Array) -> Array:
    """Records as rows of 64-bit words, which numpy copies much faster than structured arrays."""
    width = records.dtype.itemsize // np.dtype(np.uint64).itemsize
    return np.ascontiguousarray(records).view(np.uint64).reshape(records.size, width)


def _joined(parts: list[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    joined: Array = np.concatenate([_as_words(part) for part in parts if part.size] or parts)
    return joined.view(parts[0].dtype).reshape(-1)
