# SPDX-License-Identifier: Apache-2.0
"""Merges segments from row groups that may overlap into order of time, in bounded memory.

Row groups are read in order of their earliest segment. Once group i has been read, everything that
begins before group i + 1 is final. A recorded trace is already in order, so only one row group is
held at a time. A trace written in another order costs as much memory as its groups overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from qjoule.trace.views import view

_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Group:
    """A row group: its earliest t0_ns according to its file, and how to read it.

    `read` returns None for a group that cannot be read, and reports that itself.
    """

    first_t0_ns: int
    read: Callable[[], pa.Table | None]


def in_time_order(
    groups: Iterable[Group], batch_rows: int, late: Callable[[int], None]
) -> Iterator[pa.Table]:
    """The groups' rows by t0_ns (ties in the given order), in tables of at most `batch_rows`.

    `late(n)` is called for n rows that begin before their group's stated minimum, and are too late.
    """
    ordered = sorted(groups, key=lambda group: group.first_t0_ns)
    limits_ns = [*(group.first_t0_ns for group in ordered[1:]), _END]
    emitted_ns = np.iinfo(np.int64).min
    pending: pa.Table | None = None
    for group, limit_ns in zip(ordered, limits_ns, strict=False):
        if (table := group.read()) is None:
            continue
        t0_ns = view(table.column("t0_ns"))
        if (count := int(np.count_nonzero(t0_ns < emitted_ns))) > 0:
            late(count)
            table = table.filter(pa.array(t0_ns >= emitted_ns))
        pending = _sorted(table if pending is None else pa.concat_tables([pending, table]))
        del table, t0_ns  # so that only one group's rows are in memory
        ready = int(np.searchsorted(view(pending.column("t0_ns")), limit_ns))
        rest = pending.slice(ready) if ready < pending.num_rows else None
        done, pending = pending.slice(0, ready), rest
        yield from _slices(done, batch_rows)
        del done
        emitted_ns = limit_ns
    if pending is not None:
        yield from _slices(pending, batch_rows)


def _slices(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _sorted(table: pa.Table) -> pa.Table:
    table = table.combine_chunks()
    t0_ns = view(table.column("t0_ns"))
    if t0_ns.size < 2 or bool(np.all(t0_ns[1:] >= t0_ns[:-1])):
        return table
    return table.take(pa.array(np.argsort(t0_ns, kind="stable")))
