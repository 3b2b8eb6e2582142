# SPDX-License-Identifier: Apache-2.0
"""A trace's segments under one grouping: maps each segment to the group it is charged to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.groups import group_owners
from qjoule.engine.keys import EVERYTHING, Selection
from qjoule.engine.query_groups import QueryGroups
from qjoule.engine.requests import RecordedRequests
from qjoule.engine.transactions import Transactions
from qjoule.model.arrays import Segments
from qjoule.model.labels import GroupLabel, LabelIndex
from qjoule.trace.reader import Trace

#: Called with every table of segments that was read, and its groups.
Read = Callable[[pa.Table, Segments], None]


def _nobody(_table: pa.Table, _segments: Segments) -> None:
    pass


class Grouped:
    """`trace` with its queries grouped by the keys `by`; excluded queries (`where`) form one group
    per server.

    `transactions`: the trace's, if a key needs them. `counters`: whether to read hardware counters;
    None: if the trace has some. Raises `UsageError` for an unknown key.
    """

    def __init__(
        self,
        trace: Trace,
        by: Sequence[str],
        *,
        where: Selection = EVERYTHING,
        transactions: Transactions | None = None,
        counters: bool | None = None,
    ) -> None:
        self._trace, self._index = trace, LabelIndex()
        names = recorded.server_names(trace.meta)
        by_thread = recorded.servers_by_thread(trace.meta)
        owners = group_owners(trace.table("owners"), names, self._index, by_thread)
        parts, shapes = trace.row_groups("queries"), trace.table("shapes")
        self.queries = QueryGroups(
            parts, shapes, names, by, self._index, where=where, transactions=transactions
        )
        counters = bool(trace.meta.counters) if counters is None else counters
        self.reader = recorded.SegmentReader(self.queries, owners, counters)

    @property
    def labels(self) -> list[GroupLabel]:
        """The label of each group, by its number."""
        return self._index.labels

    def requests(self) -> RecordedRequests:
        """The trace's requests that own no CPU time, to be added to its windows in order."""
        return RecordedRequests(self.queries, self.labels)

    def segments(self, read: Read = _nobody) -> Iterator[Segments]:
        """The trace's segments in order of time, table by table; `read` is called for each
        table."""
        for table in self._trace.iter_segments(columns=self.reader.columns):
            segments = self.reader.read(table)
            read(table, segments)
            del table
            yield segments
            del segments  # before the next rows are read
        self.queries.let_go()
