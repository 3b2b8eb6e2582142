# SPDX-License-Identifier: Apache-2.0
"""How many captured queries become tables per second of CPU time, and in how much memory.

    .venv/bin/python bench/bench_convert.py [--queries N] [--rounds N]

The capture is made here: point selects of 32 clients at 200,000 a second, each of two segments and
one query, and once more in transactions of 20 statements. Every round converts a copy in a process
of its own, on one core. Then, in turns, with one job and with two on all cores: the ratio of their
wall times, and the largest memory of all their processes together. Prints medians with their range
beside the targets. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from xxhash import xxh3_64_intdigest

from qjoule import contract
from qjoule.commands.conversion import converted
from qjoule.contract import Block, OwnerKind, QueryFlag
from qjoule.spool.files import FOLDER, spool_of
from qjoule.stream.blocks import Records, encode_block
from qjoule.trace.meta import Captured, Meta, Server

TARGET_PER_S, TARGET_MB = 1_000_000, 256
STATEMENTS = 20  #: of a transaction
LOOK_S = 0.01  #: time between two looks at the memory
PER_FRAME, FRAME_NS = 40_000, 200_000_000  #: queries of a frame, and its time
CLIENTS, SHAPES = 32, 200
ROOT = Path(__file__).parents[1]
BEGIN_NS = 1_000_000_000_000


def _hello() -> bytes:
    hello = np.zeros(1, contract.HELLO)
    hello["version"], hello["mode"] = contract.CONTRACT_VERSION, contract.Mode.RECORD
    hello["t_ns"], hello["window_ns"], hello["cpus"] = BEGIN_NS, 20_000_000, 2
    cpus = np.zeros(2, contract.CPU)
    cpus["cpu"] = cpus["core"] = cpus["sibling"] = np.arange(2)
    return encode_block(Block.HELLO, hello) + encode_block(Block.CPU, cpus)


def _records(number: int, rng: np.random.Generator, *, within: bool) -> tuple[Records, Records]:
    """Segments and queries of one frame; `within`: in transactions."""
    begin_ns = BEGIN_NS + number * FRAME_NS
    edges = np.sort(rng.integers(0, FRAME_NS, 2 * PER_FRAME)).astype(np.uint64)
    edges += np.uint64(begin_ns)
    queries = np.zeros(PER_FRAME, contract.QUERY)
    queries["query"] = np.arange(PER_FRAME) + number * PER_FRAME + 1
    queries["begin_ns"], queries["end_ns"] = edges[::2], edges[1::2]
    queries["session"] = queries["pid"] = 101 + rng.integers(0, CLIENTS, PER_FRAME)
    queries["shape"] = rng.integers(1, SHAPES, PER_FRAME)
    queries["server"] = queries["executions"] = queries["attach_mode"] = queries["command"] = 1
    queries["tgid"], queries["statement_bytes"] = 100, 70
    queries["flags"] = QueryFlag.OK
    if within:
        turn = np.arange(PER_FRAME) // CLIENTS % STATEMENTS
        queries["session"] = queries["pid"] = 101 + np.arange(PER_FRAME) % CLIENTS
        queries["flags"][turn == 0] |= np.uint32(QueryFlag.IN_TRANSACTION)
        queries["flags"][turn == STATEMENTS - 1] |= np.uint32(QueryFlag.NO_TRANSACTION)
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


def make_capture(trace: Path, queries: int, *, within: bool = False) -> int:
    """Writes a capture of about so many queries, of transactions if `within`; returns how many."""
    rng = np.random.default_rng(1)
    (trace / FOLDER).mkdir(parents=True)
    frames = -(-queries // PER_FRAME)
    with spool_of(trace).open("wb") as spool:
        for number in range(frames):
            segments, query_records = _records(number, rng, within=within)
            end_ns = BEGIN_NS + (number + 1) * FRAME_NS
            payload = b"" if number else _hello()
            payload += encode_block(Block.SEGMENT, segments) + encode_block(
                Block.QUERY, query_records
            )
            payload += encode_block(Block.FLUSH, t_ns=end_ns)
            spool.write(_framed(number + 1, end_ns, payload))
    meta = Meta(servers=(Server(1, "shop", "mysql"),), captured=Captured())
    (trace / "meta.json").write_text(meta.to_json())
    return frames * PER_FRAME


def _measure(trace: Path, jobs: int) -> None:
    """Converts; prints CPU and wall seconds."""
    begin, began = time.process_time(), time.perf_counter()
    converted(trace, jobs=jobs)
    times = {"cpu_s": time.process_time() - begin, "wall_s": time.perf_counter() - began}
    print(json.dumps(times))


def _together_mb(process: psutil.Process) -> float:
    """Memory of a process and its children, shared pages counted once (PSS)."""
    total = 0
    with suppress(psutil.Error):
        for part in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                total += part.memory_full_info().pss
    return total / (1 << 20)


def _round(capture: Path, jobs: int, *, one_core: bool = False) -> dict[str, float]:
    """What one conversion of a copy took."""
    copy = capture.with_name("copy")
    shutil.copytree(capture, copy)
    command = [sys.executable, "-m", "bench.bench_convert", "--convert", str(copy)]
    command += ["--jobs", str(jobs), *(["--one-core"] if one_core else [])]
    peak_mb = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        process = psutil.Process(running.pid)
        while running.poll() is None and not one_core:
            peak_mb = max(peak_mb, _together_mb(process))
            time.sleep(LOOK_S)
        output = running.communicate()[0]
    if running.returncode:
        sys.exit("a conversion failed")
    shutil.rmtree(copy)
    figures: dict[str, float] = json.loads(output)
    return figures | {"mb": peak_mb}


def _range(values: list[float], digits: int = 0) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def _compare(capture: Path, rounds: int) -> None:
    """One job and two, in turns on all cores."""
    pairs = [(_round(capture, 1), _round(capture, 2)) for _ in range(rounds)]
    ratios = [two["wall_s"] / single["wall_s"] for single, two in pairs]
    more = [two["mb"] for _, two in pairs]
    print(f"wall time with 2 jobs, of that with 1: {_range(ratios, 2)}   ({os.cpu_count()} CPUs)")
    print(f"memory with 1 job:  {_range([single['mb'] for single, _ in pairs])} MB")
    print(f"memory with 2 jobs: {_range(more)} MB   (target {TARGET_MB})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--queries", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--one-core", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.convert is not None:
        if options.one_core:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        _measure(options.convert, options.jobs)
        return
    with tempfile.TemporaryDirectory() as folder:
        for load, within in (("point selects", False), ("in transactions", True)):
            capture = Path(folder) / load.replace(" ", "-")
            queries = make_capture(capture, options.queries, within=within)
            print(f"{queries:,} {load}, {options.rounds} rounds")
            seconds = [_round(capture, 1, one_core=True)["cpu_s"] for _ in range(options.rounds)]
            rates = [queries / cpu_s for cpu_s in seconds]
            print(f"queries per CPU second: {_range(rates)}   (target {TARGET_PER_S:,})")
            _compare(capture, options.rounds)
            shutil.rmtree(capture)


if __name__ == "__main__":
    main()
