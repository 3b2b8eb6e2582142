# SPDX-License-Identifier: Apache-2.0
"""The calls among query records: which records count as calls, when they ended, and for how long
they lasted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.contract import QueryFlag
from qjoule.engine.columns import UNFINISHED, QueryRecords
from qjoule.engine.query_labels import CALLS, I32
from qjoule.model.energy import I64, Bool
from qjoule.model.latency import Latencies
from qjoule.trace.reader import Trace

#: Columns that `calls_of` reads, unless transactions are grouped.
CALL_COLUMNS = ("begin_ns", "end_ns", "command", "status", "executions", "flags")


@dataclass(frozen=True)
class Calls:
    """Finished calls: group, end time, latency, executions; (n,) each.

    A latency below 0 is unknown: the end of the query was not seen. `row`: index in the part.
    `waits_ns`: columns as in `CallStats`, 0 where nothing is recorded; None: no call has any.
    """

    group: I64
    end_ns: I64
    latency_ns: I64
    executions: I64
    row: I64
    waits_ns: I64 | None = None

    def take(self, rows: Bool) -> Calls:
        return Calls(
            self.group[rows],
            self.end_ns[rows],
            self.latency_ns[rows],
            self.executions[rows],
            self.row[rows],
            None if self.waits_ns is None else self.waits_ns[rows],
        )

    def add_to(self, latencies: Latencies) -> None:
        latencies.add(self.group, self.latency_ns, self.executions)
        if self.waits_ns is not None:
            latencies.add_waits(self.group, self.waits_ns)


def calls_of(variants: I32, records: QueryRecords, commands: Sequence[str]) -> Calls:
    """Returns calls by variant. Children count only if queries are grouped by child. A PREPARE
    counts for its time, but is no call; neither are unfinished queries and parts of calls that are
    recorded elsewhere. With transactions, the query that ends one is its only call; the other
    queries of the transaction have no execution and no latency."""
    begin_ns, end_ns = records.times_ns
    called = records.command.among(commands)
    executions = records.executions
    child = records.command.among(("child",))
    if child.any():
        executions = np.where(child, 1, executions)
    executed = executions > 0
    untimed = records.flags & QueryFlag.NO_END != 0
    if records.transactions is not None:
        inside, ended, first_ns, _ = records.ended
        executions = np.where(inside & ~child, ended, executions)
        begin_ns = np.where(ended & ~child, first_ns, begin_ns)
        executed |= executions > 0
        untimed |= inside & ~ended & ~child
    lasted_ns = end_ns - begin_ns
    counts = called & ~records.unfinished & (lasted_ns >= 0) & executed
    if untimed.any():
        lasted_ns = np.where(untimed, -1, lasted_ns)
    row = np.arange(len(records))
    calls = Calls(variants.astype(np.int64), end_ns, lasted_ns, executions, row)
    return calls if counts.all() else calls.take(counts)


@dataclass(frozen=True)
class CallCount:
    """Number of calls in a trace, and of its other records: by command, and unfinished calls."""

    calls: int
    others: Counter[str]


def count_calls(trace: Trace) -> CallCount:
    """Counts the calls that `attribute` shows in its total."""
    calls, others = 0, Counter[str]()
    for table in trace.iter_table("queries", CALL_COLUMNS):
        records = QueryRecords(table)
        counted = calls_of(np.arange(len(records), dtype=np.int32), records, CALLS)
        calls += int(counted.executions.sum())
        no_call = np.ones(len(records), bool)
        no_call[counted.group] = False
        command = records.command
        unfinished = command.among(CALLS)
        others[UNFINISHED] += int(np.count_nonzero(no_call & unfinished))
        for code in np.unique(command.codes[no_call & ~unfinished]).tolist():
            rows = no_call & (command.codes == code)
            others[str(command.values[code])] += int(np.count_nonzero(rows))
    return CallCount(calls, +others)
