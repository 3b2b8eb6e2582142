# SPDX-License-Identifier: Apache-2.0
"""Makes snapshots of a recorded trace that is played, by the model of `qjoule attribute`.

At the end of a trace the snapshot's `total` equals the result of `attribute` for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.accounts import with_ids
from qjoule.engine.attribute import AttributionContext, AttributionRequest
from qjoule.engine.calls import Calls
from qjoule.engine.keys import EVERYTHING, TAG, Selection
from qjoule.engine.query_groups import CallsByEnd, Part
from qjoule.engine.recorded import Recording
from qjoule.lazy_import import pc
from qjoule.live.grouping import IntervalLedgers
from qjoule.live.tagged_sums import MAX_KEYS, MAX_PARTS, offered
from qjoule.model.arrays import WindowBatch
from qjoule.model.batches import cut, windows
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.latency import Latencies
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution
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
            rows = np.array([(count, ns) for end_ns, count, ns in sums if end_ns <= t_ns], np.int64)
            if len(rows):
                counts[cause] = counts.get(cause, 0) + int(rows[:, 0].max())
                lost_ns += int(rows[:, 1].max())
        return counts, lost_ns


#: The groupings that `g` offers besides those that the user gave.
GROUPS = ("fingerprint", "fingerprint,database,user", "server", "database", "user")
_EVER = np.iinfo(np.int64)


@dataclass
class _Position:
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
        self._request = AttributionRequest(tuple(by), idle, calibrated=calibrated, where=where)
        self.name = f"replay {trace.path.name}"
        self._trace = trace
        self._speed = speed
        self._recording = recorded.read(trace)
        self._bounds_ns = self._recording.energy.boundaries_ns
        self._ids = recorded.recorded_ids([trace])
        self._loss = LossSums(self._recording.loss)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groupings that the user gave, then `GROUPS`, then the trace's first keys of tags."""
        others = (*GROUPS, *groups_of_tags(self._recording.queries))
        return tuple(dict.fromkeys((",".join(self._request.by), *others)))

    def close(self) -> None:
        """Nothing to unblock: reading a trace does not wait."""

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        place = _Position(resets=controls.resets)
        while not (controls.stopped or place.done):
            request = replace(self._request, by=tuple(controls.group.split(",")))
            yield from self._play(controls, place, _Pass(self._recording, request))

    def _play(self, controls: Controls, place: _Position, grouped: _Pass) -> Iterator[Snapshot]:
        """Plays from `place` on, until the end or until another grouping is requested."""
        for batch in grouped.context.batches():
            at = self._catch_up(batch, place, grouped.ledgers)
            while at < windows(batch):
                place.end = place.end or self._interval_end(place.window, controls.interval_s)
                stop = min(windows(batch), place.end - batch.first)
                grouped.ledgers.add(cut(batch, at, stop))
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
            span_ns = self._recording.span_ns
            calls = grouped.calls_until(span_ns[0], *span_ns)
            empty = self._result(grouped, grouped.ledgers.total, calls, span_ns)
            yield Snapshot(empty, empty, (span_ns[1] - span_ns[0]) * 1e-9, ended=True)

    def _catch_up(self, batch: WindowBatch, place: _Position, ledgers: IntervalLedgers) -> int:
        """Adds the batch's windows before `place` to the total; returns the window to continue
        with."""
        count = windows(batch)
        reset = max(0, min(count, place.reset - batch.first))
        here = max(reset, min(count, place.window - batch.first))
        if here > reset:
            ledgers.catch_up(cut(batch, reset, here))
        return here

    def _interval_end(self, window: int, interval_s: float) -> int:
        """The first window after the interval that begins at `window`."""
        end_ns = int(self._bounds_ns[window]) + round(interval_s * 1e9)
        index = int(np.searchsorted(self._bounds_ns, end_ns, "left"))
        return min(max(index, window + 1), len(self._bounds_ns) - 1)

    def _pace(self, controls: Controls, place: _Position) -> bool:
        """Sleeps as long as the interval took; returns whether to continue."""
        if self._speed <= 0:
            return not controls.stopped
        length_ns = int(self._bounds_ns[place.end] - self._bounds_ns[place.window])
        return controls.wait(length_ns * 1e-9 / self._speed)

    def _snapshot(self, place: _Position, grouped: _Pass) -> Snapshot:
        begin, end, reset = (
            int(self._bounds_ns[at]) for at in (place.window, place.end, place.reset)
        )
        place.window, place.end, place.done = (
            place.end,
            0,
            place.end >= len(self._bounds_ns) - 1,
        )
        calls = grouped.calls_until(reset, begin, end)
        interval = self._result(grouped, grouped.ledgers.interval, calls, (begin, end))
        total = self._result(grouped, grouped.ledgers.total, grouped.calls, (reset, end))
        grouped.ledgers.next_interval()
        elapsed_s = (end - self._recording.span_ns[0]) * 1e-9
        return Snapshot(interval, total, elapsed_s, place.done)

    def _result(
        self, grouped: _Pass, ledger: Ledger, calls: Latencies, span_ns: tuple[int, int]
    ) -> Attribution:
        """The result of a ledger, with the calls that ended and the losses in its span of time."""
        loss, lost_cpu_ns = self._loss.between(*_open_ended(span_ns, self._recording.span_ns))
        summary = recorded.summary(self._trace, self._recording)
        duration_s = max(span_ns[1] - span_ns[0], 0) * 1e-9
        info = replace(summary.info, duration_s=duration_s, loss=loss, lost_cpu_ns=lost_cpu_ns)
        context = grouped.context
        stats = calls.stats(len(context.labels))
        return with_ids(context.result(ledger, replace(summary, info=info), stats), self._ids)


class _Pass:
    """One pass over the trace's segments under one grouping."""

    def __init__(self, recording: Recording, request: AttributionRequest) -> None:
        self.group = ",".join(request.by)
        context = self.context = AttributionContext(recording, request)
        self._span_ns = recording.span_ns
        self._ended = CallsByEnd(context.grouped.queries)
        self.calls = Latencies()  #: of the total
        self.ledgers = IntervalLedgers(lambda: context.account(context.memory(), by_block=False))

    def reset(self) -> None:
        """Starts a new total."""
        self.ledgers.reset()
        self.calls = Latencies()

    def calls_until(self, reset_ns: int, begin_ns: int, end_ns: int) -> Latencies:
        """Returns the calls of an interval; the total gets these and those since `reset_ns`."""
        reset_ns, _ = _open_ended((reset_ns, end_ns), self._span_ns)
        begin_ns, end_ns = _open_ended((begin_ns, end_ns), self._span_ns)
        self._ended.until(reset_ns)
        _add(self._ended.until(begin_ns), self.calls)
        interval = Latencies()
        _add(self._ended.until(end_ns), self.calls, interval)
        return interval


def _open_ended(part_ns: tuple[int, int], span_ns: tuple[int, int]) -> tuple[int, int]:
    """Extends a part that begins or ends with the trace to all time before or after, as `attribute`
    does."""
    (begin_ns, end_ns), (first_ns, last_ns) = part_ns, span_ns
    begin_ns = begin_ns if begin_ns > first_ns else int(_EVER.min)
    return begin_ns, end_ns if end_ns < last_ns else int(_EVER.max)


def _add(batches: Iterable[Calls], *sums: Latencies) -> None:
    for calls in batches:
        for latencies in sums:
            calls.add_to(latencies)


def groups_of_tags(queries: Sequence[Part]) -> tuple[str, ...]:
    """`tag:KEY` of the first keys in a trace's `queries`."""
    keys: dict[str, None] = {}
    for part in queries[:MAX_PARTS]:
        table = part.read(["tags"])
        for chunk in table["tags"].chunks if table is not None else ():
            keys |= dict.fromkeys(offered(pc.unique(chunk.keys).to_pylist()))
        if len(keys) >= MAX_KEYS:
            break
    return tuple(TAG + key for key in list(keys)[:MAX_KEYS])
