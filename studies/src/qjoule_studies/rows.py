# SPDX-License-Identifier: Apache-2.0
"""The line of a run in the study's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from qjoule.api.command import Run
from qjoule_studies.client import Seen
from qjoule_studies.design import Slot
from qjoule_studies.energy import Figures
from qjoule_studies.workload import Latencies

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


def done(head: Head, seen: Seen, found: Figures, flags: tuple[str, ...], trace: str) -> Run:
    """A run with its figures."""
    outcome = seen.outcome
    served_j = [one for one in (found.queries_j, found.background_j) if one is not None]
    per = outcome.operations if len(served_j) == 2 else 0
    low, high = found.served_j or (None, None)
    return _row(
        head,
        status="done",
        problem="; ".join(outcome.notes),
        flags=[*flags, *found.flags, *(["errors"] if outcome.errors else [])],
        trace=trace,
        wall_s=outcome.wall_s,
        operations=outcome.operations,
        errors=outcome.errors,
        throughput=outcome.operations / outcome.wall_s if outcome.wall_s > 0 else None,
        **_latencies(outcome.commands),
        energy_j=found.energy_j,
        queries_j=found.queries_j,
        background_j=found.background_j,
        idle_j=found.idle_j,
        j_per_operation=sum(served_j) / per if per else None,
        j_per_operation_low=low / per if per and low is not None else None,
        j_per_operation_high=high / per if per and high is not None else None,
        power_w=found.power_w,
        server_cpu_s=found.server_cpu_s,
        grade=found.grade,
        idle_policy=found.idle_policy,
        energy_source=found.energy_source,
        client=outcome.client,
    )


def _row(head: Head, **known: Any) -> Run:
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
    return cast(Run, row | known)


def _latencies(commands: Mapping[str, Latencies]) -> dict[str, float | None]:
    """Of all operations. Quantiles over several commands cannot be computed from those of each."""
    names = ("mean", "p50", "p95", "p99")
    parts = {name: of for name, of in commands.items() if name != ALL and of.operations}
    whole = commands.get(ALL) or (next(iter(parts.values())) if len(parts) == 1 else None)
    if whole is not None:
        return {f"latency_ns_{name}": getattr(whole, f"{name}_ns") for name in names}
    out: dict[str, float | None] = {f"latency_ns_{name}": None for name in names}
    if parts:
        operations = sum(of.operations for of in parts.values())
        total_ns = sum(of.mean_ns * of.operations for of in parts.values())
        out["latency_ns_mean"] = total_ns / operations
    return out
