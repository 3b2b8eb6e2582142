# SPDX-License-Identifier: Apache-2.0
"""A trace of several cells of time, with few segments: fast to attribute, and divisible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server
from qjoule.trace.schema import conform
from qjoule.trace.writer import TraceWriter

CPUS, THREADS, SHAPES = 4, 2, 6
WINDOW_NS = 50_000_000
UNIT_J = 2.0**-14


def write(directory: Path, seed: int = 0, seconds: int = 100, **meta: Any) -> Path:
    """A random trace. Segments run over the ends of windows, and some overlap. If `seed` is odd,
    some time is lost."""
    random = np.random.default_rng(seed)
    count = seconds * 60
    end_ns = seconds * 10**9
    t0 = np.sort(random.integers(0, end_ns, count))
    t1 = np.minimum(t0 + random.integers(10_000, 70_000_000, count), end_ns)
    cpu = random.integers(0, CPUS, count)
    query = np.where(random.random(count) < 0.7, random.integers(1, count // 3, count), 0)
    times = np.arange(0, end_ns + 1, WINDOW_NS)
    raw = np.cumsum(random.integers(8_000, 40_000, len(times)))
    fields: dict[str, Any] = {
        "host": f"host{seed}",
        "begin_ns": 0,
        "end_ns": end_ns,
        "realtime_offset_ns": 1_700_000_000 * 10**9,
        "window_ns": WINDOW_NS,
        "energy": EnergyInfo("replay", "simulated", "a test"),
        "domains": (DomainInfo(0, "package", UNIT_J, 2**32),),
        "cpus": tuple(Cpu(i, 0, i // THREADS, i // THREADS * THREADS) for i in range(CPUS)),
        "counters": ("cycles", "instructions", "llc_misses"),
        "servers": (Server(1, "db", "mysql", rung="socket"),),
        "complete": True,
    }
    written = Meta(**(fields | meta))
    energy = {
        "t_ns": times,
        "half_width_ns": np.full(len(times), 500, np.uint32),
        "package": np.zeros(len(times), np.uint16),
        "domain": ["package"] * len(times),
        "raw": raw.astype(np.uint64),
        "unit_j": np.full(len(times), UNIT_J),
        "range": np.full(len(times), 2**32, np.uint64),
        "status": np.zeros(len(times), np.uint32),
    }
    owners = {
        "owner": np.arange(1, CPUS + 1, dtype=np.uint32),
        "kind": ["query"] * CPUS,
        "server": np.ones(CPUS, np.uint16),
        "comm": [f"worker{i}" for i in range(CPUS)],
    }
    names = [f"fp{i}" for i in range(SHAPES)]
    shapes = {
        "shape": np.arange(1, SHAPES + 1, dtype=np.uint64),
        "fingerprint": names,
        "text": [f"select {i}" for i in range(SHAPES)],
    }
    ids = np.unique(query)[1:].astype(np.uint64)
    shape = (ids % SHAPES).astype(np.int64)
    queries = {
        "query": ids,
        "begin_ns": (ids * 10**6).astype(np.int64),
        "end_ns": (ids * 10**6 + 3 * 10**6).astype(np.int64),
        "server": np.ones(len(ids), np.uint16),
        "fingerprint": [names[i] for i in shape],
        "shape": (shape + 1).astype(np.uint64),
        "command": ["query"] * len(ids),
    }
    lost = {
        "t_ns": np.array([20, 45, 70]) * 10**9,
        "cpu": np.full(3, 1, np.uint16),
        "cause": ["ring"] * 3,
        "count": np.array([3, 3, 9], np.uint64),
        "lost_ns": np.array([0, 5, 5]).astype(np.uint64) * 10**6,
    }
    writer = TraceWriter(directory, written)
    tables = {"energy": energy, "owners": owners, "shapes": shapes, "queries": queries}
    if seed % 2:
        tables["loss"] = lost
    writer.write({name: conform(name, pa.table(table)) for name, table in tables.items()})
    for rows in np.array_split(np.arange(count), 8):
        ns = t1[rows] - t0[rows]
        segments = {
            "t0_ns": t0[rows],
            "t1_ns": t1[rows],
            "cpu": cpu[rows].astype(np.uint16),
            "owner": (cpu[rows] + 1).astype(np.uint32),
            "query": pa.array(query[rows].astype(np.uint64), mask=query[rows] == 0),
            "cycles": (3 * ns).astype(np.uint64),
            "instructions": (2 * ns).astype(np.uint64),
            "llc_misses": (ns // 50).astype(np.uint64),
        }
        writer.write({"segments": conform("segments", pa.table(segments))})
    writer.close(written)
    return directory
