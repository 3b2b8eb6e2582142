# SPDX-License-Identifier: Apache-2.0
"""The queries of a trace in order of time, each on a lane of its session where it does not overlap
others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from qjoule.engine.columns import texts_of
from qjoule.trace.columns import view
from qjoule.trace.reader import Trace

_COLUMNS = (
    *("query", "begin_ns", "end_ns", "server", "session", "pid", "parent"),
    *("fingerprint", "shape", "command", "status", "database", "user", "application", "rows"),
)
_BATCH = 1 << 14


@dataclass(frozen=True)
class Lane:
    """A row of non-overlapping slices, of a session or, if that is unknown, of a thread.

    `number`: from 0 on. A session needs several if its client does not wait for replies.
    """

    server: int | None
    session: int | None
    thread: int | None
    number: int


@dataclass(frozen=True)
class QuerySlice:
    """A record of the table `queries`. `text`: the statement, '' if unknown."""

    lane: Lane
    record: dict[str, Any]
    text: str


@dataclass
class _Lanes:
    """Open slices of each lane of a session: their ends, the outermost first."""

    ends_ns: list[list[int]] = field(default_factory=list)

    def place(self, record: dict[str, Any]) -> int:
        """Returns the first free lane. A part of a query may lie within the query's slice."""
        begin_ns, end_ns = record["begin_ns"], max(record["end_ns"], record["begin_ns"])
        for number, open_ns in enumerate(self.ends_ns):
            while open_ns and open_ns[-1] <= begin_ns:
                open_ns.pop()
            if not open_ns or (record["parent"] is not None and end_ns <= open_ns[-1]):
                open_ns.append(end_ns)
                return number
        self.ends_ns.append([end_ns])
        return len(self.ends_ns) - 1


def query_slices(trace: Trace) -> Iterator[QuerySlice]:
    """Yields all queries, sorted by begin."""
    parts = [part.read(_COLUMNS) for part in trace.row_groups("queries")]
    tables = [part for part in parts if part is not None and part.num_rows]
    if not tables:
        return
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    begin_ns, end_ns = view(table.column("begin_ns")), view(table.column("end_ns"))
    order = np.lexsort((-end_ns, begin_ns))
    texts = texts_of(trace.table("shapes"))
    sessions: dict[tuple[int | None, ...], _Lanes] = {}
    for first in range(0, len(order), _BATCH):
        for record in table.take(pa.array(order[first : first + _BATCH])).to_pylist():
            session = record["session"]
            key = record["server"], session, None if session is not None else record["pid"]
            lanes = sessions.setdefault(key, _Lanes())
            lane = Lane(*key, lanes.place(record))
            yield QuerySlice(lane, record, texts.get(record["fingerprint"], ""))
