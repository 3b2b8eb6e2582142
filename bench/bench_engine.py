"""How fast the attribution engine is: segments per second and core, and its memory.

    python bench/bench_engine.py [--segments N] [--arrays-only]

Two parts: the model on arrays that are already in memory, and `attribute` on a trace on disk.
Prints each rate beside the time that this machine takes to copy the same arrays, so that runs on
different machines can be compared. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from qjoule.model.arrays import Machine, Segments
from qjoule.model.attribute import attribute
from qjoule.model.counters import Series, WindowEnergy
from qjoule.model.ledger import Ledger
from qjoule.model.windows import SegmentWindows
from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES, conform
from qjoule.trace.writer import TraceWriter

CPUS, GROUPS, SHAPES = 8, 300, 200
SEGMENT_NS, WINDOW_NS = 20_000, 20_000_000
BATCH = 1 << 18
TARGET_RSS_MB = 2000


def batches(segments: int) -> Iterator[dict[str, np.ndarray]]:
    """Segments of `CPUS` CPUs, each busy nine tenths of the time, in order of t0_ns."""
    random = np.random.default_rng(1)
    for first in range(0, segments, BATCH):
        number = np.arange(first, min(first + BATCH, segments))
        t0 = number // CPUS * SEGMENT_NS + number % CPUS * (SEGMENT_NS // CPUS)
        yield {
            "t0_ns": t0,
            "t1_ns": t0 + random.integers(SEGMENT_NS * 8 // 10, SEGMENT_NS, len(number)),
            "cpu": (number % CPUS).astype(np.uint16),
            "group": random.integers(0, GROUPS, len(number)),
        }


def bench_arrays(segments: int) -> tuple[float, float]:
    """Seconds of the model, and of copying its input, over arrays in memory."""
    parts = list(batches(segments))
    end_ns = int(parts[-1]["t1_ns"].max())
    bounds = np.arange(0, end_ns + WINDOW_NS, WINDOW_NS)
    shape = (1, len(bounds) - 1)
    nj = np.full(shape, 10**9, np.int64)
    series = (Series(0, "package", 2.0**-14, 2**32),)
    nothing = np.zeros(shape, np.int64)
    energy = WindowEnergy(series, bounds, nj, np.zeros(shape, np.uint8), nothing)
    machine = Machine(np.arange(CPUS), np.zeros(CPUS, np.int64))
    copying = time.perf_counter()
    for part in parts:
        for column in part.values():
            column.copy()
    copying = time.perf_counter() - copying
    begin = time.perf_counter()
    stream, ledger = SegmentWindows(machine, energy), Ledger(series, machine.packages)
    for part in parts:
        ledger.add(stream.add(Segments(**part)))
    ledger.add(stream.finish())
    seconds = time.perf_counter() - begin
    assert ledger.domains["package"].measured_nj == int(nj.sum())
    return seconds, copying


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
        cpus=tuple(Cpu(i, 0, i, i) for i in range(CPUS)),
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
    tables = {"energy": energy, "owners": owners, "shapes": shapes}
    writer.write({name: conform(name, table) for name, table in tables.items()})
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=10_000_000)
    parser.add_argument("--arrays-only", action="store_true", help="leave out the trace on disk")
    options = parser.parse_args()
    if not options.arrays_only:
        with tempfile.TemporaryDirectory(prefix="qjoule-bench-") as scratch:
            directory = Path(scratch) / "trace"
            write_trace(directory, options.segments)
            base_mb = _peak_rss_mb()
            begin = time.perf_counter()
            result = attribute(Trace(directory))
            seconds = time.perf_counter() - begin
        assert sum(result.main.parts_nj.values()) == result.main.measured_nj
        rate = options.segments / seconds / 1e6
        print(
            f"trace   {options.segments:,} segments in {seconds:.2f} s: {rate:.1f} M segments/s "
            f"of one process; peak RSS {_peak_rss_mb():.0f} MB (target < {TARGET_RSS_MB}; "
            f"{base_mb:.0f} before)"
        )
    seconds, copying = bench_arrays(options.segments)
    rate = options.segments / seconds / 1e6
    print(
        f"arrays  {options.segments:,} segments in {seconds:.2f} s: {rate:.1f} M segments/s on one "
        f"core; {seconds / copying:.0f} times the copying of its input"
    )


def _peak_rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
