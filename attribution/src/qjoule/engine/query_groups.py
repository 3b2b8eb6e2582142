# SPDX-License-Identifier: Apache-2.0
"""Finds the group of each query by its id, for more query records than fit into memory.

One pass over the records makes the labels, the call statistics and the runs of ids in each part of
the table (a row group). Parts that segments refer to are held as one small number per record, in
order of id. At most `HELD_ROWS` records are held: beyond that, the least recently used parts are
dropped, and read again when needed. Nothing depends on the order of times, because another writer
may not have recorded in order.

The module also returns calls in order of time: those that ended until a time, and those that own no
CPU time in the windows in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from qjoule.contract import QueryFlag
from qjoule.engine.calls import CALL_COLUMNS, Calls, calls_of
from qjoule.engine.columns import QueryRecords, Transactions
from qjoule.engine.keys import TRANSACTION, LabelIndex
from qjoule.engine.query_labels import CALLS, I32, QueryLabels
from qjoule.model import charge
from qjoule.model.arrays import Requests, WindowBatch
from qjoule.model.charge import U64, GroupsById, IdRuns, Ids
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import GroupLabel
from qjoule.model.latency import CallStats, Latencies
from qjoule.trace.vocabulary import WAITS

#: Most records whose variants are held, 4 bytes each.
HELD_ROWS = 1 << 22
_ONE = np.uint64(1)


class Part(Protocol):
    """A part of the `queries` table: a row group."""

    def read(self, columns: Sequence[str]) -> pa.Table | None:
        """Returns the part's records; None, or an empty table, if it cannot be read."""


class QueryGroups:
    """Finds groups by query id, labelled by the keys `by`; adds new labels to `index`."""

    def __init__(
        self,
        parts: Sequence[Part],
        labels: QueryLabels,
        index: LabelIndex,
        transactions: Transactions | None = None,
    ) -> None:
        """`labels`: for these queries alone, and still without variants."""
        self._parts, self._labels, self._transactions = parts, labels, transactions
        extra = () if transactions is None else ("query", TRANSACTION)
        self._columns = list(dict.fromkeys([*self._labels.columns, *CALL_COLUMNS, *extra]))
        self._commits = Latencies()
        self._held: dict[int, I32] = {}  #: by part, least recently used first
        self._latencies = Latencies()
        self._called = (*CALLS, "child") if "child" in labels.by else CALLS
        self.ends_ns: list[tuple[int, int] | None] = []  #: per part: earliest and latest call's end
        runs = [self._first_pass(number) for number in range(len(parts))]
        self._runs = charge.joined_runs([run for run in runs if run is not None])
        self._labels.finish(index)

    @property
    def held_rows(self) -> int:
        """Number of records that are held now."""
        return sum(map(len, self._held.values()))

    def numbered(self, query: Ids) -> tuple[Ids, GroupsById]:
        """Numbers some queries; returns the numbers, and each number's group, -1 without a record,
        marked if its statement is known."""
        least, last = query.span
        if not last:
            return query, GroupsById(1, *self._groups(np.zeros(0, np.int32)))
        # Segments close in time belong to few queries, numbered in sequence: look each up once.
        first = max(least, last - len(query.ids) + 1)
        near = self._sequence(first, last)
        if least == first:
            return query, GroupsById(first, *self._groups(near))
        ids = query.filled
        older = np.flatnonzero((ids < first) & (ids > 0))
        old_ids, place = np.unique(ids[older], return_inverse=True)
        numbers = np.where(ids >= first, ids - np.uint64(first) + _ONE, np.uint64(0))
        numbers[older] = (len(near) + 1 + place.reshape(-1)).astype(np.uint64)
        variant = np.concatenate([near, self._scattered(old_ids)])
        return Ids(numbers), GroupsById(1, *self._groups(variant))

    def _sequence(self, first: int, last: int) -> I32:
        """Returns the variants of the ids `first` to `last`, -1 for an id without a record."""
        runs = self._runs.between(first, last)
        variant = np.full(last - first + 1, -1, np.int32)
        length = (runs.last - runs.first).astype(np.int64) + 1
        since = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        place = np.repeat((runs.first - np.uint64(first)).astype(np.int64), length) + since
        row, part = np.repeat(runs.row, length) + since, np.repeat(runs.part, length)
        for number in np.unique(runs.part).tolist():
            variants = self._variants(number)
            # There are fewer if the part can no longer be read.
            in_part = (part == number) & (row < len(variants))
            variant[place[in_part]] = variants[row[in_part]]
        return variant

    def _scattered(self, query: U64) -> I32:
        """Returns the variants of some ids, -1 for an id without a record."""
        part, at = self._runs.find(query)
        variant = np.full(len(query), -1, np.int32)
        for number in np.flatnonzero(np.bincount(part + 1, minlength=1)[1:]).tolist():
            rows = np.flatnonzero(part == number)
            variants = self._variants(number)
            rows = rows[at[rows] < len(variants)]
            variant[rows] = variants[at[rows]]
        return variant

    def _groups(self, variant: I32) -> tuple[I64, Bool]:
        """Returns each variant's group and whether its statement is known; -1 and false for -1."""
        labels = self._labels
        return np.append(labels.group, -1)[variant], np.append(labels.named, False)[variant]

    def drop_held(self) -> None:
        """Drops all held records. They are read again if needed."""
        self._held.clear()

    def stats(self, groups: int, helpers: Sequence[Part] | None = None) -> CallStats:
        """Returns calls and latencies of the whole trace, for groups 0 to `groups` - 1.

        `helpers`: the parts of the table `helpers`; None: not recorded.
        """
        stats = self._latencies.stats(groups, self._labels.group)
        if helpers is None:
            return stats
        return replace(stats, helpers_ns=self._helpers_ns(groups, helpers))

    def _helpers_ns(self, groups: int, parts: Sequence[Part]) -> I64:
        sums_ns = np.zeros((groups, 1 + len(WAITS)), np.int64)
        for part in parts:
            table = part.read(["query", "begin_ns", "end_ns", *WAITS])
            if table is None or not table.num_rows:
                continue
            records = QueryRecords(table)
            group = self._groups(self._scattered(records.ids))[0]
            grouped = group >= 0
            np.add.at(sums_ns, group[grouped], records.waits_ns()[grouped])
        return sums_ns

    def commits(self, groups: int) -> CallStats:
        """Returns durations of the transactions' COMMITs, for groups 0 to `groups` - 1."""
        return self._commits.stats(groups, self._labels.group)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self._parts)

    def calls(self, part: int) -> Calls:
        """Returns the calls of a part; none if it can no longer be read."""
        records = self._read(part, self._columns)
        if records is None:
            return Calls(*np.zeros((5, 0), np.int64))
        calls = calls_of(self._labels.variants(records), records, self._called)
        calls = self._with_waits(part, records, calls.take(calls.group >= 0))
        return replace(calls, group=self._labels.group[calls.group])

    def _read(self, part: int, columns: Sequence[str]) -> QueryRecords | None:
        """Returns the records of a part; None if it has none, or can no longer be read."""
        table = self._parts[part].read(list(dict.fromkeys(columns)))
        if table is None or not table.num_rows:
            return None
        return QueryRecords(table, self._labels.texts, self._transactions)

    def _first_pass(self, number: int) -> IdRuns | None:
        records = self._read(number, ["query", *self._columns])
        if records is None:
            self.ends_ns.append(None)
            return None
        variants = self._labels.variants(records)
        calls = calls_of(variants, records, self._called)
        if self._transactions is not None:
            commit_ns = records.ended.commit_ns
            rows = np.flatnonzero(commit_ns >= 0)
            ones = np.ones(len(rows), np.int64)
            self._commits.add(variants[rows].astype(np.int64), commit_ns[rows], ones)
        self._with_waits(number, records, calls).add_to(self._latencies)
        ends = calls.end_ns
        self.ends_ns.append((int(ends.min()), int(ends.max())) if len(ends) else None)
        ids, first_rows = records.by_id()
        # The first parts are needed first, and a part that fits is not read twice.
        if self.held_rows + len(ids) <= HELD_ROWS:
            self._held[number] = variants[first_rows]
        return charge.runs_of(ids, number)

    def _with_waits(self, number: int, records: QueryRecords, calls: Calls) -> Calls:
        """Adds recorded waits to the calls of a part."""
        recorded = records.flags[calls.row] & QueryFlag.WAITS != 0
        if not recorded.any():
            return calls
        waits = self._read(number, ["begin_ns", "end_ns", *WAITS])
        if waits is None:
            return calls
        waits_ns = np.where(recorded[:, np.newaxis], waits.waits_ns()[calls.row], 0)
        return replace(calls, waits_ns=waits_ns)

    def _variants(self, number: int) -> I32:
        """Returns a part's variants in order of id; none if it can no longer be read."""
        variants = self._held.pop(number, None)
        if variants is None:
            variants = self._read_variants(number)
            while self._held and self.held_rows + len(variants) > HELD_ROWS:
                del self._held[next(iter(self._held))]
        self._held[number] = variants
        return variants

    def _read_variants(self, number: int) -> I32:
        records = self._read(number, ["query", *self._labels.columns])
        if records is None:
            return np.zeros(0, np.int32)
        return self._labels.variants(records)[records.by_id()[1]]


class CallsByEnd:
    """Returns the calls of `groups` in order of time; only overlapping parts are held."""

    def __init__(self, groups: QueryGroups) -> None:
        self._groups = groups
        spans = [(*span, part) for part, span in enumerate(groups.ends_ns) if span]
        self._ahead = sorted(spans, reverse=True)
        self._pending: list[Calls] = []

    def until(self, end_ns: int) -> list[Calls]:
        """Returns the calls that ended until `end_ns` and were not returned yet."""
        while self._ahead and self._ahead[-1][0] <= end_ns:
            self._pending.append(self._groups.calls(self._ahead.pop()[2]))
        ended = [calls.take(calls.end_ns <= end_ns) for calls in self._pending]
        later = [calls.take(calls.end_ns > end_ns) for calls in self._pending]
        self._pending = [calls for calls in later if len(calls.end_ns)]
        return ended


class RecordedRequests:
    """Adds requests without CPU time to consecutive batches. Reads the queries again, in order."""

    def __init__(self, queries: QueryGroups, labels: Sequence[GroupLabel]) -> None:
        self._counted = np.array([label.is_counted for label in labels], bool)
        self._ended = CallsByEnd(queries) if self._counted.any() else None

    @property
    def any(self) -> bool:
        """True if requests of any server own no CPU time."""
        return self._ended is not None

    def added(self, batch: WindowBatch) -> WindowBatch:
        """Adds to the batch the requests that came in its windows."""
        bounds_ns = batch.energy.boundaries_ns
        if self._ended is None or len(bounds_ns) < 2:
            return batch
        calls = self._ended.until(int(bounds_ns[-1]) - 1)
        group = np.concatenate([np.zeros(0, np.int64), *(part.group for part in calls)])
        end_ns = np.concatenate([np.zeros(0, np.int64), *(part.end_ns for part in calls)])
        n = np.concatenate([np.zeros(0, np.int64), *(part.executions for part in calls)])
        window = np.searchsorted(bounds_ns, end_ns, "right") - 1
        rows = (window >= 0) & self._counted[group]
        return replace(batch, requests=Requests.summed(window[rows], group[rows], n[rows]))
