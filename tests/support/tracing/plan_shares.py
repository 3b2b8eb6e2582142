# SPDX-License-Identifier: Apache-2.0
"""The share of each plan node in its query: as EXPLAIN (ANALYZE) times it, and as sampled stacks
show it. Used by a test and by bench/bench_plan_nodes.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from qjoule.commands.frame_names import frame_names
from qjoule.engine.attribute import AttributionRequest
from qjoule.engine.flame import flame
from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stacks import RowStacks
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import recording

HZ = "4999"
ENERGY = ("--energy", "estimated:5,8,12,20")
LARGE, POINTS = (
    0.10,
    0.05,
)  #: shares of nodes above this one are compared, and may differ by so much
ALONE = ("max_parallel_workers_per_gather = 0",)
PARALLEL = (
    "max_parallel_workers_per_gather = 2",
    *("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"),
)
#: 18 counts buffers without being asked to, which takes longer for each row than the clock.
_EXPLAIN = "explain (analyze, timing, buffers off, format json)"
_TIMING = ("InstrStartNode", "InstrStopNode")  #: src/backend/executor/instrument.c
_ROUNDED_MS = 0.001  #: EXPLAIN rounds the mean time of a node's executions to this
#: They hand over all of their rows in one call (src/backend/executor/execProcnode.c).
_AT_ONCE = ("Hash", "Bitmap Index Scan", "BitmapAnd", "BitmapOr")
Nodes = dict[int, tuple[str, float]]  #: name and share, by number


@dataclass(frozen=True)
class Executions:
    """A statement that was executed in turn with EXPLAIN (ANALYZE, TIMING) of it: what that said of
    the plan, and the rows of both.
    """

    plans: Sequence[dict[str, Any]]
    alone: RowStacks
    explained: RowStacks


@dataclass(frozen=True)
class TimingCost:
    """What EXPLAIN adds to each call of a node: two readings of the clock, and `call_ns`."""

    reading_ns: float = 0.0
    call_ns: float = 0.0


@dataclass(frozen=True)
class TimedNode:
    """`share` of a plan's time, by EXPLAIN; `rounding`: by how much it can be wrong as times of
    single executions are rounded.
    """

    name: str
    share: float
    rounding: float


def run(
    server: DatabaseServer,
    trace: Path,
    text: str,
    *settings: str,
    times: int = 3,
    alone: bool = False,
) -> Executions:
    """Records a statement in turn with EXPLAIN (ANALYZE) of it. EXPLAIN's times contain whatever
    else runs: `alone`: nothing else does meanwhile, but the tracer.
    """
    plans = []
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for setting in ("jit = off", "work_mem = '256MB'", *settings):
            cursor.execute(f"set {setting}")
        cursor.execute(text)  # reads the tables: EXPLAIN's times contain waiting for the disk
        cursor.fetchall()
        cursor.execute("select pg_backend_pid()")
        servers = (server.pid, cursor.fetchall()[0][0]) if alone else ()
        with (
            recording(trace, "--pid", str(server.pid), "--stacks", HZ, *ENERGY) as recorder,
            _before_all_others(servers, recorder.tracer_pid),
        ):
            for _ in range(times):
                cursor.execute(f"{_EXPLAIN} {text}")
                plans.append(cursor.fetchall()[0][0][0]["Plan"])
                cursor.execute(text)
                cursor.fetchall()
    read = Trace(trace)
    rows = flame(read, AttributionRequest(("fingerprint",)), frame_names(read.meta.modules)).rows
    most_executed = [
        max(
            (group for group in rows if group.row.shape.startswith(begin)),
            key=lambda group: group.count,
        )
        for begin in ("select", "explain")
    ]
    return Executions(plans, *most_executed)


@contextmanager
def _before_all_others(servers: Sequence[int], tracer: int) -> Iterator[None]:
    """The processes, and those they start, run while they can. So does the tracer beside them: it
    would lose samples.
    """
    try:
        for pid in servers:
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
            os.sched_setscheduler(tracer, os.SCHED_RR, os.sched_param(2))
        yield
    finally:
        for pid in servers:
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setscheduler(tracer, os.SCHED_OTHER, os.sched_param(0))


def timing_cost(every: Sequence[Executions]) -> TimingCost:
    """By the stacks of EXPLAIN itself: how much of its CPU time is in the functions that it calls
    for each row. In a loop of its own, reading the clock takes another time.
    """
    clock_ns = other_ns = calls = 0.0
    for executions in every:
        row = executions.explained
        sample_ns = row.row.cpu_ns / row.row.calls / row.count
        calls += _calls_below(executions.plans[0])
        for stack, samples in row.samples.items():
            timing = [at for at, name in enumerate(stack) if name in _TIMING]
            if timing and any("clock_gettime" in name for name in stack[timing[-1] :]):
                clock_ns += samples * sample_ns
            elif timing:
                other_ns += samples * sample_ns
    return TimingCost(clock_ns / 2 / calls, other_ns / calls)


def _calls(node: dict[str, Any]) -> float:
    """How often a node was called: once for each row, and once to learn that there are no more."""
    rows = 0 if node["Node Type"] in _AT_ONCE else node["Actual Rows"]
    return float((rows + 1) * node["Actual Loops"])


def _calls_below(node: dict[str, Any]) -> float:
    return _calls(node) + sum(_calls_below(child) for child in node.get("Plans", ()))


def timed(plans: Sequence[dict[str, Any]], cost: TimingCost = TimingCost()) -> dict[int, TimedNode]:
    """By EXPLAIN, the medians of several runs of one plan, less what EXPLAIN itself takes."""
    every = [_own_ms(plan, cost) for plan in plans]
    names = [name for name, _, _ in every[0]]
    own_ms = [median(took for _, took, _ in times) for times in zip(*every, strict=True)]
    rounding_ms = [median(off for _, _, off in times) for times in zip(*every, strict=True)]
    total_ms = sum(own_ms)
    return {
        number: TimedNode(name, own_ms[number] / total_ms, rounding_ms[number] / total_ms)
        for number, name in enumerate(names)
    }


def _own_ms(plan: dict[str, Any], cost: TimingCost) -> list[tuple[str, float, float]]:
    """Of each node its name, what it took itself, and how far that is off by rounding. They stand
    in the order of the planner's numbers, which count from the root on
    (src/backend/optimizer/plan/setrefs.c). Gather waits for others.

    The time of a node is from one reading of the clock to another, which is what one reading takes
    more than its work; all else is in the time of the node above
    (InstrStartNode(), src/backend/executor/instrument.c).
    """
    own_ms: list[tuple[str, float, float]] = []

    def visit(node: dict[str, Any]) -> tuple[float, float, float]:
        number = len(own_ms)
        own_ms.append(("", 0.0, 0.0))
        loops = node["Actual Loops"]
        took_ms, rounding_ms = float(node["Actual Total Time"] * loops), _ROUNDED_MS / 2 * loops
        inside_ms = cost.reading_ns * 1e-6 * _calls(node)
        outside_ms = inside_ms + cost.call_ns * 1e-6 * _calls(node)
        below = [visit(child) for child in node.get("Plans", ())]
        spent_ms = sum(took + outside for took, outside, _ in below)
        alone_ms = max(took_ms - inside_ms - spent_ms, 0.0)
        if node["Node Type"].startswith("Gather"):
            alone_ms = 0.0
        inexact_ms = rounding_ms + sum(rounding for _, _, rounding in below)
        own_ms[number] = node["Node Type"], alone_ms, inexact_ms
        return took_ms, outside_ms, rounding_ms

    visit(plan)
    return own_ms


def sampled(row: RowStacks) -> Nodes:
    """Each node's name and its share of the samples in nodes, by the node's number."""
    named_nodes = (node for node in plan_nodes(row) if node.name is not None)
    own = {
        node.name.number: node for node in named_nodes if node.name and "Gather" not in node.name
    }
    total = sum(node.samples for node in own.values())
    return {
        number: (node.name.rpartition(" #")[0], node.samples / total)
        for number, node in own.items()
        if node.name
    }


def in_nodes(row: RowStacks) -> float:
    """The share of a row's samples that are in any node."""
    outside = sum(node.samples for node in plan_nodes(row) if node.name is None)
    return 1 - outside / row.count
