# SPDX-License-Identifier: Apache-2.0
"""A recording's segments under one grouping: maps each segment to the group it is charged to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from qjoule.engine import tables
from qjoule.engine.columns import Transactions, texts_of
from qjoule.engine.keys import EVERYTHING, LabelIndex, Selection
from qjoule.engine.query_groups import QueryGroups
from qjoule.engine.query_labels import QueryLabels
from qjoule.engine.recorded import Recording
from qjoule.engine.stolen import Stolen
from qjoule.model.arrays import Segments
from qjoule.model.charge import U32, GroupsById, charge
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import (
    BY_THREAD,
    KERNEL,
    TRACER,
    GroupLabel,
    process,
)
from qjoule.trace.columns import view
from qjoule.trace.meta import Meta

_UNKNOWN_PROCESS = "(unknown)"
#: Called with each table of segments, and the segments' groups.
Read = Callable[[pa.Table, Segments], None]


class Grouped:
    """`recording` with its queries grouped by the keys `by`; excluded queries (`where`) form one
    group per server.

    `transactions`: the recording's, if a key needs them. `counters`: read hardware counters; None:
    if the recording has them. Raises `UsageError` for an unknown key.
    """

    def __init__(
        self,
        recording: Recording,
        by: Sequence[str],
        *,
        where: Selection = EVERYTHING,
        transactions: Transactions | None = None,
        counters: bool | None = None,
    ) -> None:
        self._segments, self._index = recording.segments, LabelIndex()
        meta = recording.meta
        names = _server_names(meta)
        by_thread = {server.id for server in meta.servers if server.attach_mode == BY_THREAD}
        owners = group_owners(recording.owners, names, self._index, by_thread)
        query_labels = QueryLabels(texts_of(recording.shapes), names, by, where)
        self.queries = QueryGroups(recording.queries, query_labels, self._index, transactions)
        counters = bool(meta.counters) if counters is None else counters
        self.reader = SegmentReader(self.queries, owners, counters, recording.stolen)

    @property
    def labels(self) -> list[GroupLabel]:
        """The label of each group, by its number."""
        return self._index.labels

    def segments(self, read: Read = lambda _table, _segments: None) -> Iterator[Segments]:
        """Yields the segments in order of time, table by table; `read` is called for each table."""
        for table in self._segments(self.reader.columns):
            segments = self.reader.read(table)
            read(table, segments)
            del table
            yield segments
            del segments  # before the next rows are read
        self.queries.drop_held()


@dataclass
class SegmentReader:
    """Converts Arrow segments to model segments with groups; sums CPU time for the coverage."""

    queries: QueryGroups
    owners: OwnerGroups
    with_counters: bool
    stolen: Stolen | None = None
    server_ns: int = 0
    named_ns: int = 0

    @property
    def columns(self) -> list[str]:
        extra = (*tables.COUNTER_COLUMNS, tables.SHARE_COLUMN) if self.with_counters else ()
        return ["t0_ns", "t1_ns", "cpu", "owner", "query", *extra]

    @property
    def coverage(self) -> float:
        """Share of the servers' CPU time that ran queries with a known statement."""
        return self.named_ns / self.server_ns if self.server_ns else 0.0

    def read(self, table: pa.Table) -> Segments:
        t0_ns, t1_ns = view(table.column("t0_ns")), view(table.column("t1_ns"))
        owner, owners = self.owners.numbered(view(table.column("owner")))
        query, queries = self.queries.numbered(tables.ids(table.column("query")))
        charged = charge((t0_ns, t1_ns), owner, owners, query, queries)
        self.server_ns += charged.server_ns
        self.named_ns += charged.named_ns
        cpu = view(table.column("cpu"))
        stolen = self.stolen.shares(cpu, t0_ns, t1_ns) if self.stolen else None
        if not self.with_counters:
            return Segments(t0_ns, t1_ns, cpu, charged.group, stolen=stolen)
        return Segments(t0_ns, t1_ns, cpu, charged.group, *tables.counters(table), stolen)


@dataclass(frozen=True)
class OwnerGroups:
    """Group of every owner outside queries, by owner id."""

    ids: I64  #: sorted
    group: I64
    of_server: Bool  #: the owner runs for a traced server that has queries
    unknown: int  #: group of owners that were never announced

    def numbered(self, owner: U32) -> tuple[U32, GroupsById]:
        """Numbers some owners; returns the numbers, and each number's group, marked if it runs for
        a traced server. Unknown owners have the last entry, or a number beyond it."""
        if self._by_id is not None:
            return owner, self._by_id
        at = np.searchsorted(self.ids, owner)
        at = np.where(np.append(self.ids, -1)[at] == owner, at, len(self.ids))
        return at.astype(np.uint32), self._by_place

    @cached_property
    def _by_place(self) -> GroupsById:
        """Groups by index in `ids`."""
        return GroupsById(0, np.append(self.group, self.unknown), np.append(self.of_server, False))

    @cached_property
    def _by_id(self) -> GroupsById | None:
        """Groups by id, if ids are consecutive numbers, as qjoule assigns them; else None."""
        size = int(self.ids.max(initial=-1)) + 2
        if size > 2 * len(self.ids) + 1024 or int(self.ids.min(initial=0)) < 0:
            return None
        group, marked = np.full(size, self.unknown, np.int64), np.zeros(size, bool)
        group[self.ids], marked[self.ids] = self.group, self.of_server
        return GroupsById(0, group, marked)


def group_owners(
    owners: pa.Table,
    server_name: Callable[[int | None], str],
    index: LabelIndex,
    by_thread: Collection[int] = (),
) -> OwnerGroups:
    """Groups background by server and thread role, other processes by name; adds labels to `index`.

    `by_thread`: ids of servers without queries, which do not affect coverage.

    A query's thread without a query record (lost, or waiting for its next request) is background.
    """
    columns = ["owner", "kind", "server", "role", "comm", "process_comm"]
    rows = sorted(owners.select(columns).to_pylist(), key=lambda row: int(row["owner"]))
    groups, of_server = [], []
    for row in rows:
        kind = row["kind"]
        without_queries = row["server"] in by_thread
        of_server.append(kind in ("query", "server") and not without_queries)
        if kind in ("query", "server"):
            role = row["role"] or row["comm"] or _UNKNOWN_PROCESS
            server = server_name(row["server"])
            groups.append(index.thread(server, role, by_thread=without_queries))
        elif kind in ("kernel", "tracer"):
            groups.append(index.number(KERNEL if kind == "kernel" else TRACER))
        else:
            untraced = row["role"] if kind == "process" else None
            name = untraced or row["process_comm"] or row["comm"] or _UNKNOWN_PROCESS
            groups.append(index.number(process(name)))
    unknown = index.number(process(_UNKNOWN_PROCESS))
    return OwnerGroups(
        np.array([row["owner"] for row in rows], np.int64),
        np.array(groups, np.int64),
        np.array(of_server, bool),
        unknown,
    )


def _server_names(meta: Meta) -> Callable[[int | None], str]:
    """Returns a function from a server's id in the trace to its name."""
    names = {server.id: server.name or server.kind for server in meta.servers}

    def name(server: int | None) -> str:
        if not server:
            return "(unknown server)"
        return names.get(server) or f"server {server}"

    return name
