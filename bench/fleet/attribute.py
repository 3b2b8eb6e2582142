# SPDX-License-Identifier: Apache-2.0
"""Attribution by Dask's workers beside one process, over parts of one trace and over many traces.

    python -m fleet.attribute [--rounds N] [--workers N] [--seconds N]      (from bench/)

Prints how long the workers take to start, and what a task costs that does nothing. Then, for traces
of several lengths: seconds of one process and of the workers, their ratio, and whether the results
are the same bytes; and the slope over the number of cells. Rounds alternate, so that other load on
the machine falls on both; medians and the spread are printed. Nothing passes or fails here, except
that different bytes are an error.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2]))
from bench import bench_engine  # noqa: E402

from qjoule.engine.attribute import Asked, attribute  # noqa: E402
from qjoule.fleet.attribution import Order, attributed  # noqa: E402
from qjoule.fleet.cluster import DaskWorkers, dask_workers  # noqa: E402
from qjoule.freed_memory import keep_freed_memory  # noqa: E402
from qjoule.reporters.json_report import to_json  # noqa: E402
from qjoule.trace.reader import Trace  # noqa: E402

#: 40,000 segments a second on 8 CPUs, as of a busy server.
SEGMENT_NS, PER_S = 200_000, 40_000
TARGET_RATIO = 1.3


def nothing() -> int:
    """A task."""
    return 0


def one_process(paths: list[Path]) -> list[str]:
    return [to_json(attribute(Trace(path))) for path in paths]


def each_cell(cells: Sequence[int]) -> Sequence[int]:
    """A part for each cell."""
    return cells


def by_workers(paths: list[Path], workers: DaskWorkers, *, divided: bool) -> list[str]:
    partition = each_cell if divided else None
    orders = [Order(Trace(path), Asked(), partition) for path in paths]
    return [to_json(found) for found, _ in attributed(orders, workers)]


class Clock:
    """Wall and CPU time of this process and all workers. CPU time says little of waiting, but much
    less depends on what else the machine does."""

    def __init__(self, workers: DaskWorkers) -> None:
        self._workers = workers
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []

    def run(self, what: Callable[[], list[str]]) -> list[str]:
        wall, cpu = time.perf_counter(), self._cpu_s()
        found = what()
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(self._cpu_s() - cpu)
        return found

    def _cpu_s(self) -> float:
        spent: dict[str, float] = self._workers.client.run(time.process_time)
        return time.process_time() + sum(spent.values())

    def __str__(self) -> str:
        return f"{shown(self.wall_s)}, CPU {shown(self.cpu_s)}"


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def ratio(many: list[float], one: list[float]) -> float:
    """Median of the pairs."""
    return statistics.median([b / a for a, b in zip(one, many, strict=True)])


def compare(
    name: str, paths: list[Path], workers: DaskWorkers, rounds: int, *, divided: bool
) -> Clock:
    """Prints a pair; returns what the workers took."""
    one, many = Clock(workers), Clock(workers)
    for _ in range(rounds):
        expected = one.run(lambda: one_process(paths))
        if many.run(lambda: by_workers(paths, workers, divided=divided)) != expected:
            raise SystemExit(f"{name}: the results differ")
    print(
        f"{name}\n    one process   {one}\n    {workers.count} workers     {many}\n"
        f"    ratio {ratio(many.wall_s, one.wall_s):.2f} (target at most {TARGET_RATIO}), of CPU "
        f"time {ratio(many.cpu_s, one.cpu_s):.2f}; same bytes",
        flush=True,
    )
    return many


def overhead(workers: DaskWorkers, count: int = 100) -> str:
    """Of one task that does nothing, with its result."""
    clock = Clock(workers)

    def run() -> list[str]:
        return [str(task.result()) for task in [workers.submit(nothing) for _ in range(count)]]

    clock.run(run)
    wall_ms, cpu_ms = (spent[0] / count * 1e3 for spent in (clock.wall_s, clock.cpu_s))
    return f"{wall_ms:.2f} ms, {cpu_ms:.2f} ms of CPU time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=240, help="length of the longest trace")
    parser.add_argument("--traces", type=int, default=16, help="number of short ones")
    options = parser.parse_args()
    keep_freed_memory()
    bench_engine.SEGMENT_NS = SEGMENT_NS
    with tempfile.TemporaryDirectory(prefix="qjoule-bench-") as scratch:
        lengths = [options.seconds // 4, options.seconds // 2, options.seconds]
        traces = []
        for seconds in lengths:
            traces.append(Path(scratch) / f"{seconds}s")
            bench_engine.write_trace(traces[-1], seconds * PER_S)
        small = [Path(scratch) / f"small{number}" for number in range(options.traces)]
        for path in small:
            bench_engine.write_trace(path, 30 * PER_S // 2)
        begin = time.perf_counter()
        with dask_workers(None, options.workers) as workers:
            print(f"workers started in {time.perf_counter() - begin:.1f} s", flush=True)
            by_workers(small[:8], workers, divided=True)  # so that all modules are loaded
            print(f"a task that does nothing: {overhead(workers)}", flush=True)
            clocks = [
                compare(
                    f"a trace of {seconds} s, {seconds * PER_S:,} segments, {seconds // 30} cells",
                    [path],
                    workers,
                    options.rounds,
                    divided=True,
                )
                for seconds, path in zip(lengths, traces, strict=True)
            ]
            compare(f"{len(small)} traces of 15 s", small, workers, options.rounds, divided=False)
        cells = [seconds / 30 for seconds in lengths]
        for what, spent in (
            ("wall", [statistics.median(clock.wall_s) for clock in clocks]),
            ("CPU", [statistics.median(clock.cpu_s) for clock in clocks]),
        ):
            slope, at_zero = np.polyfit(cells, spent, 1)
            off = max(abs(s - (slope * c + at_zero)) / s for c, s in zip(cells, spent, strict=True))
            print(
                f"{what}: {slope:.3f} s per cell of 30 s, and {at_zero:.2f} s at none; a straight "
                f"line is off by at most {off:.0%}"
            )


if __name__ == "__main__":
    main()
