# SPDX-License-Identifier: Apache-2.0
"""Rows of `queries`: records of the kernel side, with what their sessions, texts and tags say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from qjoule.contract import AttachMode, Block, QueryFlag
from qjoule.stream import rows
from qjoule.stream.blocks import forward
from qjoule.stream.client_reports import CallReports, CallShapes, ReportedCall, call_rows
from qjoule.stream.client_tags import ClientTags
from qjoule.stream.pending import Pending, take_rows
from qjoule.stream.sessions import Sessions
from qjoule.stream.statements import Statements
from qjoule.stream.transactions import Transactions
from qjoule.trace.columns import Array, Words, looked_up


@dataclass(frozen=True)
class Span:
    """Which records a batch takes, by the stream's times."""

    begin_ns: int  #: of the trace
    sent_ns: int  #: all that ended before has been sent
    clock_ns: int
    everything: bool  #: also what ended later
    ending: bool  #: it is the last batch


@dataclass(frozen=True)
class QuerySources:
    """What describes queries beside their records. `reports` None: no client reports its calls."""

    statements: Statements
    sessions: Sessions
    sent_tags: ClientTags
    transactions: Transactions
    reports: CallReports | None


class Queries:
    """Makes rows of the pending queries, batch by batch.

    Args:
        keep: returns the valid ones of some records, and counts the others.
        client_tags: also read the tags that clients set for a connection.
    """

    def __init__(
        self,
        pending: Pending,
        sources: QuerySources,
        keep: Callable[[Array, Array], Array],
        max_shapes: int,
        *,
        client_tags: bool,
    ) -> None:
        self._pending = pending
        self._statements, self._sessions = sources.statements, sources.sessions
        self._sent_tags, self._transactions = sources.sent_tags, sources.transactions
        self._reports = sources.reports
        self._keep = keep
        self._client_tags = client_tags
        self._calls = CallShapes(max_shapes)
        self._reported = 0  #: number of calls that only their clients report
        self._waiting: list[ReportedCall] = []  #: calls that lie ahead of the stream's clock

    def take(self, span: Span) -> pa.Table:
        """Rows of queries that ended before the last FLUSH: all events of their sessions have
        arrived by now. With them, rows of calls that only clients report.
        """
        return pa.concat_tables([self._take_queries(span), self._take_calls(span)])

    def take_helpers(self) -> pa.Table:
        """Rows of what helpers of queries waited for, since the last call."""
        helpers = self._pending.take(Block.HELPER)
        forwards = forward(helpers["begin_ns"], helpers["end_ns"])
        return rows.helper_rows(self._keep(helpers, forwards))

    def take_shapes(self) -> pa.Table:
        """Shapes of calls that only clients report, since the last call."""
        return self._calls.take_rows()

    def _take_queries(self, span: Span) -> pa.Table:
        queries = self._take_ended(Block.QUERY, span)
        shapes = queries["shape"]
        settled = self._statements.settled(shapes)
        if settled is not shapes:
            queries = queries.copy()
            queries["shape"] = settled
        self._follow_databases(queries)
        transactions = self._transactions.assign(queries)
        table = self._query_rows(queries, transactions)
        children = self._take_ended(Block.CHILD, span)
        if children.size:
            running = self._transactions.of_running(children["session"])
            theirs = looked_up(children["query"], queries["query"], transactions, running)
            executed = self._statements.fingerprints(children["shape"])
            parts = children["query"], executed
            table = pa.concat_tables(
                [table, self._query_rows(rows.as_queries(children), theirs, parts)]
            )
        self._sessions.settle(span.sent_ns)
        return table

    def _take_ended(self, kind: Block, span: Span) -> Array:
        ended = self._pending.take(kind)
        ended = self._keep(ended, forward(ended["begin_ns"], ended["end_ns"]))
        if not span.everything:
            complete = ended["end_ns"] < span.sent_ns
            self._pending.add(kind, take_rows(ended, ~complete))
            ended = take_rows(ended, complete)
        return ended

    def _query_rows(
        self,
        queries: Array,
        transactions: Array,
        children: tuple[Array, pa.DictionaryArray] | None = None,
    ) -> pa.Table:
        fingerprints = self._statements.fingerprints(queries["shape"])
        whose = self._sessions.names_of(queries["session"], queries["end_ns"])
        return rows.query_rows(
            queries,
            fingerprints,
            whose,
            tags=self._tags(queries, whose[2]),
            transactions=transactions,
            children=children,
        )

    def _tags(self, queries: Array, applications: Words) -> pa.Array | None:
        tags = None if self._reports is None else self._tags_of_calls(self._reports, queries)
        connections = None
        if self._client_tags:
            whose = queries["session"], queries["end_ns"]
            connections = self._sessions.tags_of(*whose, applications)
        return self._sent_tags.fill(tags, queries["query"], queries["tags"], connections)

    def _tags_of_calls(self, reports: CallReports, queries: Array) -> pa.MapArray:
        begins_ns = queries["begin_ns"].astype(np.int64)
        codes, connections = self._sessions.connections(queries["session"], begins_ns)
        streams = queries["stream"].astype(np.int64)
        return reports.tags_of(connections, codes, streams, begins_ns)

    def _take_calls(self, span: Span) -> pa.Table:
        """Calls that only clients report, up to the stream's time; at the end also open ones."""
        if self._reports is not None:
            calls = self._reports.reported(self._sessions.opaque, everything=span.ending)
            self._waiting += [call for call in calls if call.begin_ns >= span.begin_ns]
        calls = [call for call in self._waiting if call.begin_ns <= span.clock_ns]
        self._waiting = [call for call in self._waiting if call.begin_ns > span.clock_ns]
        self._reported += len(calls)
        return call_rows(calls, self._reported - len(calls), self._calls)

    def _follow_databases(self, queries: Array) -> None:
        """Follows a session's default database: a `USE` that succeeded changes it.

        On the symbol mode MySQL's function that changes it is probed instead.
        """
        databases = self._statements.databases
        if not databases:
            return
        changes = np.isin(queries["shape"], np.fromiter(databases, np.uint64))
        changes &= (queries["flags"] & QueryFlag.ERROR == 0) & (
            queries["attach_mode"] == AttachMode.SOCKET
        )
        for query in queries[changes]:
            done = int(query["flags"]) & QueryFlag.OK
            name = databases[int(query["shape"])] if done else None
            self._sessions.use(int(query["session"]), int(query["end_ns"]) + 1, name)
