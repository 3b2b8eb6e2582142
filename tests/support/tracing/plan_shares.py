# SPDX-License-Identifier: Apache-2.0
"""What each node of a plan took itself, of all: as EXPLAIN (ANALYZE) times it, and as sampled
stacks show it. Used by a test and by bench/bench_plan_nodes.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
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
_ROUNDED_MS = 0.001  #: EXPLAIN rounds the mean time of a node's executions to this
Nodes = dict[int, tuple[str, float]]  #: name and share, by number


@dataclass(frozen=True)
class TimedNode:
    """`share` of a plan's time, by EXPLAIN; `rounding`: by how much it can be wrong as times of
    single executions are rounded.
    """

    name: str
    share: float
    rounding: float


def run(
    server: DatabaseServer, trace: Path, text: str, *settings: str, times: int = 3
) -> tuple[list[Any], RowStacks]:
    """Records a statement that EXPLAIN (ANALYZE) times in turn with it: plans, and its row. What
    reading the clock costs is divided between nodes by chance, so the row is that of the statement
    alone.
    """
    plans = []
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for setting in ("jit = off", "work_mem = '256MB'", *settings):
            cursor.execute(f"set {setting}")
        cursor.execute(text)  # reads the tables: EXPLAIN's times contain waiting for the disk
        cursor.fetchall()
        with recording(trace, "--pid", str(server.pid), "--stacks", HZ, *ENERGY):
            for _ in range(times):
                cursor.execute(f"explain (analyze, timing, format json) {text}")
                plans.append(cursor.fetchall()[0][0][0]["Plan"])
                cursor.execute(text)
                cursor.fetchall()
    read = Trace(trace)
    rows = flame(read, AttributionRequest(("fingerprint",)), frame_names(read.meta.modules)).rows
    alone = [one for one in rows if one.row.shape.startswith("select")]
    return plans, max(alone, key=lambda one: one.count)


def timed(plans: Sequence[dict[str, Any]], clock_ns: float = 0.0) -> dict[int, TimedNode]:
    """By EXPLAIN, the medians of several runs of one plan, whose times other processes lengthen.
    `clock_ns`, what a reading of the clock takes, is taken off: EXPLAIN reads it twice for each row
    of each node.
    """
    every = [_own_ms(plan, clock_ns) for plan in plans]
    names = [name for name, _, _ in every[0]]
    own_ms = [median(took for _, took, _ in times) for times in zip(*every, strict=True)]
    rounding_ms = [median(off for _, _, off in times) for times in zip(*every, strict=True)]
    total_ms = sum(own_ms)
    return {
        number: TimedNode(name, own_ms[number] / total_ms, rounding_ms[number] / total_ms)
        for number, name in enumerate(names)
    }


def _own_ms(plan: dict[str, Any], clock_ns: float) -> list[tuple[str, float, float]]:
    """Of each node its name, what it took itself, and how far that is off by rounding. They stand
    in the order of the planner's numbers, which count from the root on
    (src/backend/optimizer/plan/setrefs.c). Gather waits for others.

    The time of a node is from one reading of the clock to another, which is what one reading takes
    more than its work; what the other takes is in the time of the node above
    (InstrStartNode(), src/backend/executor/instrument.c).
    """
    own_ms: list[tuple[str, float, float]] = []

    def visit(node: dict[str, Any]) -> tuple[float, float, float]:
        number = len(own_ms)
        own_ms.append(("", 0.0, 0.0))
        loops = node["Actual Loops"]
        took_ms, rounding_ms = float(node["Actual Total Time"] * loops), _ROUNDED_MS / 2 * loops
        clock_ms = clock_ns * 1e-6 * (node["Actual Rows"] + 1) * loops
        below = [visit(child) for child in node.get("Plans", ())]
        spent_ms = sum(took + clock for took, clock, _ in below)
        alone_ms = max(took_ms - clock_ms - spent_ms, 0.0)
        if node["Node Type"].startswith("Gather"):
            alone_ms = 0.0
        inexact_ms = rounding_ms + sum(rounding for _, _, rounding in below)
        own_ms[number] = node["Node Type"], alone_ms, inexact_ms
        return took_ms, clock_ms, rounding_ms

    visit(plan)
    return own_ms


def sampled(row: RowStacks) -> Nodes:
    """By the samples that are in a node."""
    named = (one for one in plan_nodes(row) if one.name is not None)
    own = {one.name.number: one for one in named if one.name and "Gather" not in one.name}
    total = sum(one.samples for one in own.values())
    return {
        number: (one.name.rpartition(" #")[0], one.samples / total)
        for number, one in own.items()
        if one.name
    }


def in_nodes(row: RowStacks) -> float:
    """The share of a row's samples that are in any node."""
    outside = sum(one.samples for one in plan_nodes(row) if one.name is None)
    return 1 - outside / row.count
