# SPDX-License-Identifier: Apache-2.0
"""The line of a run in the study's table: joules, CPU time and loss while the workload ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from qjoule.api.attribution import attribute, for_trace
from qjoule.api.command import Run, pc
from qjoule.api.model import Attribution, IdlePolicy, with_total_error
from qjoule.api.traces import BATCH_ROWS, Trace
from qjoule_studies.client import ClientReport
from qjoule_studies.design import Slot
from qjoule_studies.workload import Latencies

_SWITCH = "switch"  #: loss: context switches that some kernels do not show, at no loss of CPU time


@dataclass(frozen=True)
class Figures:
    """Figures of one run; None is unknown. The 95 % interval is of queries and background."""

    energy_j: float | None = None
    queries_j: float | None = None
    background_j: float | None = None
    idle_j: float | None = None
    served_j: tuple[float, float] | None = None  #: the interval of queries_j + background_j
    power_w: float | None = None
    server_cpu_s: float | None = None
    grade: str = "none"
    idle_policy: str = ""
    energy_source: str = "none"
    flags: tuple[str, ...] = ()


class Span(Trace):
    """From the last energy reading before `begin_ns` to the first after `end_ns`.

    The trace also contains the client's start and end, and the machine's power while Python starts
    is not part of the workload.
    """

    def __init__(self, path: Path, begin_ns: int, end_ns: int) -> None:
        super().__init__(path)
        t_ns = super().table("energy").column("t_ns")
        before = pc.max(t_ns.filter(pc.less_equal(t_ns, begin_ns))).as_py()
        after = pc.min(t_ns.filter(pc.greater_equal(t_ns, end_ns))).as_py()
        self.begin_ns = begin_ns if before is None else before
        self.end_ns = end_ns if after is None else after

    def table(self, name: str) -> pa.Table:
        rows = super().table(name)
        if name != "energy":
            return rows
        t_ns = rows.column("t_ns")
        inside = pc.and_(pc.greater_equal(t_ns, self.begin_ns), pc.less_equal(t_ns, self.end_ns))
        return rows.filter(inside)

    def iter_segments(
        self,
        batch_rows: int = BATCH_ROWS,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        for table in super().iter_segments(batch_rows, columns):
            t0_ns, t1_ns = table.column("t0_ns"), table.column("t1_ns")
            inside = pc.and_(pc.less(t0_ns, self.end_ns), pc.greater(t1_ns, self.begin_ns))
            yield table.filter(inside).combine_chunks()


def figures(path: Path, begin_ns: int, end_ns: int, idle: str) -> Figures:
    """The figures of a trace between two times (CLOCK_MONOTONIC).

    Raises `QjouleError` if there is no trace.
    """
    trace = Span(path, begin_ns, end_ns)
    result = with_total_error(
        attribute(trace, ("fingerprint",), cast(IdlePolicy, idle), calibrated=for_trace(trace))
    )
    served = [row for row in (*result.rows, *result.fixed) if row.kind in ("queries", "background")]
    has_energy = bool(result.domains)
    parts = result.main.parts_nj if has_energy else {}
    energy_j = result.main.measured_nj / 1e9 if has_energy else None
    span_s = result.trace.duration_s
    low, high = (sum(row.energy_nj_ci95[end] for row in served) / 1e9 for end in (0, 1))
    return Figures(
        energy_j=energy_j,
        queries_j=parts["queries"] / 1e9 if has_energy else None,
        background_j=parts["background"] / 1e9 if has_energy else None,
        idle_j=parts["idle"] / 1e9 if has_energy else None,
        served_j=(low, high) if has_energy else None,
        power_w=energy_j / span_s if energy_j is not None and span_s > 0 else None,
        server_cpu_s=sum(row.cpu_ns for row in served) / 1e9,
        grade=result.energy_source.grade,
        idle_policy=idle,
        energy_source=result.energy_source.name,
        flags=tuple(_flags(result)),
    )


def _flags(result: Attribution) -> Iterator[str]:
    if result.trace.lost_cpu_ns or result.trace.loss.keys() - {_SWITCH}:
        yield "lost_records"
    elif result.trace.loss:
        yield "hidden_switches"
    if not result.trace.complete:
        yield "incomplete_trace"
    if result.unattributed_windows:
        yield "energy_gaps"


ALL = "all"  #: of a client's commands: all of them together
_UNKNOWN = (
    "wall_s",
    "operations",
    "errors",
    "throughput",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p95",
    "latency_ns_p99",
    "energy_j",
    "queries_j",
    "background_j",
    "idle_j",
    "j_per_operation",
    "j_per_operation_low",
    "j_per_operation_high",
    "power_w",
    "server_cpu_s",
)


@dataclass(frozen=True)
class Head:
    """What is known of a run before it is made. `idle`: the plan's idle policy."""

    number: int
    slot: Slot
    start: str
    machine: str
    idle: str


def failed(head: Head, problem: str, flags: tuple[str, ...], trace: str) -> Run:
    """A run without figures, and why. Its trace may be left for inspection."""
    return _row(head, status="failed", problem=problem, flags=list(flags), trace=trace)


def done(
    head: Head, report: ClientReport, measured: Figures, flags: tuple[str, ...], trace: str
) -> Run:
    """A run with its figures."""
    outcome = report.outcome
    served_j = [
        part_j for part_j in (measured.queries_j, measured.background_j) if part_j is not None
    ]
    per = outcome.operations if len(served_j) == 2 else 0
    low, high = measured.served_j or (None, None)
    return _row(
        head,
        status="done",
        problem="; ".join(outcome.notes),
        flags=[*flags, *measured.flags, *(["errors"] if outcome.errors else [])],
        trace=trace,
        wall_s=outcome.wall_s,
        operations=outcome.operations,
        errors=outcome.errors,
        throughput=outcome.operations / outcome.wall_s if outcome.wall_s > 0 else None,
        **_latencies(outcome.commands),
        energy_j=measured.energy_j,
        queries_j=measured.queries_j,
        background_j=measured.background_j,
        idle_j=measured.idle_j,
        j_per_operation=sum(served_j) / per if per else None,
        j_per_operation_low=low / per if per and low is not None else None,
        j_per_operation_high=high / per if per and high is not None else None,
        power_w=measured.power_w,
        server_cpu_s=measured.server_cpu_s,
        grade=measured.grade,
        idle_policy=measured.idle_policy,
        energy_source=measured.energy_source,
        client=outcome.client,
    )


def _row(head: Head, **columns: Any) -> Run:
    row: dict[str, Any] = {
        "run": head.number,
        "block": head.slot.block,
        "replication": head.slot.replication,
        "factors": dict(head.slot.levels),
        "status": "",
        "problem": "",
        "flags": [],
        "start": head.start,
        **dict.fromkeys(_UNKNOWN),
        "grade": "none",
        "idle_policy": head.idle,
        "energy_source": "none",
        "machine": head.machine,
        "client": "",
        "trace": "",
    }
    return cast(Run, row | columns)


def _latencies(commands: Mapping[str, Latencies]) -> dict[str, float | None]:
    """Latencies of all operations. Several commands have no joint quantiles, only a mean."""
    names = ("mean", "p50", "p95", "p99")
    parts = {name: of for name, of in commands.items() if name != ALL and of.operations}
    combined = commands.get(ALL) or (next(iter(parts.values())) if len(parts) == 1 else None)
    if combined is not None:
        return {f"latency_ns_{name}": getattr(combined, f"{name}_ns") for name in names}
    out: dict[str, float | None] = {f"latency_ns_{name}": None for name in names}
    if parts:
        operations = sum(of.operations for of in parts.values())
        total_ns = sum(of.mean_ns * of.operations for of in parts.values())
        out["latency_ns_mean"] = total_ns / operations
    return out
