# SPDX-License-Identifier: Apache-2.0
"""How many captured queries become tables per second of CPU time, and in how much memory.

    .venv/bin/python bench/bench_convert.py [--queries N] [--rounds N]

The capture is made here: point selects of 32 clients at 200,000 a second, each of two segments and
one query. Every round converts a copy in a process of its own, on one core. Prints medians with
their range beside the targets. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

from qjoule import contract
from qjoule.contract import Block, OwnerKind
from qjoule.spool.convert import convert
from qjoule.spool.files import FOLDER, spool_of
from qjoule.stream.blocks import Records, encode_block
from qjoule.trace.meta import Captured, Meta, Server

TARGET_PER_S, TARGET_MB = 1_000_000, 500
PER_FRAME, FRAME_NS = 40_000, 200_000_000  #: queries of a frame, and its time
CLIENTS, SHAPES = 32, 200
BEGIN_NS = 1_000_000_000_000


def _hello() -> bytes:
    hello = np.zeros(1, contract.HELLO)
    hello["version"], hello["mode"] = contract.CONTRACT_VERSION, contract.Mode.RECORD
    hello["t_ns"], hello["window_ns"], hello["cpus"] = BEGIN_NS, 20_000_000, 2
    cpus = np.zeros(2, contract.CPU)
    cpus["cpu"] = cpus["core"] = cpus["sibling"] = np.arange(2)
    return encode_block(Block.HELLO, hello) + encode_block(Block.CPU, cpus)


def _records(number: int, rng: np.random.Generator) -> tuple[Records, Records]:
    """Segments and queries of one frame."""
    begin_ns = BEGIN_NS + number * FRAME_NS
    edges = np.sort(rng.integers(0, FRAME_NS, 2 * PER_FRAME)).astype(np.uint64)
    edges += np.uint64(begin_ns)
    queries = np.zeros(PER_FRAME, contract.QUERY)
    queries["query"] = np.arange(PER_FRAME) + number * PER_FRAME + 1
    queries["begin_ns"], queries["end_ns"] = edges[::2], edges[1::2]
    queries["session"] = queries["pid"] = 101 + rng.integers(0, CLIENTS, PER_FRAME)
    queries["shape"] = rng.integers(1, SHAPES, PER_FRAME)
    queries["server"] = queries["executions"] = queries["rung"] = queries["command"] = 1
    queries["tgid"], queries["statement_bytes"] = 100, 70
    segments = np.zeros(2 * PER_FRAME, contract.SEGMENT)
    segments["t0_ns"], segments["t1_ns"] = edges, edges + np.uint64(400)
    segments["query"][::2] = queries["query"]
    segments["pid"] = np.repeat(queries["pid"], 2)
    segments["owner_kind"][::2], segments["owner_kind"][1::2] = OwnerKind.QUERY, OwnerKind.SERVER
    segments["cpu"] = np.arange(2 * PER_FRAME) // 2 % 2
    segments["tgid"], segments["server"] = 100, 1
    return segments, queries


def _framed(number: int, t_ns: int, payload: bytes) -> bytes:
    head = np.zeros(1, contract.FRAME)
    head["magic"], head["version"] = contract.FRAME_MAGIC, contract.CONTRACT_VERSION
    head["number"], head["t_ns"] = number, t_ns
    head["bytes"] = head["stored_bytes"] = len(payload)
    head["checksum"] = xxh3_64_intdigest(head.tobytes() + payload)
    return head.tobytes() + payload


def make_capture(trace: Path, queries: int) -> int:
    """Writes a capture of about so many queries; returns how many."""
    rng = np.random.default_rng(1)
    (trace / FOLDER).mkdir(parents=True)
    frames = -(-queries // PER_FRAME)
    with spool_of(trace).open("wb") as spool:
        for number in range(frames):
            segments, made = _records(number, rng)
            end_ns = BEGIN_NS + (number + 1) * FRAME_NS
            payload = b"" if number else _hello()
            payload += encode_block(Block.SEGMENT, segments) + encode_block(Block.QUERY, made)
            payload += encode_block(Block.FLUSH, t_ns=end_ns)
            spool.write(_framed(number + 1, end_ns, payload))
    meta = Meta(servers=(Server(1, "shop", "mysql"),), captured=Captured())
    (trace / "meta.json").write_text(meta.to_json())
    return frames * PER_FRAME


def _measure(trace: Path) -> None:
    """Converts; prints CPU seconds and the process's largest memory."""
    begin = time.process_time()
    convert(trace)
    used = time.process_time() - begin
    largest_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu_s": used, "mb": largest_mb}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--queries", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.convert is not None:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        _measure(asked.convert)
        return
    rates, memory = [], []
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        queries = make_capture(made, asked.queries)
        for _ in range(asked.rounds):
            copy = Path(folder) / "copy"
            shutil.copytree(made, copy)
            command = [sys.executable, __file__, "--convert", str(copy)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            rates.append(queries / found["cpu_s"])
            memory.append(found["mb"])
            shutil.rmtree(copy)
    print(f"{queries:,} queries, {asked.rounds} rounds, one core")
    print(
        f"queries per CPU second: median {statistics.median(rates):,.0f} "
        f"[{min(rates):,.0f}, {max(rates):,.0f}]   (target {TARGET_PER_S:,})"
    )
    print(f"memory: {statistics.median(memory):.0f} MB   (target {TARGET_MB})")


if __name__ == "__main__":
    main()
