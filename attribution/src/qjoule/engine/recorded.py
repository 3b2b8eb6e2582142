# SPDX-License-Identifier: Apache-2.0
"""Reads a recorded trace for the model. Attribution, replay and sums hold only the values that are
returned here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from qjoule.engine import tables
from qjoule.engine.accounts import OtherIds, lag_ns, learns, server_changes, throttled_note
from qjoule.engine.columns import Transactions
from qjoule.engine.query_groups import Part
from qjoule.engine.stolen import COLUMNS, Stolen, stolen_time
from qjoule.lazy_import import pc
from qjoule.model.arrays import Machine
from qjoule.model.energy import I64, Cause, Readings, Series, WindowEnergy
from qjoule.model.ledger import Ledger
from qjoule.model.per_core import CoreCounters, of_cores
from qjoule.model.reading_windows import as_counted, window_energy
from qjoule.model.result import TraceInfo
from qjoule.model.slow import add_slow
from qjoule.model.windows import SegmentWindows
from qjoule.shapes.shape import OtherId, certain
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

DEFAULT_WINDOW_NS = 20_000_000
_MAX_WINDOWS = 10_000_000
_FAR_NS = 2**62 - 1  #: 146 years, more than any clock shows; differences fit into 64 bits


@dataclass(frozen=True)
class Recording:
    """The parts of a trace that an attribution reads.

    `queries`: the row groups of that table, which may be read repeatedly. `segments` returns the
    table with the given columns, in order of time. `meter_notes`: how the clock of an external
    meter was interpreted. `stolen`, `helpers` (row groups of that table): None if not recorded.
    `cores`: None without counters of single cores.
    """

    meta: Meta
    span_ns: tuple[int, int]
    energy: WindowEnergy
    transactions: Transactions | None
    owners: pa.Table
    shapes: pa.Table
    loss: pa.Table
    machine: Machine
    queries: Sequence[Part]
    segments: Callable[[Sequence[str]], Iterator[pa.Table]]
    meter_notes: tuple[str, ...]
    stolen: Stolen | None
    cores: CoreEnergy | None = None
    helpers: Sequence[Part] | None = None

    def windows(self, *, without_stolen: bool = False) -> SegmentWindows:
        """Returns a new converter of segments to windows."""
        lost = tables.lost_time(self.loss, self.span_ns[0])
        return SegmentWindows(self.machine, self.energy, lost, without_stolen=without_stolen)

    def core_windows(self, *, without_stolen: bool = False) -> SegmentWindows | None:
        """Returns a new converter of segments to windows of single cores, if they have counters."""
        if self.cores is None:
            return None
        lost = tables.lost_time(self.loss, self.span_ns[0])
        machine, energy = of_cores(self.machine), self.cores.energy
        return SegmentWindows(machine, energy, lost, without_stolen, of_cores=True)


@dataclass(frozen=True)
class CoreEnergy:
    """Counters of single cores, and their windows."""

    counters: CoreCounters
    energy: WindowEnergy


@dataclass(frozen=True)
class ReadSummary:
    """Facts that are known only after reading the whole trace, because damage is found on the way.

    `records_lost`: share of the query records, and of all records, that was lost.
    """

    info: TraceInfo
    notes: tuple[str, ...]
    records_lost: float


def read(trace: Trace, *, transactions: bool = False) -> Recording:
    """Opens a trace for the model. `transactions`: read these, too."""
    meta, span_ns = trace.meta, (trace.begin_ns, trace.end_ns)
    energy, meter = trace.table("energy"), trace.table("meter")
    ended = Transactions.of(trace.table("transactions")) if transactions else None
    owners, shapes, loss = (trace.table(name) for name in ("owners", "shapes", "loss"))
    machine, queries = _machine(trace), trace.row_groups("queries")
    windows, meter_notes = _windows(meta, energy, meter, span_ns)
    return Recording(
        meta,
        span_ns,
        windows,
        ended,
        owners,
        shapes,
        loss,
        machine,
        queries,
        lambda columns: trace.iter_segments(columns=columns),
        meter_notes,
        stolen_time(trace.iter_table("cpu_time", COLUMNS), trace.begin_ns),
        _cores(meta, energy, span_ns),
        trace.row_groups("helpers") if "helpers" in meta.rows or trace.rows("helpers") else None,
    )


def summary(trace: Trace, recording: Recording) -> ReadSummary:
    """Returns the trace's summary; all of `recording` must have been read."""
    meta, changes = trace.meta, server_changes(trace.meta)
    notes = (
        *trace.problems,
        *_part_notes(meta),
        *recording.meter_notes,
    )
    info = TraceInfo(
        host=meta.host,
        kernel=meta.kernel,
        cpu=meta.cpu,
        start=meta.start,
        duration_s=max(trace.end_ns - trace.begin_ns, 0) * 1e-9,
        complete=trace.complete,
        loss=trace.loss,
        lost_cpu_ns=trace.lost_cpu_ns,
        changes=changes,
        throttled=throttled_note(meta.throttled),
    )
    queries, segments = trace.rows("queries"), trace.rows("segments")
    records_lost = _share(trace.loss.get("query", 0), queries)
    records_lost += _share(trace.loss.get("pump", 0), queries + segments)
    return ReadSummary(info, notes, records_lost)


def windows(trace: Trace) -> WindowEnergy:
    """Returns the trace's windows; without energy readings, equal windows without energy."""
    energy, meter = trace.table("energy"), trace.table("meter")
    return _windows(trace.meta, energy, meter, (trace.begin_ns, trace.end_ns))[0]


def recorded_ids(traces: Iterable[Trace]) -> OtherIds:
    """Returns the ids that other tools have for the statements of some traces, where recorded."""
    by_fingerprint: dict[str, dict[OtherId, None]] = {}
    for trace in traces:
        if not trace.rows("ids"):
            continue
        shapes = trace.table("shapes").select(["shape", "fingerprint"]).to_pylist()
        fingerprints = {row["shape"]: row["fingerprint"] for row in shapes}
        for row in trace.table("ids").to_pylist():
            fingerprint = fingerprints.get(row["shape"])
            if fingerprint is not None:
                other_id = OtherId(row["name"], row["id"], row["of"], row["why"] or "")
                by_fingerprint.setdefault(fingerprint, {})[other_id] = None
    return {fingerprint: certain(ids) for fingerprint, ids in by_fingerprint.items()}


def energy_windows(
    meta: Meta, readings: Readings, series: Sequence[Series], begin_ns: int, end_ns: int
) -> WindowEnergy:
    """Returns windows of [`begin_ns`, `end_ns`], bounded by the times at which energy was drawn.

    The windows have equal lengths if no counter bounds any; without any counter they have no
    """
    drawn_earlier_ns = lag_ns(meta)
    energy = window_energy(readings, series, begin_ns, end_ns)
    if not all(counter.has_own_clock for counter in series) or end_ns <= begin_ns:
        add_slow(energy, readings)
        return as_counted(energy, drawn_earlier_ns)
    length = max(end_ns - begin_ns, 1)
    step = max(meta.window_ns or DEFAULT_WINDOW_NS, length // _MAX_WINDOWS, 1)
    bounds = np.append(np.arange(begin_ns, end_ns, step), end_ns)
    shape = (len(series), len(bounds) - 1)
    cause = np.full(shape, Cause.MISSING, np.uint8)
    nothing, unsure = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    energy = WindowEnergy(tuple(series), bounds, nothing, cause, unsure)
    add_slow(energy, readings)
    return energy


def record_loss(summary: ReadSummary, ledger: Ledger) -> float:
    """Returns the share of all records and CPU time that was lost and may have been any owner's.

    Adds up three shares: of lost query records, of records of any kind that the reader dropped
    (both over the whole trace), and of the lost CPU time without a CPU, in the ledger's span. Lost
    time of a known CPU is already in the windows, as residual.
    """
    nowhere_ns = max(summary.info.lost_cpu_ns - ledger.lost_ns, 0)
    return min(summary.records_lost + _share(nowhere_ns, int(ledger.cpu_ns.sum())), 1.0)


def _share(lost: int, present: int) -> float:
    return lost / (lost + present) if lost else 0.0


def _windows(
    meta: Meta, energy: pa.Table, meter: pa.Table, span_ns: tuple[int, int]
) -> tuple[WindowEnergy, tuple[str, ...]]:
    """Returns the windows of a span, and notes on how its external meter, if any, was read."""
    readings, series = tables.readings(energy, meta.domains)
    metered = tables.metered(meter, meta, len(series))
    if metered is not None:
        readings, series = tables.with_meter(readings, metered), (*series, metered.series)
    begin_ns, end_ns = max(span_ns[0], -_FAR_NS), min(span_ns[1], _FAR_NS)
    notes = () if metered is None else (metered.note,)
    return energy_windows(meta, readings, series, begin_ns, end_ns), notes


def _cores(meta: Meta, energy: pa.Table, span_ns: tuple[int, int]) -> CoreEnergy | None:
    """Returns counters of single cores; None if not recorded, or not usable for learning."""
    measured = tables.core_readings(energy) if learns(meta.energy.grade) else None
    if measured is None:
        return None
    readings, counters = measured
    begin_ns, end_ns = max(span_ns[0], -_FAR_NS), min(span_ns[1], _FAR_NS)
    windows = window_energy(readings, counters.series, begin_ns, end_ns)
    return CoreEnergy(counters, as_counted(windows, lag_ns(meta)))


def _machine(trace: Trace) -> Machine:
    """Returns the CPUs in meta.json; without a topology there, those of the segments."""
    cpus = trace.meta.cpus
    siblings = {c.cpu: c.sibling for c in cpus}
    packages = [(c.cpu, c.package) for c in cpus]
    return tables.machine(packages, _unnamed_cpus(trace), siblings, trace.meta.small_cpus)


def _unnamed_cpus(trace: Trace) -> I64:
    if trace.meta.cpus:
        return np.zeros(0, np.int64)
    cpus: set[int] = set()
    for table in trace.iter_segments(columns=["cpu"]):
        cpus.update(pc.unique(table.column("cpu")).to_pylist())
    return np.array(sorted(cpus), np.int64)


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
