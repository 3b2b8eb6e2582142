# SPDX-License-Identifier: Apache-2.0
"""Finds the group that each segment is charged to: the group of its query, or of its owner if it
has no query.

`IdRuns` finds each query's record by its id, without storing every id. Queries are numbered in
sequence, so the ids of neighbouring records are nearly all consecutive. A run of consecutive ids is
stored as its two ends. Ids out of order cost one run each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model import _sweep
from qjoule.model.energy import I64, Bool

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Ids:
    """n ids, 0 for no id. `bits`: an Arrow validity bitmap that begins at bit `offset` (lowest bit
    first); None: all ids are valid."""

    ids: U64
    bits: npt.NDArray[np.uint8] | None = None
    offset: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """The least and the greatest valid id; (0, 0) without any."""
        return _sweep.span(self.ids, self.bits, self.offset)

    @property
    def filled(self) -> U64:
        """(n,) a copy of the ids, 0 where they are not valid."""
        if self.bits is None:
            return self.ids.copy()
        end = self.offset + len(self.ids)
        is_present = np.unpackbits(self.bits, count=end, bitorder="little")[self.offset :]
        return np.where(is_present.view(bool), self.ids, np.uint64(0))


@dataclass(frozen=True)
class GroupsById:
    """The group of each id from `first` on, below 0 for none, and whether it is marked: (n,)."""

    first: int
    group: I64
    marked: Bool


@dataclass(frozen=True)
class Charged:
    """`group` (n,) of each segment; sums of the segments' time."""

    group: I64
    server_ns: int  #: ns of queries and of marked owners
    named_ns: int  #: ns of marked queries


def charge(
    times_ns: tuple[I64, I64], owner: U32, owners: GroupsById, query: Ids, queries: GroupsById
) -> Charged:
    """Charges n segments, which begin and end at `times_ns`.

    The last entry of `owners`, whose `first` is 0, stands for all owners that are not in it.
    Queries that are not in `queries` have no group.
    """
    t0_ns, t1_ns = times_ns
    group = np.empty(len(t0_ns), np.int64)
    server_ns, named_ns = _sweep.charge(
        np.ascontiguousarray(t0_ns, np.int64),
        np.ascontiguousarray(t1_ns, np.int64),
        np.ascontiguousarray(owner, np.uint32),
        np.ascontiguousarray(query.ids, np.uint64),
        query.bits,
        query.offset,
        owners.group,
        owners.marked,
        queries.first,
        np.ascontiguousarray(queries.group, np.int64),
        np.ascontiguousarray(queries.marked, np.bool_),
        group,
    )
    return Charged(group, server_ns, named_ns)


@dataclass(frozen=True)
class IdRuns:
    """Disjoint runs of ids, in order: `first[i]` is number `row[i]` among the ids of `part[i]`."""

    first: U64
    last: U64  #: inclusive
    part: I64
    row: I64

    def find(self, ids: U64) -> tuple[I64, I64]:
        """The part that holds each id, -1 if none does, and the id's place among that part's
        sorted ids."""
        if not len(self.first):
            return np.full(len(ids), -1, np.int64), np.zeros(len(ids), np.int64)
        run = np.searchsorted(self.first, ids, "right") - 1
        is_held = (run >= 0) & (ids <= self.last[run])
        run = np.maximum(run, 0)
        offset = (ids - self.first[run]).view(np.int64)
        return np.where(is_held, self.part[run], -1), self.row[run] + offset

    def between(self, first: int, last: int) -> IdRuns:
        """The runs of the ids `first` to `last`, cut to these."""
        begin = max(int(np.searchsorted(self.first, np.uint64(first), "right")) - 1, 0)
        rows = slice(begin, int(np.searchsorted(self.first, np.uint64(last), "right")))
        low = np.maximum(self.first[rows], np.uint64(first))
        high = np.minimum(self.last[rows], np.uint64(last))
        row = self.row[rows] + (low - self.first[rows]).astype(np.int64)
        nonempty = low <= high
        return IdRuns(low[nonempty], high[nonempty], self.part[rows][nonempty], row[nonempty])


def runs_of(ids: U64, part: int) -> IdRuns:
    """The runs of a part's ids, which must be sorted and unique."""
    heads = np.flatnonzero(np.append(True, np.diff(ids) != 1)[: len(ids)])
    tails = np.append(heads[1:], len(ids))[: len(heads)] - 1
    return IdRuns(ids[heads], ids[tails], np.full(len(heads), part, np.int64), heads)


def joined_runs(parts: list[IdRuns]) -> IdRuns:
    """The runs of all parts. An id that is in several parts belongs to the first."""
    first, last, part, row = (
        np.concatenate([getattr(run_table, name) for run_table in parts] or [np.zeros(0, kind)])
        for name, kind in (
            *(("first", np.uint64), ("last", np.uint64)),
            *(("part", np.int64), ("row", np.int64)),
        )
    )
    order = np.argsort(first, kind="stable")
    runs = IdRuns(first[order], last[order], part[order], row[order])
    if not len(first):
        return runs
    reached = np.maximum.accumulate(runs.last)
    cluster = np.cumsum(np.append(True, runs.first[1:] > reached[:-1]))
    shared = np.bincount(cluster)[cluster] > 1
    if not shared.any():
        return runs
    disjoint, divided = _take(runs, ~shared), _first_come(_take(runs, shared))
    return joined_runs([disjoint, divided])


def _take(runs: IdRuns, rows: npt.NDArray[np.bool_]) -> IdRuns:
    return IdRuns(runs.first[rows], runs.last[rows], runs.part[rows], runs.row[rows])


def _first_come(runs: IdRuns) -> IdRuns:
    """Makes overlapping runs disjoint: each id goes to the lowest-numbered part that holds it."""
    length = (runs.last - runs.first).astype(np.int64) + 1
    run = np.repeat(np.arange(len(length)), length)
    offset = np.arange(len(run)) - np.repeat(np.cumsum(length) - length, length)
    ids = runs.first[run] + offset.astype(np.uint64)
    order = np.lexsort((runs.part[run], ids))
    order = order[np.append(True, np.diff(ids[order]) != 0)]
    ids, part, row = ids[order], runs.part[run][order], (runs.row[run] + offset)[order]
    goes_on = (np.diff(ids) == 1) & (np.diff(part) == 0) & (np.diff(row) == 1)
    heads = np.flatnonzero(np.append(True, ~goes_on))
    tails = np.append(heads[1:], len(ids)) - 1
    return IdRuns(ids[heads], ids[tails], part[heads], row[heads])
