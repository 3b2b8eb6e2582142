# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402 (libraries are restrained before they are imported)
"""CPU time and memory of the agent beside its hooks, from a simulated stream in fast replay.

    python bench/bench_agent.py [--hours N] [--shapes N] [--per-second N] [--interval S]

The stream is what the tracer sends of a server with so many shapes and queries per second: sums per
window of 200 ms, readings, texts. It runs through the agent's own service, store and page, all in
one process: the store's writer, too, which has a process of its own in the agent. CPU time is that
of this process, without the making of the stream; the tracer and the probes are not part of it
(`bench/bench_overhead.py`). Prints figures beside targets. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from qjoule.process import limit_memory

limit_memory()  # before numpy is imported, as the agent does

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

import fake_tracer as ft
from qjoule.agent.config import Config, Tracing
from qjoule.agent.config import Store as StoreKeys
from qjoule.agent.handover import take
from qjoule.agent.journal import Journal
from qjoule.agent.notify import Manager
from qjoule.agent.rollups import Rollups
from qjoule.agent.service import REFRESH_S, Service, limits, retention_of
from qjoule.agent.store_writer import write_waiting
from qjoule.contract import AGGREGATE, LATENCY_BUCKETS, Block, Grade, OwnerKind, TaskEvent
from qjoule.engine.live_groups import PER_SERVER
from qjoule.lazy_import import leave_pandas_out
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.metrics.exposition import page
from qjoule.metrics.shared import Board
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream, encode_block
from qjoule.trace.meta import Meta, Server

MS = 1_000_000
WINDOW_NS = 200 * MS
FLUSH = 2  #: windows per flush
TARGET_CORE, TARGET_MB, TARGET_PAGE_MS, TARGET_WEEK_MB = 0.01, 64, 20, 50
SHAPES_BEGIN = 1000


class Simulated:
    """A file of blocks that is made while it is read; `made_s`: the CPU time that took."""

    def __init__(self, seconds: int, shapes: int, per_second: int) -> None:
        self.made_s = 0.0
        self._pieces = self._blocks(seconds, shapes, per_second)
        self._left = b""

    def read(self, size: int, /) -> bytes:
        begin_s = time.process_time()
        while len(self._left) < size and (piece := next(self._pieces, b"")):
            self._left += piece
        content, self._left = self._left[:size], self._left[size:]
        self.made_s += time.process_time() - begin_s
        return content

    def _blocks(self, seconds: int, shapes: int, per_second: int) -> Iterator[bytes]:
        yield ft.head(4, grade=Grade.MEASURED) + ft.task(ft.BEGIN_NS, 7, TaskEvent.ALIVE, b"server")
        for shape in range(shapes):
            yield ft.text(SHAPES_BEGIN + shape, b"SELECT %s FROM t" % _word(shape))
        yield ft.energy(ft.BEGIN_NS, 0, 0)
        random = np.random.default_rng(1)
        share = random.dirichlet(np.full(shapes, 0.5))
        latency_us = 10 ** random.uniform(1.5, 4, shapes)
        raw = dram = 0
        for window in range(seconds * 1_000_000_000 // WINDOW_NS):
            t0_ns = ft.BEGIN_NS + window * WINDOW_NS
            rows = _sums(random, share, latency_us, per_second * WINDOW_NS // 10**9, t0_ns)
            raw += int(random.integers(40_000, 80_000))
            dram += int(random.integers(4_000, 8_000))
            t1_ns = t0_ns + WINDOW_NS
            piece = ft.energy(t1_ns, raw & 0xFFFFFFFF, dram & 0xFFFFFFFF)
            piece += encode_block(Block.AGGREGATE, rows)
            yield piece + (ft.flush(t1_ns) if window % FLUSH == 0 else b"")
        yield ft.end(ft.BEGIN_NS + seconds * 1_000_000_000)


def _word(number: int) -> bytes:
    return bytes(ord("a") + int(digit) for digit in f"{number:05d}")


def _sums(
    random: np.random.Generator, share: np.ndarray, latency_us: np.ndarray, calls: int, t0_ns: int
) -> np.ndarray:
    """One window's sums: a row for each shape that ran, and for other owners."""
    counts = random.multinomial(calls, share)
    some = np.flatnonzero(counts)
    rows = np.zeros(len(some) + 4, AGGREGATE)
    rows["t0_ns"], rows["t1_ns"] = t0_ns, t0_ns + WINDOW_NS
    rows["owner_kind"] = OwnerKind.PROCESS
    queries = rows[: len(some)]
    queries["owner_kind"], queries["server"] = OwnerKind.QUERY, 1
    queries["shape"] = SHAPES_BEGIN + some
    queries["calls"] = counts[some]
    mean_us = latency_us[some] * random.lognormal(0, 0.4, len(some))
    queries["latency_ns"] = (mean_us * 1000 * counts[some]).astype(np.uint64)
    bucket = np.clip(2 * np.log2(mean_us), 0, LATENCY_BUCKETS - 1).astype(int)
    queries["latency"][np.arange(len(some)), bucket] = counts[some]
    queries["cpu_ns"] = np.minimum(mean_us * 500, 15_000).astype(np.uint64) * counts[some]
    others = rows[len(some) :]
    others["cpu_ns"] = random.integers(1, 5, 4) * MS
    others["tgid"] = (8, 9, 10, 7)
    others["owner_kind"][3], others["server"][3], others["pid"][3] = OwnerKind.SERVER, 1, 7
    rows["counters"][:, 0] = rows["cpu_ns"] * 3
    rows["counters"][:, 1] = rows["cpu_ns"] * 2
    rows["counted_ns"][:] = rows["cpu_ns"][:, None]
    rows["valid"] = 7
    return rows


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def listener_mb() -> float:
    """A process that imports what the listener imports, and renders a page."""
    code = (
        "from qjoule.commands import agent\n"
        "print(int(open('/proc/self/statm').read().split()[1]) * 4096 / 1e6)"
    )
    return float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--shapes", type=int, default=100)
    parser.add_argument("--per-second", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=10.0)
    options = parser.parse_args()
    leave_pandas_out()
    seconds = round(options.hours * 3600)
    begun_mb = resident_mb()
    with tempfile.TemporaryDirectory(prefix="qjoule-agent-") as place:
        simulated, service, pages_ms, memory = run(Path(place), seconds, options)
        written = sum(path.stat().st_size for path in Path(place).rglob("*.parquet"))
    used_s = time.process_time() - simulated.made_s
    core = used_s / seconds
    week_mb = written * 7 * 86_400 / seconds / 1e6
    counters = service.handed.counters
    print(f"{options.hours:g} h simulated, {options.shapes} shapes, {options.per_second}/s")
    print(
        f"  {counters.windows:,} windows, {counters.intervals:,} intervals "
        f"of {options.interval:g} s"
    )
    print(f"engine               {core:.2%} of a core     target ≤ {TARGET_CORE:.0%}")
    print(
        f"page                 {statistics.median(pages_ms):.1f} ms (most {max(pages_ms):.1f})"
        f"     target < {TARGET_PAGE_MS} ms"
    )
    quarter = memory[len(memory) // 4]
    print(
        f"memory with Arrow    {begun_mb:.0f} MB at the start, {quarter:.0f} after a quarter, "
        f"{memory[-1]:.0f} at the end (growth {memory[-1] - quarter:+.1f})"
    )
    print(
        f"  listener           {listener_mb():.0f} MB     target of all processes ≤ {TARGET_MB} MB"
    )
    print(
        f"a week of rollups    {week_mb:.0f} MB, from {written / 1e6:.1f} MB"
        f"     target < {TARGET_WEEK_MB} MB"
    )


def run(
    place: Path, seconds: int, options: argparse.Namespace
) -> tuple[Simulated, Service, list[float], list[float]]:
    """Runs the simulated time. Also times of pages in ms, and resident MB over time."""
    tracing = Tracing(interval_s=options.interval)
    config = Config(tracing=tracing, store=StoreKeys(path=str(place)))
    journal = Journal(place, "bench", retention_of(config))
    rollups = Rollups(journal, partial(write_waiting, place), print)
    rollups.start()
    now = [1_795_000_000.0]
    handed = take(None, limits(config), now[0])
    service = Service(
        *(config, Config, handed, Manager(), print, Board(), rollups), clock=lambda: now[0]
    )
    simulated = Simulated(seconds, options.shapes, options.per_second)
    meta = Meta(host="bench", servers=(Server(1, "db:1", "mysql", attach_mode="symbol"),))
    source = StreamSource(
        Stream(simulated), ft.context(meta), LiveOptions(groups=(PER_SERVER,), refresh_s=REFRESH_S)
    )
    pages_ms, memory = [], []
    for snapshot in source.snapshots(Controls(options.interval, PER_SERVER, totals=False)):
        now[0] = 1_795_000_000.0 + snapshot.elapsed_s
        service.take(snapshot, meta.servers)
        memory.append(resident_mb())
        if len(memory) % 50 == 3:
            pages_ms.append(_page_ms(service))
    service.close(orderly=False)
    return simulated, service, pages_ms, memory


def _page_ms(service: Service) -> float:
    """Renders a page as the listener does for the first scraper of an interval; returns ms."""
    assert service.board is not None
    begin_s = time.perf_counter()
    answer = service.board.read()
    assert answer is not None
    page(answer[2], openmetrics=False)
    return (time.perf_counter() - begin_s) * 1e3


if __name__ == "__main__":
    main()
