# SPDX-License-Identifier: Apache-2.0
"""Plays a recorded trace as snapshots, with the same model as `qjoule attribute`.

At the end the snapshot's `total` equals the result of `attribute` for the whole trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from qjoule.engine import recorded, tables
from qjoule.engine.accounts import Accounts, counters_left_out, total_errors
from qjoule.engine.calls import Calls
from qjoule.engine.grouped import Grouped
from qjoule.engine.keys import EVERYTHING, Selection, check_keys
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.engine.other_ids import recorded_ids, with_ids
from qjoule.engine.query_groups import CallsByEnd
from qjoule.live.call_sums import groups_of_tags
from qjoule.live.interval_ledgers import IntervalLedgers
from qjoule.model import assemble
from qjoule.model.account import Account
from qjoule.model.arrays import WindowBatch
from qjoule.model.batches import cut, windows
from qjoule.model.classes import classes
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.latency import Latencies
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution
from qjoule.model.span_sums import Roles
from qjoule.model.windows import SegmentWindows
from qjoule.servers.decoding import SERVING_THREADS
from qjoule.snapshots import Controls, Snapshot
from qjoule.trace.reader import Trace


class LossSums:
    """The `loss` table of a trace, prepared for queries of any span of time."""

    def __init__(self, loss: pa.Table) -> None:
        self._series: dict[tuple[int | None, str], list[tuple[int, int, int]]] = {}
        for row in loss.select(["t_ns", "cpu", "cause", "count", "lost_ns"]).to_pylist():
            sums = (row["t_ns"], row["count"], row["lost_ns"])
            self._series.setdefault((row["cpu"], row["cause"]), []).append(sums)

    def between(self, begin_ns: int, end_ns: int) -> tuple[dict[str, int], int]:
        """Count by cause, only of causes that happened, and lost CPU time after `begin_ns`."""
        before, before_ns = self._until(begin_ns)
        until, until_ns = self._until(end_ns)
        counts = {cause: count - before.get(cause, 0) for cause, count in sorted(until.items())}
        return {cause: count for cause, count in counts.items() if count}, until_ns - before_ns

    def _until(self, t_ns: int) -> tuple[dict[str, int], int]:
        counts: dict[str, int] = {}
        lost_ns = 0
        for (_, cause), sums in self._series.items():
            known = np.array([(count, ns) for at, count, ns in sums if at <= t_ns], np.int64)
            if len(known):
                counts[cause] = counts.get(cause, 0) + int(known[:, 0].max())
                lost_ns += int(known[:, 1].max())
        return counts, lost_ns


#: The groupings that `g` offers besides those that the user gave.
GROUPS = ("fingerprint", "fingerprint,database,user", "server", "database", "user")
_EVER = np.iinfo(np.int64)


@dataclass
class _Place:
    """The position of the replay, in windows of the trace; it survives a change of grouping."""

    resets: int
    window: int = 0  #: start of the current interval
    end: int = 0  #: end of the interval (exclusive); 0: not decided yet
    reset: int = 0  #: start of the total
    done: bool = False


class ReplaySource:
    """Snapshots of a trace, at `speed` times the recorded speed; 0: as fast as possible.

    `by`: keys to group by at first. `where`: as in `attribute`, for every grouping. Raises
    `UsageError` for an unknown key.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        by: Sequence[str] = ("fingerprint",),
        idle: IdlePolicy = "separate",
        speed: float = 1.0,
        calibrated: Calibrated = UNCALIBRATED,
        where: Selection = EVERYTHING,
    ) -> None:
        self._first = ",".join(check_keys(by))
        self.name = f"replay {trace.path.name}"
        self._trace = trace
        self._speed = speed
        self._calibrated = calibrated
        self._where = where
        self._energy = recorded.windows(trace)
        self._bounds_ns = self._energy.boundaries_ns
        self._machine = recorded.machine(trace)
        self._accounts = Accounts.of(
            trace.meta,
            self._energy.series,
            self._machine.packages,
            idle,
            calibrated.coefficients,
        )
        self._ids = recorded_ids([trace])
        self._loss = LossSums(trace.table("loss"))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groupings that the user gave, then `GROUPS`, then the trace's first keys of tags."""
        others = (*GROUPS, *groups_of_tags(self._trace.row_groups("queries")))
        return tuple(dict.fromkeys((self._first, *others)))

    def close(self) -> None:
        """Nothing to unblock: reading a trace does not wait."""

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        place = _Place(resets=controls.resets)
        while not (controls.stopped or place.done):
            yield from self._play(controls, place, _Pass(self, controls.group))

    def _play(self, controls: Controls, place: _Place, grouped: _Pass) -> Iterator[Snapshot]:
        """Plays from `place` on, until the end or until another grouping is requested."""
        for batch in grouped.batches():
            at = self._catch_up(batch, place, grouped.books)
            while at < windows(batch):
                place.end = place.end or self._interval_end(place.window, controls.interval_s)
                stop = min(windows(batch), place.end - batch.first)
                grouped.books.add(cut(batch, at, stop))
                at = stop
                if batch.first + at < place.end:
                    break
                if not self._pace(controls, place):
                    return
                yield self._snapshot(place, grouped)
                if controls.resets != place.resets:
                    place.resets, place.reset = controls.resets, place.window
                    grouped.reset()
                if controls.group != grouped.group and not place.done:
                    return
        if not place.done:  # a trace without a single window
            place.done = True
            span_ns = (self._trace.begin_ns, self._trace.end_ns)
            calls = grouped.calls_until(span_ns[0], *span_ns)
            empty = grouped.attribution(grouped.books.total, calls, span_ns)
            yield Snapshot(empty, empty, (span_ns[1] - span_ns[0]) * 1e-9, ended=True)

    def _catch_up(self, batch: WindowBatch, place: _Place, books: IntervalLedgers) -> int:
        """Adds the batch's windows before `place` to the total; returns the window to continue
        with."""
        count = windows(batch)
        reset = max(0, min(count, place.reset - batch.first))
        here = max(reset, min(count, place.window - batch.first))
        if here > reset:
            books.catch_up(cut(batch, reset, here))
        return here

    def _interval_end(self, window: int, interval_s: float) -> int:
        """The first window after the interval that begins at `window`."""
        end_ns = int(self._bounds_ns[window]) + round(interval_s * 1e9)
        found = int(np.searchsorted(self._bounds_ns, end_ns, "left"))
        return min(max(found, window + 1), len(self._bounds_ns) - 1)

    def _pace(self, controls: Controls, place: _Place) -> bool:
        """Sleeps as long as the interval took; returns whether to continue."""
        if self._speed <= 0:
            return not controls.stopped
        length_ns = int(self._bounds_ns[place.end] - self._bounds_ns[place.window])
        return controls.wait(length_ns * 1e-9 / self._speed)

    def _snapshot(self, place: _Place, grouped: _Pass) -> Snapshot:
        begin, end, reset = (
            int(self._bounds_ns[at]) for at in (place.window, place.end, place.reset)
        )
        place.window, place.end, place.done = (
            place.end,
            0,
            place.end >= len(self._bounds_ns) - 1,
        )
        calls = grouped.calls_until(reset, begin, end)
        interval = grouped.attribution(grouped.books.interval, calls, (begin, end))
        total = grouped.attribution(grouped.books.total, grouped.calls, (reset, end))
        grouped.books.next_interval()
        return Snapshot(interval, total, (end - self._trace.begin_ns) * 1e-9, place.done)


class _Pass:
    """One pass over the trace's segments under one grouping."""

    def __init__(self, source: ReplaySource, group: str) -> None:
        self._source = source
        self._trace = source._trace
        self.group = group
        self._keys = check_keys(group.split(","))
        self._grouped = Grouped(self._trace, self._keys, where=source._where)
        self._ended = CallsByEnd(self._grouped.queries)
        self._requests = self._grouped.requests()
        self.calls = Latencies()  #: of the total
        lost = tables.lost_time(self._trace.table("loss"), self._trace.begin_ns)
        self._windows = SegmentWindows(source._machine, source._energy, lost)
        self._class_of = classes(self._grouped.labels)
        self.books = IntervalLedgers(self._account)

    def batches(self) -> Iterator[WindowBatch]:
        for segments in self._grouped.segments():
            yield self._requests.added(self._windows.add(segments))
        yield self._requests.added(self._windows.finish())

    def reset(self) -> None:
        """Starts a new total."""
        self.books.reset()
        self.calls = Latencies()

    def calls_until(self, reset_ns: int, begin_ns: int, end_ns: int) -> Latencies:
        """Returns the calls of an interval; the total gets these and those since `reset_ns`."""
        reset_ns, _ = self._span(reset_ns, end_ns)
        begin_ns, end_ns = self._span(begin_ns, end_ns)
        self._ended.until(reset_ns)
        _add(self._ended.until(begin_ns), self.calls)
        interval = Latencies()
        _add(self._ended.until(end_ns), self.calls, interval)
        return interval

    def attribution(
        self, ledger: Ledger, calls: Latencies, span_ns: tuple[int, int]
    ) -> Attribution:
        """The result of a ledger, with the calls that ended and the losses in its span of time."""
        begin_ns, end_ns = span_ns
        trace, meta = self._trace, self._trace.meta
        first, last = self._span(begin_ns, end_ns)
        loss, lost_cpu_ns = self._source._loss.between(first, last)
        about = assemble.Provenance(
            trace=replace(
                recorded.trace_info(trace),
                duration_s=max(end_ns - begin_ns, 0) * 1e-9,
                loss=loss,
                lost_cpu_ns=lost_cpu_ns,
            ),
            source=meta.energy.source or "none",
            grade=meta.energy.grade if ledger.series else "none",
            reason=meta.energy.reason,
            total_errors=total_errors(meta),
            left_out=counters_left_out(meta),
            by=self._keys,
            where=str(self._source._where),
            record_loss=recorded.record_loss(trace, ledger, lost_cpu_ns),
            anomalies=self._windows.anomalies,
            notes=recorded.notes(trace),
        )
        labels = self._grouped.labels
        result = assemble.attribution(ledger, labels, calls.stats(len(labels)), about)
        return with_ids(self._source._calibrated.said_in(result), self._source._ids)

    def _span(self, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """The trace's first and last span are extended to all that lies outside, as in
        `attribute`."""
        first = begin_ns if begin_ns > self._trace.begin_ns else int(_EVER.min)
        return first, end_ns if end_ns < self._trace.end_ns else int(_EVER.max)

    def _account(self) -> Account:
        roles = Roles(self._grouped.labels, SERVING_THREADS) if self._requests.any else None
        source, labels = self._source, self._grouped.labels
        memory = MemoryAdapter.of(source._calibrated.memory, labels, self._trace.meta)
        return source._accounts.new(class_of=self._class_of, roles=roles, memory=memory)


def _add(taken: Iterable[Calls], *sums: Latencies) -> None:
    for calls in taken:
        for one in sums:
            one.add(calls.group, calls.latency_ns, calls.executions)
