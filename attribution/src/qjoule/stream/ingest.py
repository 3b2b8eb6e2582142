# SPDX-License-Identifier: Apache-2.0
"""Turns the tracer's stream into tables, batch by batch, driven only by the stream's own clock.

The same blocks give the same tables in the same batches, however the pipe delivers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from qjoule.contract import Block
from qjoule.stream import rows
from qjoule.stream.batch_clock import BATCH_NS, BatchClock
from qjoule.stream.block_reader import BlockReader, known_causes
from qjoule.stream.blocks import TIME_LIMIT_NS, Frame, forward, valid_segments, valid_tasks
from qjoule.stream.client_tags import ClientTags, Tagged
from qjoule.stream.context import Share, StreamContext, with_meter
from qjoule.stream.names import CompiledCode, CompiledListing, ReportedQueryId, StatementShape
from qjoule.stream.owners import Owners
from qjoule.stream.pending import PartOf, Pending, take_rows
from qjoule.stream.queries import Queries, QuerySources, Span
from qjoule.stream.rows import OwnLosses
from qjoule.stream.sampled_waits import is_wait, take_ended, valid_ends, valid_waits
from qjoule.stream.session_updates import SessionUpdate, read_session
from qjoule.stream.sessions import Sessions
from qjoule.stream.stack_rows import code_rows, frame_rows, sample_rows, wait_rows
from qjoule.stream.statements import MAX_SHAPES, Statements
from qjoule.stream.transactions import Transactions
from qjoule.trace.columns import Array
from qjoule.trace.meta import Meta
from qjoule.trace.vocabulary import (
    INVALID_CAUSE,
    METER_CAUSE,
    SPOOL_CAUSE,
    TAGS_CAUSE,
    UNVERIFIED_CAUSE,
)

Tables = Mapping[str, pa.Table]
Metadata = (
    StatementShape | ReportedQueryId | SessionUpdate | Tagged | PartOf | CompiledListing | Array
)
_QUERY_BLOCKS = (Block.QUERY, Block.CHILD, Block.HELPER)


class Ingest(BlockReader):
    """Turns blocks into tables and hands each batch of them to `sink`.

    The stream completes the context's `meta`. The caller may replace it at any time, for instance
    when a server is found later. `share`: makes only these tables, in the same batches as all.
    Records that contradict themselves are left out and counted as loss of cause `INVALID_CAUSE`.
    """

    def __init__(
        self,
        sink: Callable[[Tables], None],
        context: StreamContext,
        *,
        max_shapes: int = MAX_SHAPES,
        batch_ns: int = BATCH_NS,
        share: Share = Share.ALL,
    ) -> None:
        super().__init__(context)
        self._share = share
        self._news = 0  #: the watch's count of changes that `meta` has
        self._sink = sink
        self._clock = BatchClock(batch_ns)
        self._reports = context.reports
        self._meter = context.meter
        self._statements = Statements(
            context.fingerprint, max_shapes=max_shapes, capture=self.meta.literals, ids=context.ids
        )
        self._sent_tags = ClientTags()
        self._sessions = Sessions()
        self._transactions = Transactions(self._statements.name_of)
        self._ending = False
        self._owners = Owners() if self._watch is None else Owners(untraced=self._watch.process_of)
        self._pending = Pending()
        sources = QuerySources(
            self._statements, self._sessions, self._sent_tags, self._transactions, context.reports
        )
        self._queries = Queries(
            self._pending, sources, self._keep, max_shapes, client_tags=context.client_tags
        )
        self._part: PartOf | None = None
        self._code: list[CompiledCode] = []
        self._own_losses = OwnLosses()
        self.missing_frames = 0  #: frames of a capture that are known to be missing

    @property
    def meta(self) -> Meta:
        """What is known of the trace so far."""
        return self._announced.meta

    @meta.setter
    def meta(self, meta: Meta) -> None:
        self._announced.meta = meta

    def _on_announced(self, frame: Frame) -> None:
        if frame.kind is Block.HELLO and not self._clock.now_ns:
            self._clock.begin(int(frame.records["t_ns"][0]))

    def _on_text(self, frame: Frame) -> None:
        if not self._sent_tags.take(frame):
            self._statements.add(frame)

    def _on_session(self, frame: Frame) -> bool:
        event = read_session(frame)
        if event is None:
            self._invalid += 1
            return False
        self.apply_metadata(event)
        return True

    def _on_tasks(self, records: Array) -> None:
        self._owners.apply(self._keep(records, valid_tasks(records)))

    def _on_loss(self, records: Array) -> list[tuple[int, int, int]]:
        """Keeps the records: rows are made with their batch."""
        self._add_bulk(Block.LOSS, records)
        return []

    def _on_flush(self, t_ns: int) -> None:
        self._update_changes()
        self._advance(t_ns, sent=True)

    def _on_end(self, t_ns: int) -> None:
        self._advance(t_ns)

    def _on_records(self, frame: Frame) -> None:
        # The live view's sums repeat what the segments contain.
        if frame.kind not in (Block.AGGREGATE, Block.PACKAGE_TIME):
            self._add_bulk(frame.kind, frame.records)

    def _add_bulk(self, kind: Block, records: Array) -> None:
        if self._part is not None:
            records = self._part.within(kind, records)
        self._clock.arrived(records.size)
        if kind not in _QUERY_BLOCKS:
            if self._share.has_times:
                self._pending.add(kind, records)
        elif self._share.has_queries:
            self._pending.add(kind, records)
        else:  # the share with queries drops invalid ones, and this one counts them
            self._keep(records, forward(records["begin_ns"], records["end_ns"]))
        if kind is Block.ENERGY and records.size:
            self._advance(int(records["t_ns"].max()))
        if self._clock.is_full:
            self.flush(everything=True)

    def apply_metadata(self, news: Metadata) -> None:
        """Takes in a text's shape, a session's event, tags, or task events, also from a capture.
        `PartOf` comes before all else."""
        match news:
            case PartOf():
                self._part = news
            case StatementShape():
                self._statements.learn(news)
            case ReportedQueryId():
                self._statements.learn_id(news)
            case SessionUpdate():
                self._sessions.learn(news)
                self._transactions.met(news.session, news.event, news.t_ns)
            case Tagged():
                self._sent_tags.learn(news)
            case CompiledListing():
                self._code += news.rows
            case _:
                self._on_tasks(news)

    def _update_changes(self) -> None:
        """Notices servers that run untraced or have exited."""
        if self._watch is None:
            return
        self._owners.rewrite_rows(self._watch.advance(self._clock.now_ns, everything=self._ending))
        if self._watch.news != self._news or self._ending:
            self._news = self._watch.news
            self.meta = replace(self.meta, changes=self._watch.changes)

    def flush(self, *, everything: bool = False) -> None:
        """Hands over pending records: segments up to the last FLUSH block, or `everything`."""
        self._update_changes()
        begin_ns = self.meta.begin_ns or 0
        span = Span(begin_ns, self._clock.sent_ns, self._clock.now_ns, everything, self._ending)
        tables = dict(self._query_tables(span) if self._share.has_queries else {})
        tables |= self._time_tables(everything) if self._share.has_times else {}
        self._clock.close()
        self._owners.forget(self._clock.sent_ns)
        self._sink({name: table for name, table in tables.items() if table.num_rows})

    def _query_tables(self, span: Span) -> Tables:
        return {
            "queries": self._queries.take(span),
            "helpers": self._queries.take_helpers(),
            "sessions": self._sessions.take_rows(),
            "transactions": self._transactions.take_rows(),
            "shapes": pa.concat_tables(
                [self._statements.take_shapes(), self._queries.take_shapes()]
            ),
            "ids": self._statements.take_ids(),
            "statements": self._statements.take_statements(),
        }

    def _time_tables(self, everything: bool) -> Tables:
        return {
            "segments": self._take_segments(everything),
            "energy": self._take_energy(),
            "meter": self._take_meter(),
            "cpu_time": rows.cpu_time_rows(self._take_timed(Block.CPU_TIME)),
            "loss": self._take_losses(),
            "frames": frame_rows(self._pending.take(Block.CALL)),
            **self._stack_tables(),
            "owners": self._owners.take_changes(),
        }

    def finish(self, *, complete: bool, stopped: str | None = None) -> Meta:
        """Hands over the rest and returns the trace's meta, loss included."""
        self._ending = True
        if self._code:
            self._sink({"code": code_rows(self._code)})
        self.flush(everything=True)
        self._transactions.finish()
        if (unfinished := self._transactions.take_rows()).num_rows:
            self._sink({"transactions": unfinished})
        loss = self._losses.counts() | self._own_losses.written
        self.meta = replace(
            self.meta,
            complete=complete,
            stopped=stopped,
            end_ns=self._clock.now_ns or None,
            loss=dict(sorted(loss.items())),
            lost_cpu_ns=self._losses.lost_ns,
        )
        return self.meta

    def _advance(self, t_ns: int, *, sent: bool = False) -> None:
        """Moves the clock, and closes a batch when it is due."""
        if (everything := self._clock.due(t_ns, sent=sent)) is not None:
            self.flush(everything=everything)

    def _take_segments(self, everything: bool) -> pa.Table:
        until_ns = None if everything else self._clock.sent_ns
        segments, counters, more = self._pending.take_segments(until_ns)
        are_valid = valid_segments(segments)
        counters = None if counters is None else counters[are_valid]
        segments = self._keep(segments, are_valid)
        owners = self._owners.resolve(segments)
        if self._watch is not None:
            self._watch.ran(segments)
        further = None
        if more is not None and self.meta.more_counters:
            further = rows.more_rows(more[are_valid], len(self.meta.more_counters))
        return rows.segment_rows(segments, counters, owners, self._announced.packages, further)

    def _stack_tables(self) -> Tables:
        stacks = self._pending.take(Block.STACK)
        of_wait = is_wait(stacks)
        samples, waits = take_rows(stacks, ~of_wait), take_rows(stacks, of_wait)
        samples = self._keep(samples, valid_segments(samples["segment"]))
        ends = self._pending.take(Block.WAIT_END)
        waits, ends = self._keep(waits, valid_waits(waits)), self._keep(ends, valid_ends(ends))
        waits, ends, has_end = take_ended(
            waits, ends, self._pending, self._clock.sent_ns, ending=self._ending
        )
        return {
            "samples": sample_rows(samples, self._owners.resolve(samples["segment"])),
            "waits": wait_rows(waits, ends, has_end, self._owners.resolve(waits["segment"])),
        }

    def _take_energy(self) -> pa.Table:
        readings = self._take_timed(Block.ENERGY)
        domains = self._announced.domains
        announced = np.isin(readings["domain"], np.array(list(domains), np.uint16))
        return rows.energy_rows(self._keep(readings, announced), domains)

    def _take_meter(self) -> pa.Table:
        """The meter's readings. A machine without its own counters has only the meter's energy."""
        if self._meter is None:
            return rows.meter_rows([])
        self.meta = with_meter(self.meta, self._meter.info)
        return rows.meter_rows(self._meter.readings())

    def _take_losses(self) -> pa.Table:
        losses = self._take_timed(Block.LOSS)
        losses = self._keep(losses, known_causes(losses))
        self._losses.add(losses)
        invalid = self._invalid + self._announced.invalid
        ours = {INVALID_CAUSE: invalid, SPOOL_CAUSE: self.missing_frames}
        if self._part is not None:
            ours[SPOOL_CAUSE] -= self._part.frames_before
        if self._meter is not None:
            ours[METER_CAUSE] = self._meter.bad
        if self._reports is not None:
            ours[TAGS_CAUSE] = self._reports.lost
            ours[UNVERIFIED_CAUSE] = self._reports.unverified
        return self._own_losses.added_to(rows.loss_rows(losses), self._clock.now_ns, ours)

    def _take_timed(self, kind: Block) -> Array:
        records = self._pending.take(kind)
        return self._keep(records, records["t_ns"] < TIME_LIMIT_NS)

    def _keep(self, records: Array, valid: Array) -> Array:
        """Returns the valid records and counts the others."""
        if valid.all():
            return records
        self._invalid += int(records.size - np.count_nonzero(valid))
        return take_rows(records, valid)
