# SPDX-License-Identifier: Apache-2.0
"""Reads a recorded trace for the model; shared by attribution and replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from qjoule.engine import tables
from qjoule.engine.accounts import lag_ns
from qjoule.engine.groups import OwnerGroups
from qjoule.engine.meter import metered, with_meter
from qjoule.engine.query_groups import QueryGroups
from qjoule.model.arrays import Machine, Segments
from qjoule.model.charge import charge
from qjoule.model.energy import (
    I64,
    Cause,
    Readings,
    Series,
    WindowEnergy,
    as_counted,
    window_energy,
)
from qjoule.model.labels import BY_THREAD
from qjoule.model.ledger import Ledger
from qjoule.model.result import ServerChange, TraceInfo
from qjoule.model.slow import add_slow
from qjoule.model.windows import SegmentWindows
from qjoule.trace.arrow import pc
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace
from qjoule.trace.views import view

DEFAULT_WINDOW_NS = 20_000_000
_MAX_WINDOWS = 10_000_000
_FAR_NS = 2**62 - 1  #: no clock shows 146 years; differences of times up to this fit into 64 bits


def energy_windows(
    meta: Meta, readings: Readings, series: Sequence[Series], begin_ns: int, end_ns: int
) -> WindowEnergy:
    """Windows of [`begin_ns`, `end_ns`], bounded by the times at which the energy was drawn.

    The windows have equal lengths if no counter bounds any; without any counter they have no
    energy.
    """
    energy = window_energy(readings, series, begin_ns, end_ns)
    if not all(one.has_own_clock for one in series) or end_ns <= begin_ns:
        add_slow(energy, readings)
        return as_counted(energy, lag_ns(meta))
    length = max(end_ns - begin_ns, 1)
    step = max(meta.window_ns or DEFAULT_WINDOW_NS, length // _MAX_WINDOWS, 1)
    bounds = np.append(np.arange(begin_ns, end_ns, step), end_ns)
    shape = (len(series), len(bounds) - 1)
    cause = np.full(shape, Cause.MISSING, np.uint8)
    nothing, unsure = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    energy = WindowEnergy(tuple(series), bounds, nothing, cause, unsure)
    add_slow(energy, readings)
    return energy


def windows(trace: Trace) -> WindowEnergy:
    """The trace's windows; without any energy reading, windows of equal length without energy."""
    found, series = tables.readings(trace.table("energy"), trace.meta.domains)
    if (meter := metered(trace, len(series))) is not None:
        found, series = with_meter(found, meter), (*series, meter.series)
    begin_ns, end_ns = max(trace.begin_ns, -_FAR_NS), min(trace.end_ns, _FAR_NS)
    return energy_windows(trace.meta, found, series, begin_ns, end_ns)


def notes(trace: Trace) -> tuple[str, ...]:
    """What a reader of any result of this trace should know."""
    return (*trace.problems, *_part_notes(trace.meta), *meter_notes(trace))


def _part_notes(meta: Meta) -> tuple[str, ...]:
    part = meta.part
    if part is None:
        return ()
    since = meta.moment(part.recorder_begin_ns)
    before = f", which began at {since}" if since else ""
    return (
        f"a part of a longer recording{before}, saved by a flight recorder: "
        f"{part.what or part.why}. Queries that began before the part count with what they took "
        "in it",
    )


def meter_notes(trace: Trace) -> tuple[str, ...]:
    """Notes on the trace's external meter, if it has one."""
    meter = metered(trace, 0)
    return () if meter is None else (meter.note,)


def segment_windows(trace: Trace, energy: WindowEnergy | None = None) -> SegmentWindows:
    """Makes the converter of segments to windows. `energy`: the result of `windows`, if
    available."""
    lost = tables.lost_time(trace.table("loss"), trace.begin_ns)
    return SegmentWindows(machine(trace), energy or windows(trace), lost)


def machine(trace: Trace) -> Machine:
    """The CPUs in meta.json, or those of the segments if meta.json has no topology."""
    cpus = trace.meta.cpus
    siblings = {c.cpu: c.sibling for c in cpus}
    return tables.machine([(c.cpu, c.package) for c in cpus], _unnamed_cpus(trace), siblings)


def _unnamed_cpus(trace: Trace) -> I64:
    if trace.meta.cpus:
        return np.zeros(0, np.int64)
    seen: set[int] = set()
    for table in trace.iter_segments(columns=["cpu"]):
        seen.update(pc.unique(table.column("cpu")).to_pylist())
    return np.array(sorted(seen), np.int64)


def server_names(meta: Meta) -> Callable[[int | None], str]:
    """Returns a function from a server's id in the trace to its name."""
    names = {server.id: server.name or server.kind for server in meta.servers}

    def name(server: int | None) -> str:
        if not server:
            return "(unknown server)"
        return names.get(server) or f"server {server}"

    return name


def servers_by_thread(meta: Meta) -> frozenset[int]:
    """Ids of the servers that were traced without query boundaries."""
    return frozenset(server.id for server in meta.servers if server.rung == BY_THREAD)


def trace_info(trace: Trace) -> TraceInfo:
    """The provenance of the whole trace."""
    meta = trace.meta
    return TraceInfo(
        host=meta.host,
        kernel=meta.kernel,
        cpu=meta.cpu,
        start=meta.start,
        duration_s=max(trace.end_ns - trace.begin_ns, 0) * 1e-9,
        complete=trace.complete,
        loss=trace.loss,
        lost_cpu_ns=trace.lost_cpu_ns,
        changes=server_changes(meta),
    )


def server_changes(meta: Meta) -> tuple[ServerChange, ...]:
    """What happened to servers, with times for people."""
    return tuple(
        ServerChange(
            one.what,
            one.name,
            meta.moment(one.t_ns),
            meta.moment(one.until_ns),
            one.pid,
            one.process,
            one.cpu_ns,
            one.why,
        )
        for one in meta.changes
    )


def record_loss(trace: Trace, ledger: Ledger, lost_cpu_ns: int) -> float:
    """Share of all records and CPU time that was lost and may have been any owner's.

    Adds up three shares: of lost query records, of records of any kind that the reader dropped
    (both over the whole trace), and of lost CPU time without a CPU. The last is from `lost_cpu_ns`,
    the lost CPU time of the ledger's span. Lost time of a known CPU is already in the windows, as
    residual.
    """
    queries, segments = trace.rows("queries"), trace.rows("segments")
    nowhere_ns = max(lost_cpu_ns - ledger.lost_ns, 0)
    shares = (
        _share(trace.loss.get("query", 0), queries),
        _share(trace.loss.get("pump", 0), queries + segments),
        _share(nowhere_ns, int(ledger.cpu_ns.sum())),
    )
    return min(sum(shares), 1.0)


def _share(lost: int, kept: int) -> float:
    return lost / (lost + kept) if lost else 0.0


@dataclass
class SegmentReader:
    """Converts Arrow segments to model segments, with their groups; sums what coverage needs."""

    queries: QueryGroups
    owners: OwnerGroups
    with_counters: bool
    server_ns: int = 0
    named_ns: int = 0

    @property
    def columns(self) -> list[str]:
        extra = (*tables.COUNTER_COLUMNS, tables.SHARE_COLUMN) if self.with_counters else ()
        return ["t0_ns", "t1_ns", "cpu", "owner", "query", *extra]

    @property
    def coverage(self) -> float:
        """Share of the servers' CPU time that has a query whose statement is known."""
        return self.named_ns / self.server_ns if self.server_ns else 0.0

    def read(self, table: pa.Table) -> Segments:
        t0_ns, t1_ns = view(table.column("t0_ns")), view(table.column("t1_ns"))
        owner, owners = self.owners.numbered(view(table.column("owner")))
        query, queries = self.queries.numbered(tables.ids(table.column("query")))
        found = charge((t0_ns, t1_ns), owner, owners, query, queries)
        self.server_ns += found.server_ns
        self.named_ns += found.named_ns
        cpu = view(table.column("cpu"))
        if not self.with_counters:
            return Segments(t0_ns, t1_ns, cpu, found.group)
        return Segments(t0_ns, t1_ns, cpu, found.group, *tables.counters(table))
