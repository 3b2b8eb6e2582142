# SPDX-License-Identifier: Apache-2.0
"""One live stream: converts blocks to windows, windows to ledgers, and ledgers to snapshots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qjoule.contract import Block
from qjoule.engine import tables
from qjoule.engine.accounts import (
    account_settings,
    lag_ns,
    provenance,
    server_changes,
    with_ids,
)
from qjoule.engine.keys import TAG
from qjoule.engine.live_groups import GROUPS
from qjoule.engine.live_owners import Records
from qjoule.engine.memory_adapter import LiveMemory
from qjoule.engine.stacks import RecentStacks
from qjoule.live.grouping import Grouping, live_names
from qjoule.live.options import LiveOptions
from qjoule.live.recent_stacks import LastMinute
from qjoule.live.sampled_stacks import SampledStacks
from qjoule.live.span_figures import SpanFigures
from qjoule.live.tagged_sums import CallSums, Keys, Samples, SumTags, TaggedSums, untagged
from qjoule.live.window_assembler import Chunk, WindowAssembler
from qjoule.model import assemble
from qjoule.model.account import Account
from qjoule.model.arrays import Anomalies
from qjoule.model.labels import BY_THREAD, GroupLabel
from qjoule.model.result import Attribution, ServerChange, TraceInfo
from qjoule.model.span_sums import Roles
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.block_reader import Announced, BlockReader
from qjoule.stream.blocks import Frame
from qjoule.stream.context import StreamContext
from qjoule.stream.names import Names
from qjoule.trace.vocabulary import INVALID_CAUSE, TAGS_CAUSE, UNVERIFIED_CAUSE

#: Complete windows may wait for this long, in the stream's time.
DIGEST_NS = 10_000_000_000


class StreamSession(BlockReader):
    """One live stream from its header on."""

    def __init__(
        self,
        announced: Announced,
        names: Names,
        context: StreamContext,
        options: LiveOptions,
        controls: Controls,
    ) -> None:
        super().__init__(context, announced)
        self._offers_tags = options.groups == GROUPS
        watch = context.watch
        self._first = options.groups[0]
        if watch is not None:
            watch.learnt.append(names.add_server)
        meta = self._meta = announced.meta
        self._begin_ns = meta.begin_ns or 0
        cpus = [(cpu.cpu, cpu.package) for cpu in meta.cpus]
        self._machine = tables.machine(cpus, np.zeros(0, np.int64))
        self._calibrated = options.choose(meta)
        self.memory = LiveMemory(self._calibrated.memory, meta, options.on_learned)
        series = tables.announced_series(announced.domains)
        self._assembler = WindowAssembler(series, self._machine, self._begin_ns, lag_ns(meta))
        settings = account_settings(
            meta,
            self._assembler.series,
            self._machine.packages,
            options.idle,
            self._calibrated.coefficients,
        )
        self._accounts = replace(settings, refresh_ns=round(options.refresh_s * 1e9))
        self._names = names
        self._where = options.where
        self._keys = Keys()
        self._reports = reports = context.reports
        self._calls = CallSums(reports, names.add_call, self._keys)
        self._client_tags = TaggedSums(reports) if context.client_tags else None
        self._labels = live_names(names, self._calls.tags, watch)
        self._threads = {server.id for server in meta.servers if server.attach_mode == BY_THREAD}
        self._now_ns = self._begin_ns  #: the groupings contain the windows up to here
        self._groupings: dict[str, Grouping] = {}
        for by in options.groups:
            self._group_by(by)
        if (reports or self._client_tags) and controls.group.startswith(TAG):
            self._group_by(controls.group)
        self._samples = Samples(names) if options.samples else None
        stacks = options.stacks
        self._stacks = None if stacks is None else SampledStacks(stacks.name)
        self._recent = LastMinute() if stacks is None else stacks.history(stacks.missing)
        self._invalid = announced.invalid
        self._windows = 0
        self._resets = controls.resets
        self._spans = SpanFigures(self._begin_ns, self._loss_counts, options.throttling)

    def _on_announced(self, frame: Frame) -> None:
        if frame.kind is Block.DOMAIN:  # a counter that appeared
            self._meta = self._announced.meta

    def _on_text(self, frame: Frame) -> None:
        if self._client_tags is None or not self._client_tags.add_text(frame):
            self._names.add_text(frame)

    def _on_session(self, frame: Frame) -> bool:
        for consumer in (self._client_tags, self._samples):
            if consumer is not None:
                consumer.add_session(frame)
        return True

    def _on_tasks(self, records: Records) -> None:
        self._names.add_tasks(records)

    def _on_loss(self, records: Records) -> list[tuple[int, int, int]]:
        lost = super()._on_loss(records)
        self._assembler.add_lost(lost)
        return lost

    def _on_flush(self, t_ns: int) -> None:
        del t_ns
        if self._watch is not None:
            self._watch.advance(self._assembler.clock_ns)

    def _on_records(self, frame: Frame) -> None:
        match frame.kind:
            case Block.ENERGY:
                self._assembler.add_energy(frame.records)
            case Block.AGGREGATE:
                self._assembler.add_aggregates(frame.records)
                if self._assembler.clock_ns - self._now_ns >= DIGEST_NS:
                    self._digest()
            case Block.PACKAGE_TIME:
                self._assembler.package_times.add(frame.records)
            case Block.CPU_TIME:
                self._assembler.stolen.add(frame.records)
            case Block.SAMPLE if self._samples is not None:
                self._samples.add(frame.records)
            case Block.CALL if self._stacks is not None:
                self._stacks.add_calls(frame.records)
            case Block.STACK if self._stacks is not None:
                self._stacks.add(frame.records)
                if self._stacks.crowded:
                    self._digest()

    def due(self, controls: Controls) -> bool:
        length_ns = self._assembler.clock_ns - self._spans.interval.begin_ns
        return length_ns >= controls.interval_s * 1e9

    def snapshot(
        self, controls: Controls, *, ended: bool = False, complete: bool = True
    ) -> Snapshot | None:
        """A snapshot of the complete windows since the last one; None if there is none yet."""
        if controls.resets != self._resets:
            self._resets = controls.resets
            self._spans.reset(self._now_ns)
            for grouping in self._groupings.values():
                grouping.reset()
            self._recent.reset()
        if self._watch is not None:
            self._watch.advance(self._assembler.clock_ns, everything=ended)
        self._digest(ended=ended)
        if self._now_ns == self._spans.interval.begin_ns and not ended:
            return None
        for grouping in self._groupings.values():
            grouping.resolve_pending_names()
        by = controls.group if controls.group in self._groupings else self._first
        interval = self._build_result(by, whole=False, complete=complete)
        total = interval  # a row for every group ever seen would take most of a snapshot's time
        if controls.totals:
            total = self._build_result(by, whole=True, complete=complete)
        also = {
            name: self._build_result(name, whole=False, complete=complete)
            for name in controls.also
            if name in self._groupings
        }
        recent = self._recent_stacks(by, interval)
        for grouping in self._groupings.values():
            grouping.next_interval()
        self._spans.next_interval(self._now_ns)
        self.memory.publish_evidence(self._now_ns, at_once=ended)
        elapsed_s = (self._now_ns - self._begin_ns) * 1e-9
        for key in self._keys.offered if self._offers_tags else ():
            self._group_by(TAG + key)
        sampled = (
            None if self._samples is None else self._samples.take(self._now_ns, self._trace_of)
        )
        groups = tuple(self._groupings)
        return Snapshot(interval, total, elapsed_s, ended, groups, also, sampled, recent)

    def _trace_of(self, tags: int) -> tuple[str, str] | None:
        return None if self._client_tags is None else self._client_tags.trace_of(tags)

    def _recent_stacks(self, by: str, interval: Attribution) -> RecentStacks | None:
        if self._stacks is None:
            return None
        stacks = {name: grouping.take_stacks() for name, grouping in self._groupings.items()}
        return self._recent.add(by, interval, stacks[by], self._stacks.take_dropped())

    def _group_by(self, by: str) -> None:
        """Adds this grouping from now on, if it does not exist yet."""
        if by not in self._groupings:
            self._groupings[by] = Grouping(
                by, self._labels, self._account, self._where, self._now_ns
            )

    def _digest(self, *, ended: bool = False) -> None:
        """Adds complete windows to the groupings, also between two snapshots."""
        self._assembler.add_calls(self._calls.take())
        chunk = self._assembler.take(everything=ended)
        if chunk is not None:
            self._add(chunk)
            self._now_ns = int(chunk.energy.boundaries_ns[-1])

    def _tagged(self, sums: Records) -> SumTags:
        if self._client_tags is None:
            return untagged(sums)
        tagging = self._client_tags.of(sums)
        for tags in tagging.tags:
            self._keys.meet(tags or ())
        return tagging

    def _add(self, chunk: Chunk) -> None:
        anomalies = Anomalies()
        samples = None
        if self._stacks is None:
            tagging = self._tagged(chunk.aggregates)
        else:
            samples = self._stacks.take(int(chunk.energy.boundaries_ns[-1]))
            tagging = samples.tagged(self._tagged, chunk.aggregates)
        # Where the kernel side counts queries, client-reported calls would be counted twice.
        unseen = chunk.calls[np.isin(chunk.calls["server"], list(self._threads))]
        for grouping in self._groupings.values():
            grouping.add_chunk(
                chunk,
                chunk.calls if grouping.by_tag else unseen,
                tagging,
                samples,
                machine=self._machine,
                first=self._windows,
                # Every grouping has the same anomalies: count them once.
                anomalies=anomalies if grouping.by == self._first else None,
            )
        self._spans.add_anomalies(anomalies)
        self._windows += len(chunk.energy.boundaries_ns) - 1

    def _loss_counts(self) -> dict[str, int]:
        counts = self._losses.counts() | {INVALID_CAUSE: self._invalid}
        if self._reports is not None:
            counts[TAGS_CAUSE] = self._reports.lost
            counts[UNVERIFIED_CAUSE] = self._reports.unverified
        return counts

    def _build_result(self, by: str, *, whole: bool, complete: bool) -> Attribution:
        """The result of everything since the last reset (`whole`), or of the interval."""
        span = self._spans.total if whole else self._spans.interval
        grouping, first = self._groupings[by], self._groupings[self._first]
        ledger, calls = grouping.sums(whole)
        begin_ns = max(span.begin_ns, grouping.begin_ns)
        meta = self._meta
        info = TraceInfo(
            meta.host,
            meta.kernel,
            meta.cpu,
            meta.start,
            max(0, self._now_ns - begin_ns) * 1e-9,
            complete,
            self._spans.loss(span),
            ledger.lost_ns,
            self._changes(begin_ns),
            self._spans.throttled(span),
        )
        about = replace(
            provenance(meta, ledger, info),
            by=(by,),
            where=str(self._where),
            stolen_recorded=self._assembler.stolen.recorded,
            coverage=assemble.coverage(first.sums(whole)[0], first.labels),
            anomalies=span.anomalies,
        )
        labels = grouping.labels
        result = assemble.attribution(ledger, labels, calls.stats(len(labels)), about)
        return with_ids(self._calibrated.annotate(result), self._names.ids())

    def _changes(self, begin_ns: int) -> tuple[ServerChange, ...]:
        """The changes of servers that still hold, or that ended after `begin_ns`."""
        changes = () if self._watch is None else self._watch.changes
        in_span = (
            change for change in changes if change.until_ns is None or change.until_ns >= begin_ns
        )
        return server_changes(replace(self._meta, changes=tuple(in_span)))

    def _account(self, roles: Roles, labels: list[GroupLabel]) -> Account:
        return Account(self._accounts, roles=roles, memory=self.memory.of(labels))
