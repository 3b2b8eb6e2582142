"""One live stream: its blocks to windows, its windows to ledgers, its ledgers to snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from qjoule.contract import HELLO, SHAPE_OTHER, SHAPE_UNKNOWN, Block, Grade, Loss, OwnerKind
from qjoule.errors import QjouleError
from qjoule.live.books import Books
from qjoule.live.names import Names
from qjoule.live.rounds import Chunk, Records, Rounds
from qjoule.live.snapshot import Controls, Snapshot
from qjoule.model import assemble, tables
from qjoule.model.arrays import Anomalies
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.counters import I64, Series
from qjoule.model.labels import GroupLabel, LabelIndex
from qjoule.model.ledger import Ledger
from qjoule.model.live import LiveCalls, LiveGroups, from_aggregates
from qjoule.model.recorded import default_coefficients, update_period_ns
from qjoule.model.result import Attribution, TraceInfo
from qjoule.trace.meta import DomainInfo, EnergyInfo, Meta
from qjoule.trace.rows import domains
from qjoule.trace.stream import Frame

#: The kernel sums per shape and server: nothing finer is known of a live stream.
GROUPS = ("fingerprint", "server")


@dataclass(frozen=True)
class LiveMeta:
    """What the stream does not say: the machine, and the servers by the attach plan's ids."""

    host: str = ""
    kernel: str = ""
    cpu: str = ""
    start: str = ""  #: ISO 8601, UTC
    servers: Mapping[int, str] | None = None
    rungs: Mapping[str, str] | None = None  #: by server name


@dataclass
class Head:
    """The blocks that open a stream, and the first one after them."""

    hello: Records
    cpus: list[tuple[int, int]]
    domains: dict[int, DomainInfo]
    rest: Frame | None


def read_head(frames: Iterator[Frame]) -> Head:
    head = Head(np.empty(0, HELLO), [], {}, None)
    for frame in frames:
        if frame.kind is Block.HELLO:
            head.hello = frame.records
        elif frame.kind is Block.CPU:
            head.cpus += [(int(cpu["cpu"]), int(cpu["package"])) for cpu in frame.records]
        elif frame.kind is Block.DOMAIN:
            head.domains |= domains(frame.records)
        else:
            head.rest = frame
            break
    if not len(head.hello):
        raise QjouleError("qjoule-tracer ended before it began: see its messages")
    return head


class Grouping:
    """Labels, ledgers and calls of one of `GROUPS`."""

    def __init__(self, group: str, groups: LiveGroups, new_ledger: Callable[[], Ledger]) -> None:
        self.group = group
        self._groups = groups
        self._index = LabelIndex()
        self._numbers: list[int] = []
        self.books = Books(new_ledger)
        self.interval_calls, self.total_calls = LiveCalls(), LiveCalls()

    @property
    def labels(self) -> list[GroupLabel]:
        return self._groups.index.labels if self.group == "fingerprint" else self._index.labels

    def numbers(self, by_fingerprint: I64) -> I64:
        if self.group == "fingerprint":
            return by_fingerprint
        for label in self._groups.index.labels[len(self._numbers) :]:
            merged = label
            if label.kind == "queries":
                keys = (("server", label.server),)
                merged = GroupLabel("queries", keys, server=label.server, rung=label.rung)
            self._numbers.append(self._index.number(merged))
        return np.array(self._numbers, np.int64)[by_fingerprint]

    def reset(self) -> None:
        self.books.reset()
        self.interval_calls, self.total_calls = LiveCalls(), LiveCalls()

    def next_interval(self) -> None:
        self.books.next_interval()
        self.interval_calls = LiveCalls()


@dataclass
class _Span:
    """What the ledgers do not hold of a stretch of time."""

    begin_ns: int
    server_ns: int = 0
    named_ns: int = 0
    loss: dict[int, int] | None = None  #: per cause, as it was at the beginning


class StreamSession:
    """One stream from its head on."""

    def __init__(
        self, head: Head, names: Names, meta: LiveMeta, idle: IdlePolicy, controls: Controls
    ) -> None:
        hello = head.hello[0]
        self._begin_ns = int(hello["t_ns"])
        grade = int(hello["grade"])
        self._energy = EnergyInfo(
            bytes(hello["energy_source"]).decode("utf-8", "replace"),
            Grade(grade).name.lower() if grade in Grade._value2member_map_ else "none",
            bytes(hello["energy_reason"]).decode("utf-8", "replace"),
        )
        self._machine = tables.machine(head.cpus, np.zeros(0, np.int64))
        self._domains = tuple(head.domains.values())
        series = {
            index: Series(domain.package, domain.name, domain.unit_j, domain.range or 0)
            for index, domain in head.domains.items()
        }
        self._rounds = Rounds(series, self._machine, self._begin_ns)
        self._names, self._live_meta, self._idle = names, meta, idle
        self._anomalies = Anomalies()
        groups = LiveGroups(names.live_names())
        self._groups = groups
        self._groupings = {name: Grouping(name, groups, self._ledger) for name in GROUPS}
        self._losses: dict[tuple[int, int], tuple[int, int]] = {}
        self._windows = 0
        self._resets = controls.resets
        self._interval, self._total = _Span(self._begin_ns), _Span(self._begin_ns)
        self._now_ns = self._begin_ns
        if head.rest is not None:
            self.take(head.rest)

    def take(self, frame: Frame) -> None:
        match frame.kind:
            case Block.ENERGY:
                self._rounds.add_energy(frame.records)
            case Block.AGGREGATE:
                self._rounds.add_aggregates(frame.records)
            case Block.TEXT:
                self._names.add_text(frame)
            case Block.TASK:
                self._names.add_tasks(frame)
            case Block.LOSS:
                self._rounds.add_loss(frame.records)
                for record in frame.records:
                    key = (int(record["cpu"]), int(record["cause"]))
                    self._losses[key] = (int(record["count"]), int(record["lost_ns"]))

    def due(self, controls: Controls) -> bool:
        length_ns = self._rounds.clock_ns - self._interval.begin_ns
        return length_ns >= controls.interval_s * 1e9

    def snapshot(
        self, controls: Controls, *, ended: bool = False, complete: bool = True
    ) -> Snapshot | None:
        """What the whole windows since the last one say; None if there is none yet."""
        if controls.resets != self._resets:
            self._resets = controls.resets
            self._total = _Span(self._now_ns, loss=self._loss_counts())
            for one in self._groupings.values():
                one.reset()
        chunk = self._rounds.take(everything=ended)
        if chunk is not None:
            self._add(chunk)
            self._now_ns = int(chunk.energy.boundaries_ns[-1])
        elif not ended:
            return None
        grouping = self._groupings.get(controls.group) or self._groupings[GROUPS[0]]
        books = grouping.books
        interval = self._say(
            grouping, books.interval, grouping.interval_calls, self._interval, complete
        )
        total = self._say(grouping, books.total, grouping.total_calls, self._total, complete)
        for one in self._groupings.values():
            one.next_interval()
        self._interval = _Span(self._now_ns, loss=self._loss_counts())
        elapsed_s = (self._now_ns - self._begin_ns) * 1e-9
        return Snapshot(interval, total, elapsed_s, ended)

    def _add(self, chunk: Chunk) -> None:
        sums = chunk.aggregates
        by_fingerprint = self._groups.group(sums) if len(sums) else np.zeros(0, np.int64)
        for grouping in self._groupings.values():
            group = grouping.numbers(by_fingerprint) if len(sums) else by_fingerprint
            batch = from_aggregates(
                sums,
                group,
                chunk.energy,
                self._machine,
                first=self._windows,
                lost_ns=chunk.lost_ns,
                anomalies=self._anomalies if grouping.group == GROUPS[0] else None,
            )
            grouping.books.add(batch)
            grouping.interval_calls.add(sums, group)
            grouping.total_calls.add(sums, group)
        self._windows += len(chunk.energy.boundaries_ns) - 1
        self._count_coverage(sums)

    def _count_coverage(self, sums: Records) -> None:
        query = sums["owner_kind"] == OwnerKind.QUERY
        server_ns = int(sums["cpu_ns"][query | (sums["owner_kind"] == OwnerKind.SERVER)].sum())
        named_ns = sum(
            int(one["cpu_ns"])
            for one in sums[query]
            if one["shape"] not in (SHAPE_UNKNOWN, SHAPE_OTHER)
            and self._names.knows_text(int(one["shape"]))
        )
        for span in (self._interval, self._total):
            span.server_ns += server_ns
            span.named_ns += named_ns

    def _loss_counts(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for (_, cause), (count, _) in self._losses.items():
            counts[cause] = counts.get(cause, 0) + count
        return counts

    def _say(
        self, grouping: Grouping, ledger: Ledger, calls: LiveCalls, span: _Span, complete: bool
    ) -> Attribution:
        before = span.loss or {}
        loss = {
            Loss(cause).name.lower() if cause in Loss._value2member_map_ else f"cause {cause}": n
            for cause, count in sorted(self._loss_counts().items())
            if (n := count - before.get(cause, 0)) > 0
        }
        meta = self._live_meta
        labels = _with_rungs(grouping.labels, meta.rungs or {})
        seconds = max(0, self._now_ns - span.begin_ns) * 1e-9
        about = assemble.Provenance(
            trace=TraceInfo(
                meta.host,
                meta.kernel,
                meta.cpu,
                meta.start,
                seconds,
                complete,
                loss,
                ledger.lost_ns,
            ),
            source=self._energy.source or "none",
            grade=self._energy.grade if ledger.series else "none",
            reason=self._energy.reason,
            by=(grouping.group,),
            coverage=span.named_ns / span.server_ns if span.server_ns else 0.0,
            anomalies=self._anomalies,
        )
        return assemble.attribution(ledger, labels, calls.stats(len(labels)), about)

    def _ledger(self) -> Ledger:
        series = self._rounds.series
        meta = Meta(energy=self._energy, domains=self._domains)
        return Ledger(
            series,
            self._machine.packages,
            default_coefficients(meta, series),
            self._idle,
            update_period_ns(meta),
        )


def _with_rungs(labels: list[GroupLabel], rungs: Mapping[str, str]) -> list[GroupLabel]:
    return [
        replace(label, rung=rungs[label.server])
        if label.kind == "queries" and label.server in rungs
        else label
        for label in labels
    ]
