# SPDX-License-Identifier: Apache-2.0
"""Which records of the table `queries` are calls, and how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.contract import QueryFlag
from qjoule.engine.columns import UNFINISHED, QueryRecords
from qjoule.engine.query_labels import CALLS, I32
from qjoule.model.energy import I64, Bool
from qjoule.trace.reader import Trace

#: What `calls_of` reads, unless transactions are grouped.
CALL_COLUMNS = ("begin_ns", "end_ns", "command", "status", "executions", "flags")


@dataclass(frozen=True)
class Calls:
    """Queries that ended as calls do: group, end time, latency, executions; (n,) each.

    A latency below 0 is not known: the end of the query was not seen.
    """

    group: I64
    end_ns: I64
    latency_ns: I64
    executions: I64

    def take(self, rows: Bool) -> Calls:
        return Calls(
            self.group[rows], self.end_ns[rows], self.latency_ns[rows], self.executions[rows]
        )


def calls_of(variants: I32, records: QueryRecords, commands: Sequence[str]) -> Calls:
    """Calls by variant. Children count only if queries are grouped by child. The time of a
    PREPARE counts, but it is not a call. Neither is an unfinished query, nor a part of a call
    that is recorded elsewhere. With transactions, the query that ends one is its one call."""
    begin_ns, end_ns = records.times_ns
    called = records.command.among(commands)
    executions = records.executions
    child = records.command.among(("child",))
    if child.any():
        executions = np.where(child, 1, executions)
    if records.transactions is not None:
        inside, ended, first_ns, _ = records.ended
        executions = np.where(inside & ~child, ended, executions)
        begin_ns = np.where(ended & ~child, first_ns, begin_ns)
    lasted_ns = end_ns - begin_ns
    counts = called & ~records.unfinished & (lasted_ns >= 0) & (executions > 0)
    if records.flags.any():
        lasted_ns = np.where(records.flags & QueryFlag.NO_END, -1, lasted_ns)
    calls = Calls(variants.astype(np.int64), end_ns, lasted_ns, executions)
    return calls if counts.all() else calls.take(counts)


@dataclass(frozen=True)
class CallCount:
    """The calls of a trace, as the table adds them up, and its other records: by command, and
    calls that have not finished.
    """

    calls: int
    others: Counter[str]


def count_calls(trace: Trace) -> CallCount:
    """Counts what `attribute` shows in its total of calls."""
    calls, others = 0, Counter[str]()
    for table in trace.iter_table("queries", CALL_COLUMNS):
        records = QueryRecords(table)
        found = calls_of(np.arange(len(records), dtype=np.int32), records, CALLS)
        calls += int(found.executions.sum())
        other = np.ones(len(records), bool)
        other[found.group] = False
        command = records.command
        unfinished = command.among(CALLS)
        others[UNFINISHED] += int(np.count_nonzero(other & unfinished))
        for code in np.unique(command.codes[other & ~unfinished]).tolist():
            mine = other & (command.codes == code)
            others[str(command.values[code])] += int(np.count_nonzero(mine))
    return CallCount(calls, +others)
