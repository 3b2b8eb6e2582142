# SPDX-License-Identifier: Apache-2.0
"""Throughput of the attribution engine (segments per second and core) and its memory.

    python bench/bench_engine.py [--segments N] [--arrays-only]

Two parts, both with hardware counters. The first runs the model on arrays in memory. The second
runs `attribute` on two traces on disk, one a quarter as long as the other; their peak memory should
be alike. Prints each rate beside the time that this machine takes to copy the same arrays, so that
runs on different machines can be compared. Each trace is attributed on one core, and the CPU time
and memory of that process stand beside their targets. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

# The rate is for one core: threads of the algebra library would spin while waiting for each other.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from qjoule.engine import tables  # noqa: E402
from qjoule.engine.accounts import account_settings, divided  # noqa: E402
from qjoule.engine.attribute import attribute  # noqa: E402
from qjoule.lazy_import import leave_masks_out  # noqa: E402
from qjoule.model.account import Account  # noqa: E402
from qjoule.model.arrays import COUNTERS, Machine, Segments  # noqa: E402
from qjoule.model.energy import Series, WindowEnergy  # noqa: E402
from qjoule.model.windows import SegmentWindows  # noqa: E402
from qjoule.process import keep_freed_memory  # noqa: E402
from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server  # noqa: E402
from qjoule.trace.reader import Trace  # noqa: E402
from qjoule.trace.schema import TABLES, conform  # noqa: E402
from qjoule.trace.writer import TraceWriter  # noqa: E402

CPUS, THREADS, GROUPS, SHAPES = 8, 2, 300, 200
SEGMENT_NS, WINDOW_NS = 20_000, 20_000_000
BATCH = 1 << 18
WARM_SEGMENTS = 500_000
#: What attributing a trace of so many segments may take on one core, imports and reading included.
TARGET_SEGMENTS, TARGET_S, TARGET_MB = 10_000_000, 2.0, 300


def batches(segments: int) -> Iterator[dict[str, np.ndarray]]:
    """Segments on `CPUS` CPUs, each busy nine tenths of the time, in order of t0_ns."""
    random = np.random.default_rng(1)
    for first in range(0, segments, BATCH):
        number = np.arange(first, min(first + BATCH, segments))
        t0 = number // CPUS * SEGMENT_NS + number % CPUS * (SEGMENT_NS // CPUS)
        ns = random.integers(SEGMENT_NS * 8 // 10, SEGMENT_NS, len(number))
        group = random.integers(0, GROUPS, len(number))
        counts = np.stack([3 * ns, 2 * ns, ns // 50 * (group % 3)], axis=1)
        yield {
            "t0_ns": t0,
            "t1_ns": t0 + ns,
            "cpu": (number % CPUS).astype(np.uint16),
            "group": group,
            "counters": counts.astype(np.uint64),
            "valid": np.ones((len(number), COUNTERS), bool),
            "scaled": np.ones(len(number), np.float32),
        }


def bench_arrays(segments: int) -> dict[str, float]:
    """CPU seconds of each part of the model on arrays in memory, and of copying the arrays."""
    parts = list(batches(segments))
    end_ns = int(parts[-1]["t1_ns"].max())
    bounds = np.arange(0, end_ns + WINDOW_NS, WINDOW_NS)
    shape = (1, len(bounds) - 1)
    nj = np.random.default_rng(2).integers(9 * 10**8, 11 * 10**8, shape)
    series = (Series(0, "package", 2.0**-14, 2**32),)
    nothing = np.zeros(shape, np.int64)
    energy = WindowEnergy(series, bounds, nj, np.zeros(shape, np.uint8), nothing)
    cpus = np.arange(CPUS)
    machine = Machine(cpus, np.zeros(CPUS, np.int64), cpus // THREADS)

    def copy() -> None:
        for part in parts:
            for column in part.values():
                column.copy()

    def sweep() -> None:
        stream = SegmentWindows(machine, energy)
        for part in parts:
            stream.add(Segments(**part))
        stream.finish()

    meta = Meta(energy=EnergyInfo("powercap", "measured", "a benchmark"))
    settings = account_settings(meta, series, machine.packages, "separate")

    def engine(refit: bool) -> None:
        windows = SegmentWindows(machine, energy)
        segments = (Segments(**part) for part in parts)
        ledger = divided(Account(replace(settings, refit=refit)), windows, segments)
        assert ledger.domains["package"].measured_nj == int(nj.sum())

    return {
        "copying": _cpu_seconds(copy),
        "windows": _cpu_seconds(sweep),
        "windows and split": _cpu_seconds(lambda: engine(False)),
        "windows, learning and split": _cpu_seconds(lambda: engine(True)),
    }


def _cpu_seconds(run: Callable[[], None]) -> float:
    """CPU time of all threads: gives a rate per core, whatever else the machine does."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def write_trace(directory: Path, segments: int) -> None:
    """A trace of one server: two thirds of the segments belong to queries of four segments each."""
    end_ns = -(-segments // CPUS) * SEGMENT_NS
    meta = Meta(
        host="bench",
        begin_ns=0,
        end_ns=end_ns,
        window_ns=WINDOW_NS,
        energy=EnergyInfo("replay", "simulated", "a benchmark"),
        domains=(DomainInfo(0, "package", 2.0**-14, 2**32),),
        cpus=tuple(Cpu(i, 0, i // THREADS, i // THREADS * THREADS) for i in range(CPUS)),
        counters=tables.COUNTER_COLUMNS,
        servers=(Server(1, "bench", "mysql"),),
    )
    writer = TraceWriter(directory, meta)
    times = np.arange(0, end_ns + 1, WINDOW_NS)
    energy = pa.table(
        {
            "t_ns": times,
            "half_width_ns": np.full(len(times), 500, np.uint32),
            "package": np.zeros(len(times), np.uint16),
            "domain": ["package"] * len(times),
            "raw": (np.arange(len(times)) * 16384 % 2**32).astype(np.uint64),
            "unit_j": np.full(len(times), 2.0**-14),
            "range": np.full(len(times), 2**32, np.uint64),
            "status": np.zeros(len(times), np.uint32),
        }
    )
    owners = pa.table(
        {
            "owner": np.arange(1, CPUS + 1, dtype=np.uint32),
            "kind": ["query"] * CPUS,
            "server": np.ones(CPUS, np.uint16),
            "comm": [f"worker{i}" for i in range(CPUS)],
        }
    )
    names = [f"fp{i:03}" for i in range(SHAPES)]
    shapes = pa.table(
        {
            "shape": np.arange(1, SHAPES + 1, dtype=np.uint64),
            "fingerprint": names,
            "text": [f"SELECT {i}" for i in range(SHAPES)],
        }
    )
    written = {"energy": energy, "owners": owners, "shapes": shapes}
    writer.write({name: conform(name, table) for name, table in written.items()})
    for part in batches(segments):
        writer.write(_segments_and_queries(part, names))
    writer.close(meta)


def _segments_and_queries(part: dict[str, np.ndarray], names: list[str]) -> dict[str, pa.Table]:
    lane = part["t0_ns"] // SEGMENT_NS // 4 * CPUS + part["cpu"] + 1
    query = np.where(part["group"] < GROUPS * 2 // 3, lane, 0).astype(np.uint64)
    segments = pa.table(
        {
            "t0_ns": part["t0_ns"],
            "t1_ns": part["t1_ns"],
            "cpu": part["cpu"],
            "owner": (part["cpu"] + 1).astype(np.uint32),
            "query": pa.array(query, mask=query == 0),
            tables.SHARE_COLUMN: part["scaled"],
            **{name: part["counters"][:, i] for i, name in enumerate(tables.COUNTER_COLUMNS)},
        }
    )
    ids, rows = np.unique(query, return_index=True)
    ids, rows = ids[ids > 0], rows[ids > 0]
    shape = ids % SHAPES
    queries = pa.table(
        {
            "query": ids,
            "begin_ns": part["t0_ns"][rows],
            "end_ns": part["t1_ns"][rows] + 4 * SEGMENT_NS,
            "server": np.ones(len(ids), np.uint16),
            "fingerprint": pa.DictionaryArray.from_arrays(shape.astype(np.int32), names),
            "shape": shape + np.uint64(1),
            "command": pa.array(["query"] * len(ids)),
        }
    )
    assert set(segments.column_names) <= set(TABLES["segments"].names)
    return {"segments": conform("segments", segments), "queries": conform("queries", queries)}


def attribute_trace(directory: Path) -> None:
    """Attributes a trace; prints the time and memory that it took."""
    keep_freed_memory()  # as the command does
    leave_masks_out()
    trace = Trace(directory)
    before_mb, segments = _peak_rss_mb(), trace.rows("segments")
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = attribute(trace)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    assert sum(result.main.parts_nj.values()) == result.main.measured_nj
    print(
        f"trace   {segments:,} segments, {trace.rows('queries'):,} queries in {seconds:.2f} s: "
        f"{segments / seconds / 1e6:.1f} M segments/s of one process, "
        f"{segments / cpu_seconds / 1e6:.1f} M per second of CPU time; "
        f"peak RSS {_peak_rss_mb():.0f} MB ({before_mb:.0f} before)",
        flush=True,
    )
    is_target = segments == TARGET_SEGMENTS
    print(
        f"        the whole process on one core: {time.process_time():.2f} s of CPU time"
        f"{f' (target {TARGET_S:g} s)' if is_target else ''}, {_peak_rss_mb():.0f} MB"
        f"{f' (target {TARGET_MB} MB)' if is_target else ''}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=10_000_000)
    parser.add_argument("--arrays-only", action="store_true", help="leave out the trace on disk")
    parser.add_argument("--attribute", type=Path, help="only this trace, in this process")
    options = parser.parse_args()
    if options.attribute:
        attribute_trace(options.attribute)
        return
    for segments in () if options.arrays_only else (options.segments // 4, options.segments):
        with tempfile.TemporaryDirectory(prefix="qjoule-bench-") as scratch:
            directory = Path(scratch) / "trace"
            write_trace(directory, segments)
            # A separate process: writing the trace must not count as attribution.
            command = [sys.executable, __file__, "--attribute", str(directory)]
            subprocess.run(
                ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command], check=True
            )
    bench_arrays(min(options.segments, WARM_SEGMENTS))  # libraries are loaded when first needed
    seconds = bench_arrays(options.segments)
    copying = seconds.pop("copying")
    for step, spent in seconds.items():
        rate = options.segments / spent / 1e6
        print(
            f"arrays  {options.segments:,} segments with counters, {step}: {rate:.1f} M segments/s "
            f"and core; {spent / copying:.0f} times the copying of its input"
        )


def _peak_rss_mb() -> float:
    """Peak memory of this program only: getrusage() includes what its parent had when it forked."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
