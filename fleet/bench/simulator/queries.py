# SPDX-License-Identifier: Apache-2.0
"""What queries of a fleet's dataset cost: whole processes, over hosts and days, and by Dask."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.bench.simulator import coverage
from fleet.bench.simulator.coverage import Run, top_words
from fleet.bench.simulator.population import Fleet, Plan
from fleet.bench.simulator.ship_kills import Target, scheduler, worker
from fleet.bench.simulator.sizes import Estimate, Line, line, slope

from qjoule.agent.rollup_layout import HOURS, ROLLUPS, SLOW
from qjoule.errors import QjouleError
from qjoule_fleet.catalog import Catalog
from qjoule_fleet.dask_engine import DaskEngine
from qjoule_fleet.files import dataset
from qjoule_fleet.questions import parse_by
from qjoule_fleet.reader import InProcess, Question, Reader, select
from qjoule_fleet.relations import Limits
from qjoule_fleet.times import Range


def subset(
    root: Path,
    to: Path,
    hosts: Sequence[str],
    hours: Collection[int] = range(24),
    tables: Collection[str] = (HOURS,),
) -> Path:
    """`hours`: of each day. `tables`: those of the hourly ones; slow ones are always there."""
    names = set(hosts)
    for table in (*(table for table in (ROLLUPS, HOURS) if table in tables), *SLOW):
        for path in (root / table).rglob("*.parquet"):
            hourly = table not in SLOW
            if path.parent.name.removeprefix("host=") not in names:
                continue
            if hourly and int(path.name[5:7]) not in hours:
                continue
            link(path, to / path.relative_to(root))
    return to


def link(path: Path, to: Path) -> None:
    """Another name of a file; a copy where the filesystem has no other names."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(path, to)
        return
    shutil.copy(path, to)


THREADS = "2"
#: Hosts and hours of the sizes that are measured, for rows by hour and by minute.
SIZES = {
    HOURS: ((6, 12), (12, 12), (12, 24), (25, 24), (50, 24), (100, 24)),
    ROLLUPS: ((1, 12), (1, 24), (2, 24), (4, 24), (8, 24)),
}
DASK_WORKERS = 4
DIVISIONS = (1, 2, 4, 8, 16, 32)


def ask(root: Path, plan: Plan, *more: str) -> Run:
    """The 20 most expensive statements, with everything that the command prints."""
    run = coverage.run(top_words(root, plan, "--limit", "20", "--threads", THREADS, *more))
    if len(json.loads(run.output)["rows"]) != 20:
        raise QjouleError(f"{root}: the answer has not got 20 rows")
    return run


def top20(root: Path, plan: Plan, runs: int) -> list[Run]:
    """Runs whose files are in the page cache already."""
    return [ask(root, plan) for _ in range(runs + 1)][1:]


@dataclass(frozen=True)
class Costs:
    """Of one table: sizes in host-days, and for each the CPU seconds and peak MB of a process."""

    table: str
    sizes: tuple[float, ...]
    cpu_s: tuple[float, ...]
    wall_s: tuple[float, ...]
    peak_mb: tuple[float, ...]

    @property
    def time(self) -> Line:
        return line(self.sizes, self.cpu_s)

    @property
    def memory(self) -> Line:
        return line(self.sizes, self.peak_mb)

    @property
    def slope(self) -> Estimate:
        """Of the CPU time beyond that of a process that reads nothing."""
        start_s = max(min(self.time.start, 0.95 * min(self.cpu_s)), 0.0)
        return slope(self.sizes, [total_s - start_s for total_s in self.cpu_s])


def costs(root: Path, place: Path, fleet: Fleet, table: str, runs: int) -> Costs:
    """Sizes alternate, so that other load on the machine falls on all of them."""
    smaller: list[tuple[float, Path]] = []
    for hosts, hours in SIZES[table]:
        if hosts > fleet.plan.hosts:
            continue
        to = place / f"{table}-{hosts}-{hours}"
        # Hours of the day's begin and end alternate, so that each size has day and night.
        some = range(0, 24, 24 // hours)
        subset(root, to, fleet.hosts.names[:hosts], some, (table,))
        smaller.append((hosts * hours / 24, to))
    sizes, runs_made = [], []
    for _ in range(runs):
        for size, to in smaller:
            sizes.append(size)
            runs_made.append(ask(to, fleet.plan))
    for _, to in smaller:
        shutil.rmtree(to)
    return Costs(
        table,
        tuple(sizes),
        tuple(run.cpu_s for run in runs_made),
        tuple(run.wall_s for run in runs_made),
        tuple(run.peak_mb for run in runs_made),
    )


@dataclass(frozen=True)
class Work:
    """`find_s`: CPU time in which the parts of a host-day are found and checked. A cell is the sum
    of a host and statement, which the process has that adds all of them up."""

    find_s: float
    cell_bytes: float
    cells_of_host: float


def work(root: Path, plan: Plan) -> Work:
    files, by = dataset(str(root)), parse_by("shape")
    begin_s = time.process_time()
    chosen = select(Catalog(files), Range(plan.begin_s, plan.begin_s + 86_400 * plan.days), by)
    find_s = time.process_time() - begin_s
    reader = Reader(files, Limits(), InProcess())
    cells = reader.answer(chosen, Question(by, latency=False), with_cells=True).cells
    assert cells is not None
    size = cells.nbytes / cells.num_rows
    hosts = len(cells["host_id"].unique())
    host_days = len(chosen.sums.parts) / 24
    return Work(find_s / host_days, size, cells.num_rows / hosts)


@dataclass(frozen=True)
class Dask:
    """`ratios`: wall time of the command with 4 workers by that of one process, by pair.

    `per_task_ms`: what one more division of the same parts costs.
    `scaling`: exponent of the time over divisions of equal size.
    """

    ratios: tuple[float, ...]
    one_s: tuple[float, ...]
    workers_s: tuple[float, ...]
    per_task_ms: Estimate
    scaling: Estimate


def dask(root: Path, place: Path, fleet: Fleet, runs: int) -> Dask:
    plan = fleet.plan
    with ExitStack() as stack:
        head = Target(scheduler, place / "scheduler")
        stack.callback(head.kill)
        for number in range(DASK_WORKERS):
            stack.callback(Target(worker, head.began, place / f"worker{number}").kill)
        by_workers = ("--engine", "dask", "--scheduler", str(head.began))
        ask(root, plan, *by_workers)  # the workers load their libraries
        single, many = [], []
        for _ in range(runs):
            single.append(ask(root, plan))
            many.append(ask(root, plan, *by_workers))
        per_task, scaling = _divisions(root, place, fleet, str(head.began), runs)
    return Dask(
        tuple(b.wall_s / a.wall_s for a, b in zip(single, many, strict=True)),
        tuple(run.wall_s for run in single),
        tuple(run.wall_s for run in many),
        per_task,
        scaling,
    )


def _divisions(
    root: Path, place: Path, fleet: Fleet, address: str, runs: int
) -> tuple[Estimate, Estimate]:
    """What one more division costs in ms, and the slope over divisions of four hosts each."""
    few = subset(root, place / "divided", fleet.hosts.names[:8])
    numbers = [number for _ in range(runs) for number in DIVISIONS]
    same = [
        _ask_s(few, fleet.plan, DaskEngine(address, divisions=divisions)) for divisions in numbers
    ]
    per_task = line(numbers, same).per_size
    shutil.rmtree(few)
    counts, times = [], []
    for number in (4, 8, 16, 25):
        if 4 * number > fleet.plan.hosts:
            continue
        some = subset(root, place / "scaled", fleet.hosts.names[: 4 * number])
        for _ in range(runs):
            counts.append(float(number))
            times.append(_ask_s(some, fleet.plan, DaskEngine(address, divisions=number)))
        shutil.rmtree(some)
    ms = Estimate(1e3 * per_task.value, 1e3 * per_task.low, 1e3 * per_task.high)
    return ms, slope(counts, times) if len(set(counts)) > 1 else Estimate(0, 0, 0)


def _ask_s(root: Path, plan: Plan, engine: DaskEngine) -> float:
    files, by = dataset(str(root)), parse_by("shape")
    chosen = select(Catalog(files), Range(plan.begin_s, plan.begin_s + 86_400 * plan.days), by)
    begin_s = time.perf_counter()
    Reader(files, Limits(threads=1), engine).answer(chosen, Question(by, latency=False))
    return time.perf_counter() - begin_s


def spread(values: Sequence[float], unit: str) -> str:
    """`3.1 s (2.9 to 3.8)`: the median, the least and the most."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.2f} {unit} ({low:.2f} to {high:.2f})"
