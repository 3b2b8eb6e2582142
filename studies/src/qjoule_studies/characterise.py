# SPDX-License-Identifier: Apache-2.0
"""Figures of a workload from hardware counters: ratios of counts, such as instructions per cycle.

The figures are those of Panda et al., "Performance Characterization of Modern Databases on
Out-of-Order CPUs" (SBAC-PAD 2015, table II), as far as perf's generic events provide them. Pure
functions on arrays; `qjoule_studies.counted` reads the traces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.api.model import F64, I64, Bool, real_sums

CPU_TIME = "cpu_ns"  #: a denominator that every segment has
LINE_BYTES = 64  #: of a cache line on x86-64 and most arm64 servers
CONFIDENCE = 0.95
_WHOLE = 1 - 1e-4  #: a share above is all of it: shares are stored in 1/65535


@dataclass(frozen=True)
class Metric:
    """`scale` × numerator / denominator, in `unit`.

    Attributes:
        numerators: events by perf's names, best first; the first that was recorded is used.
        denominator: an event, or `CPU_TIME`.
        is_share: a part of a whole, between 0 and 1. A numerator that ends in `:u` is then the
            user side of it, and the figure is the rest.
    """

    name: str
    title: str
    unit: str
    numerators: tuple[str, ...]
    denominator: str = "instructions"
    scale: float = 1.0
    is_share: bool = False
    note: str = ""


def _mpki(name: str, title: str, *events: str) -> Metric:
    return Metric(name, f"{title} MPKI", "/1000 instructions", events, scale=1000.0)


def _share(name: str, title: str, events: tuple[str, ...], of: str = "instructions") -> Metric:
    return Metric(name, title, "", events, of, is_share=True)


METRICS = (
    Metric("ipc", "IPC", "instructions/cycle", ("instructions",), "cycles"),
    Metric("frequency_ghz", "GHz", "GHz", ("cycles",), CPU_TIME),
    _share("kernel_instruction_share", "kernel", ("instructions:k", "instructions:u")),
    _share("kernel_cycle_share", "kernel cycles", ("cycles:k", "cycles:u"), "cycles"),
    _mpki("l1i_mpki", "L1I", "L1-icache-load-misses"),
    _mpki("l1d_mpki", "L1D", "L1-dcache-load-misses"),
    _mpki("l2_mpki", "L2", "L2-misses"),
    _mpki("llc_mpki", "LLC", "cache-misses", "LLC-load-misses"),
    _mpki("itlb_mpki", "ITLB", "iTLB-load-misses"),
    _mpki("dtlb_mpki", "DTLB", "dTLB-load-misses"),
    _mpki("branch_mpki", "branch", "branch-misses"),
    _share("branch_miss_share", "mispredicted", ("branch-misses",), "branches"),
    _share("stall_frontend_share", "front-end stalls", ("stalled-cycles-frontend",), "cycles"),
    _share("stall_backend_share", "back-end stalls", ("stalled-cycles-backend",), "cycles"),
    Metric(
        "memory_mb_s",
        "memory MB/s",
        "MB/s",
        ("cache-misses", "LLC-load-misses"),
        CPU_TIME,
        LINE_BYTES * 1e3,
        note=f"an estimate: LLC misses x {LINE_BYTES} bytes per second of CPU time, without "
        "prefetches and write-backs",
    ),
)
#: Events that some of `METRICS` is about.
KNOWN_EVENTS = frozenset(
    {event for metric in METRICS for event in (*metric.numerators, metric.denominator)}
)


def metrics_of(events: Iterable[str]) -> tuple[Metric, ...]:
    """Metrics of these events: `METRICS`, and other events' counts per 1000 instructions.

    If instructions were not counted, other events are given per second of CPU time.

    >>> [metric.name for metric in metrics_of(["cycles", "instructions", "r01c2"])]
    ['ipc', 'frequency_ghz', 'r01c2_pki']
    """
    recorded = {CPU_TIME, *events}
    metrics = [
        metric
        for metric in METRICS
        if metric.denominator in recorded and recorded & set(metric.numerators)
    ]
    if "instructions" in recorded:
        return (*metrics, *(_pki(event) for event in sorted(recorded - KNOWN_EVENTS)))
    used = {event for metric in metrics for event in (*metric.numerators, metric.denominator)}
    return (*metrics, *(_rate(event) for event in sorted(recorded - used - {CPU_TIME})))


def _pki(event: str) -> Metric:
    return Metric(f"{event}_pki", f"{event} PKI", "/1000 instructions", (event,), scale=1000.0)


def _rate(event: str) -> Metric:
    return Metric(f"{event}_per_s", f"{event} /s", "/s of CPU time", (event,), CPU_TIME, 1e9)


def missing(events: Iterable[str]) -> dict[str, str]:
    """Metrics that these events cannot provide, with the event that each lacks."""
    recorded = {CPU_TIME, *events}
    lacking = {}
    for metric in METRICS:
        if metric.denominator not in recorded:
            lacking[metric.name] = metric.denominator
        elif not recorded & set(metric.numerators):
            lacking[metric.name] = metric.numerators[0]
    return lacking


@dataclass(frozen=True)
class Event:
    """One event over n segments, arrays (n,).

    `share` is the part of each segment in which it counted, 0 to 1; `count` was scaled to the whole
    of the segment, and means nothing where not `valid`.
    """

    count: F64
    valid: Bool
    share: F64


@dataclass(frozen=True)
class Estimate:
    """A ratio. `counted`: share of the CPU time in which both of its events counted.

    `low` and `high` bound its 95 % interval; both are `value` where everything was counted, None
    where too little was counted.
    """

    value: float
    low: float | None
    high: float | None
    counted: float


class MetricSums:
    """Sums over segments, by group; groups are 0 to `groups` - 1.

    A ratio sums only segments in which both of its events counted, so that events counted at
    different times do not distort it.
    """

    def __init__(self, metrics: Sequence[Metric], groups: int) -> None:
        self.metrics = tuple(metrics)
        self.cpu_ns = np.zeros(groups)
        self.segments = np.zeros(groups)
        #: (metrics, sums, groups): n, numerator y, denominator x, y², xy, x², counted ns
        self.sums = np.zeros((len(self.metrics), 7, groups))

    def add(self, group: I64, length_ns: F64, events: Mapping[str, Event]) -> None:
        """Adds segments: group and length of each (n,), and what was counted in them."""
        self.cpu_ns += self._by(group, length_ns)
        self.segments += self._by(group, np.ones(len(group)))
        always = np.ones(len(group))
        events_and_time = {**events, CPU_TIME: Event(length_ns, length_ns > 0, always)}
        for row, metric in enumerate(self.metrics):
            event = next((name for name in metric.numerators if name in events_and_time), None)
            if event is None or metric.denominator not in events_and_time:
                continue
            y, x = events_and_time[event], events_and_time[metric.denominator]
            both = np.flatnonzero(y.valid & x.valid)
            ys, xs = y.count[both], x.count[both]
            if metric.is_share and event.endswith(":u"):
                ys = xs - ys
            counted_ns = length_ns[both] * np.minimum(y.share, x.share)[both]
            columns = (np.ones(len(both)), ys, xs, ys * ys, xs * ys, xs * xs, counted_ns)
            for place, column in enumerate(columns):
                self.sums[row, place] += self._by(group[both], column)

    def _by(self, group: I64, values: F64) -> F64:
        return real_sums(group, values, len(self.cpu_ns))

    def merged(self, into: I64, groups: int) -> MetricSums:
        """The same sums over fewer groups: `into[g]` is where group g goes, -1 nowhere."""
        sources = np.flatnonzero(into >= 0)
        other = MetricSums(self.metrics, groups)
        np.add.at(other.cpu_ns, into[sources], self.cpu_ns[sources])
        np.add.at(other.segments, into[sources], self.segments[sources])
        for row in range(len(self.metrics)):
            for place in range(self.sums.shape[1]):
                np.add.at(other.sums[row, place], into[sources], self.sums[row, place, sources])
        return other

    def estimates(self, group: int) -> dict[str, Estimate]:
        """The ratios of a group, by metric; one that never counted there is left out."""
        estimates = {}
        for row, metric in enumerate(self.metrics):
            estimate = ratio(metric, self.sums[row, :, group], float(self.cpu_ns[group]))
            if estimate is not None:
                estimates[metric.name] = estimate
        return estimates


def ratio(metric: Metric, sums: F64, cpu_ns: float) -> Estimate | None:
    """A ratio of sums (7,) as in `MetricSums`; None if nothing was counted.

    Counters are exact, so what was counted all the time has no interval. With multiplexed events,
    the segments that were counted are a sample of all: the ratio estimator's variance (Cochran,
    "Sampling Techniques", 3rd edition, equations 2.39 and 6.13) with 1 - f for the part not seen.
    Neighbouring segments are taken as independent; where a workload changes slowly against the
    kernel's turns (4 ms) they are, otherwise the interval is too narrow.
    """
    n, y, x, yy, xy, xx, seen_ns = (float(value) for value in sums)
    if n < 1 or x <= 0 or cpu_ns <= 0:
        return None
    value = y / x
    counted = min(seen_ns / cpu_ns, 1.0)
    if counted >= _WHOLE:
        return Estimate(metric.scale * value, *2 * (metric.scale * value,), counted)
    if n < 2:
        return Estimate(metric.scale * value, None, None, counted)
    squares = max(yy - 2 * value * xy + value * value * xx, 0.0)
    error = math.sqrt((1 - counted) * n * squares / (n - 1)) / x
    half = _t_quantile(n - 1) * error
    # A figure beyond what is possible (miscounted) is shown as it is.
    high = max(min(value + half, 1.0), value) if metric.is_share else value + half
    low = min(max(value - half, 0.0), value)
    return Estimate(metric.scale * value, metric.scale * low, metric.scale * high, counted)


def _t_quantile(freedom: float) -> float:
    from scipy.stats import t  # noqa: PLC0415 - slow to import, only needed where events took turns

    return float(t.ppf((1 + CONFIDENCE) / 2, freedom))


@dataclass(frozen=True)
class Row:
    """A shape, server or workload. `fingerprint` and `shape` are empty where it is no one shape."""

    trace: str
    server: str
    fingerprint: str
    shape: str
    calls: int | None
    cpu_ns: float
    metrics: Mapping[str, Estimate]
    folded: int = 0  #: how many others it stands for, as one

    @property
    def label(self) -> str:
        """What distinguishes it from other rows, for people."""
        parts = (self.trace, self.server, self.fingerprint[:8], self.shape)
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class TraceAbout:
    """Where rows come from: `events` are those that were recorded."""

    name: str
    host: str
    cpu: str
    kernel: str
    events: tuple[str, ...]
    loss: Mapping[str, int]


def most_used(cpu_ns: F64, top: int) -> I64:
    """Each group's rank by CPU time, from 0; `top` for all beyond, -1 if it did not run."""
    order = np.argsort(-cpu_ns, kind="stable")
    busy = order[cpu_ns[order] > 0]
    place = np.full(len(cpu_ns), -1, np.int64)
    place[busy] = np.minimum(np.arange(len(busy)), top)
    return place


def flags(traces: Sequence[TraceAbout]) -> list[str]:
    """Warnings about comparing rows of several traces."""
    machines = {(trace.host, trace.cpu) for trace in traces}
    if len(machines) < 2:
        return []
    models = {trace.cpu for trace in traces}
    if len(models) < 2:
        hosts = sorted({trace.host for trace in traces})
        return [f"different machines of one model: {', '.join(hosts)}"]
    described = ", ".join(
        sorted(f"{host or '?'} ({cpu or 'unknown CPU'})" for host, cpu in machines)
    )
    return [
        f"different machines: {described}; cache sizes and what an event counts differ between "
        "CPUs, so compare their rows with care"
    ]
