# SPDX-License-Identifier: Apache-2.0
"""Reads the sampled waits of a trace, by group and stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from qjoule.engine import tables
from qjoule.engine.grouped import SegmentReader
from qjoule.engine.stack_waits import SampledWait, WaitSum
from qjoule.engine.stacks import Frames, Stack
from qjoule.lazy_import import pc
from qjoule.trace.reader import Trace
from qjoule.trace.schema import SAMPLED_WAITS
from qjoule.trace.vocabulary import WAIT_KINDS

_LOCK, _SLEEP = "lock", "sleep"
_ACCOUNT = ("query", "wait_lock_ns", "wait_sleep_ns")


@dataclass(frozen=True)
class SampledWaits:
    """`count`: how many were sampled; None: not recorded. `endless`: how many of them have no end,
    and are in no sum."""

    by_group: Mapping[int, Mapping[Stack, WaitSum]]
    count: int | None
    endless: int


def sampled_waits(trace: Trace, reader: SegmentReader, frames: Frames) -> SampledWaits:
    """`reader` gives groups, and `frames` stacks."""
    if "waits" not in trace.meta.rows and not trace.rows("waits"):
        return SampledWaits({}, None, 0)
    sums: dict[int, dict[Stack, WaitSum]] = {}
    accounts, count, endless = _accounts(trace), 0, 0
    for table in trace.iter_table("waits", SAMPLED_WAITS.names):
        of = zip(
            reader.read(as_segments(table)).group.tolist(),
            tables.ids(table.column("frame")).filled.tolist(),
            table.column("whole").to_pylist(),
            _waits(table, accounts),
            strict=True,
        )
        for group, frame, whole, wait in of:
            count += 1
            if wait is None:
                endless += 1
                continue
            stack = frames.stack(frame, whole=whole)
            sums.setdefault(group, {}).setdefault(stack, WaitSum()).add(wait)
    return SampledWaits(sums, count, endless)


def as_segments(table: pa.Table) -> pa.Table:
    """Converts samples, or waits, to segments of length 0, which get the same groups."""
    times = table.column("t_ns")
    columns = [times, times, *(table.column(name) for name in ("cpu", "owner", "query"))]
    return pa.Table.from_arrays(columns, ["t0_ns", "t1_ns", "cpu", "owner", "query"])


def _waits(
    table: pa.Table, accounts: Mapping[int, tuple[int, int]]
) -> Iterator[SampledWait | None]:
    """Yields each row's wait; None: its end was lost, or the row is invalid.

    A server may wait for a lock in pieces that expire like sleeps. What they are is known when the
    query goes on: its own account then has no room for them as sleeps.
    """
    columns = ("query", "kind", "ns", "run_queue_ns", "probability")
    rows = (table.column(name).to_pylist() for name in columns)
    for query, kind, ns, run_queue_ns, probability in zip(*rows, strict=True):
        lasted = ns is not None and run_queue_ns is not None and 0 <= run_queue_ns <= ns
        if not lasted or kind not in WAIT_KINDS or not 0 < probability <= 1:
            yield None
            continue
        lock_ns, sleep_ns = accounts.get(query, (0, 0))
        was_lock = kind == _SLEEP and sleep_ns < ns - run_queue_ns <= lock_ns
        yield SampledWait(_LOCK if was_lock else kind, ns, run_queue_ns, probability)


def _accounts(trace: Trace) -> dict[int, tuple[int, int]]:
    """Returns how long queries with sampled sleeps waited for locks, and slept, by their own
    account, in ns."""
    sleepers: set[int] = set()
    for table in trace.iter_table("waits", ("query", "kind")):
        slept = pc.equal(table.column("kind").cast(pa.string()), _SLEEP)
        sleepers.update(table.column("query").filter(slept).to_pylist())
    if not sleepers:
        return {}
    ids, accounts = pa.array(sleepers, pa.uint64()), dict[int, tuple[int, int]]()
    for table in trace.iter_table("queries", _ACCOUNT):
        theirs = table.filter(pc.is_in(table.column("query"), value_set=ids))
        rows = (theirs.column(name).to_pylist() for name in _ACCOUNT)
        for query, lock_ns, sleep_ns in zip(*rows, strict=True):
            if lock_ns is not None and sleep_ns is not None:
                accounts[query] = lock_ns, sleep_ns
    return accounts
