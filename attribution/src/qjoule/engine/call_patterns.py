# SPDX-License-Identifier: Apache-2.0
"""Finds patterns in the calls of a trace: loops of one statement (N+1), polling, lock convoys.

It reads the table `queries`, by session and in order of time. `engine.advice` weighs the patterns
with the statements' joules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qjoule.engine import tables
from qjoule.engine.columns import QueryRecords, coded
from qjoule.engine.query_labels import CALLS
from qjoule.model.energy import I64, Bool
from qjoule.trace.columns import view
from qjoule.trace.reader import Trace

READS = ("select", "with")  #: first words of read-only statements
LEAST_LOOP = 5  #: calls in a row
LEAST_LOOPS = 5  #: loops after one statement, if replies do not say how many rows it returned
LEAST_POLLS = 20
LEAST_WAITS = 10
_PERIOD_NS = 2_000_000  #: shortest period of polling
#: Lengths of loops differ by less than this part, and no interval of a poller is shorter by more.
_NEAR = 0.2
#: A poller on a busy machine wakes up late by at most this part of its period.
_LATE = 0.5
_MOST, _BUSY = 0.8, 0.2
_WAIT_NS = 1_000_000  #: a shorter wait is no convoy

_COLUMNS = (
    *("begin_ns", "end_ns", "session", "fingerprint", "command", "status", "rows"),
    "wait_lock_ns",
)


@dataclass(frozen=True)
class Loops:
    """Consecutive calls of one statement after a call of `after`, about one for each row."""

    calls: int
    loops: int
    after: str  #: the fingerprint of the statement before most of them
    rows_known: bool


@dataclass(frozen=True)
class Polls:
    """Calls of one statement at a regular period, on sessions that do little else."""

    calls: int
    period_ns: float
    rows_known: bool  #: replies show that nearly all calls returned no rows


@dataclass(frozen=True)
class Convoy:
    """Calls that spent most of their time waiting for a lock, most of them several at once."""

    calls: int
    together: int


@dataclass(frozen=True)
class CallTable:
    """Finished calls with a known statement, by session and begin; (n,) each. `rows`, `lock_ns`:
    -1 if not recorded. `fingerprint`: codes into `names`."""

    begin_ns: I64
    end_ns: I64
    session: I64
    fingerprint: I64
    rows: I64
    lock_ns: I64
    names: list[str]

    def of(self, chosen: Bool | I64) -> CallTable:
        return CallTable(
            self.begin_ns[chosen],
            self.end_ns[chosen],
            self.session[chosen],
            self.fingerprint[chosen],
            self.rows[chosen],
            self.lock_ns[chosen],
            self.names,
        )


def calls_of(trace: Trace) -> CallTable:
    """Reads the calls of a trace."""
    names: dict[str, int] = {}
    parts = [np.zeros((6, 0), np.int64)]
    for table in trace.iter_table("queries", _COLUMNS):
        records = QueryRecords(table)
        fingerprint = coded(table.column("fingerprint"), "")
        codes = [names.setdefault(str(name), len(names)) for name in fingerprint.values]
        begin_ns, end_ns = records.times_ns
        usable = records.command.among(CALLS) & ~records.unfinished & (end_ns >= begin_ns)
        usable &= ~fingerprint.among(("",))
        session = tables.ids(table.column("session")).filled.astype(np.int64)
        rows, lock = (view(table.column(name), 2**63 - 1) for name in ("rows", "wait_lock_ns"))
        rows, lock = (np.where(v < 2**62, v, -1).astype(np.int64) for v in (rows, lock))
        number = np.array(codes, np.int64)[fingerprint.codes]
        parts.append(np.stack([begin_ns, end_ns, session, number, rows, lock])[:, usable])
    whole = np.concatenate(parts, axis=1)
    whole = whole[:, np.lexsort((whole[0], whole[2]))]
    begin_ns, end_ns, session, number, rows, lock = whole
    return CallTable(begin_ns, end_ns, session, number, rows, lock, list(names))


def loops(calls: CallTable, texts: Mapping[str, str]) -> dict[str, Loops]:
    """Finds N+1 loops, by repeated statement. A loop directly follows a SELECT in its session. If
    replies show how many rows the SELECT returned, the loop has about as many calls, of at most one
    row each; otherwise several loops must follow the same statement."""
    reads = np.array([_reads(texts.get(name, "")) for name in calls.names] or [False], bool)
    new = np.diff(calls.session, prepend=-1) != 0
    first = np.flatnonzero(new | (np.diff(calls.fingerprint, prepend=-1) != 0))
    length = np.diff(np.append(first, len(calls.session)))
    by_statement: dict[int, dict[int, list[tuple[int, bool]]]] = {}
    long = length >= LEAST_LOOP
    for at, count in zip(first[long].tolist(), length[long].tolist(), strict=True):
        before, repeated = int(calls.fingerprint[at - 1]), int(calls.fingerprint[at])
        if new[at] or not (reads[before] and reads[repeated]):
            continue
        rows = int(calls.rows[at - 1])
        each = calls.rows[at : at + count]
        if rows >= 0 and (abs(rows - count) > max(1.0, _NEAR * rows) or each.mean() > 1):
            continue
        by_statement.setdefault(repeated, {}).setdefault(before, []).append((count, rows >= 0))
    result = {}
    for repeated, by_parent in by_statement.items():
        parents = {
            before: runs
            for before, runs in by_parent.items()
            if all(known for _, known in runs) or len(runs) >= LEAST_LOOPS
        }
        every = [run for runs in parents.values() for run in runs]
        if every:
            most = max(parents, key=lambda before: len(parents[before]))
            rows_known = all(known for _, known in every)
            number = sum(count for count, _ in every)
            result[calls.names[repeated]] = Loops(number, len(every), calls.names[most], rows_known)
    return result


def polls(calls: CallTable, texts: Mapping[str, str]) -> dict[str, Polls]:
    """Finds polling, by statement. If replies show the numbers of rows, nearly all must be 0."""
    polled: dict[str, list[Polls]] = {}
    for name, repeated in _by_statement(calls, LEAST_POLLS):
        if not _reads(texts.get(name, "")):
            continue
        for session, in_session in _by_value(repeated, repeated.session, LEAST_POLLS):
            poll = _polls(in_session) if session else None
            if poll is not None:
                polled.setdefault(name, []).append(poll)
    return {
        name: Polls(
            sum(poll.calls for poll in sessions),
            float(np.median([poll.period_ns for poll in sessions])),
            all(poll.rows_known for poll in sessions),
        )
        for name, sessions in polled.items()
    }


def _polls(calls: CallTable) -> Polls | None:
    """Returns the polling that calls of one statement in one session form, or None."""
    gaps_ns = np.diff(calls.begin_ns)
    period_ns = float(np.median(gaps_ns))
    late = gaps_ns / max(period_ns, 1.0) - 1.0
    regular = float(np.mean((late >= -_NEAR) & (late <= _LATE))) >= _MOST
    idle = float(np.median(calls.end_ns - calls.begin_ns)) <= _BUSY * period_ns
    rows_known = calls.rows >= 0
    empty = not rows_known.any() or float(np.mean(calls.rows[rows_known] == 0)) >= 0.9
    if period_ns < _PERIOD_NS or not (regular and idle and empty):
        return None
    return Polls(len(calls.begin_ns), period_ns, bool(rows_known.all()))


def convoys(calls: CallTable) -> dict[str, Convoy]:
    """Finds lock convoys, by statement."""
    by_name = {}
    lasted_ns = calls.end_ns - calls.begin_ns
    waited = calls.of((calls.lock_ns >= _WAIT_NS) & (2 * calls.lock_ns >= lasted_ns))
    for name, table in _by_statement(waited, LEAST_WAITS):
        order = np.argsort(table.begin_ns, kind="stable")
        latest_ns = np.maximum.accumulate(table.end_ns[order])
        together = int(np.count_nonzero(table.begin_ns[order][1:] < latest_ns[:-1]))
        if 2 * together >= len(order):
            by_name[name] = Convoy(len(order), together)
    return by_name


def _by_statement(calls: CallTable, least: int) -> Iterator[tuple[str, CallTable]]:
    for code, table in _by_value(calls, calls.fingerprint, least):
        yield calls.names[code], table


def _by_value(calls: CallTable, column: I64, least: int) -> Iterator[tuple[int, CallTable]]:
    """Yields the calls of each value of a column that has at least `least` calls, in order."""
    order = np.argsort(column, kind="stable")
    values, first = np.unique(column[order], return_index=True)
    ends = [*first.tolist()[1:], len(order)]
    for value, begin, end in zip(values.tolist(), first.tolist(), ends, strict=False):
        if end - begin >= least:
            yield value, calls.of(order[begin:end])


def _reads(text: str) -> bool:
    return text.lstrip("( ").lower().startswith(READS)
