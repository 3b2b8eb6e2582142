# SPDX-License-Identifier: Apache-2.0
"""What one uprobe costs, by the way it is attached and the instruction that it is at.

    sudo python bench/bench_probes.py [--rounds N]

Prints nanoseconds per call of a probed function, with an empty program: the median of rounds, each
the least of many batches, and the range over rounds. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines  # noqa: E402

SOURCE = ROOT / "bench" / "overhead" / "probe_ways.c"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
TITLES = {
    "perf": "begin, perf event (qjoule)",
    "multi": "begin, uprobe-multi",
    "perf+return": "begin and return, perf events",
    "multi+return": "begin and return, uprobe-multi",
    "session": "begin and return, session",
}


def measured(program: Path, rounds: int) -> dict[tuple[str, str], list[int]]:
    """Nanoseconds of each round by place and way. A way that the kernel refuses is absent."""
    times_ns: dict[tuple[str, str], list[int]] = defaultdict(list)
    for _ in range(rounds):
        done = subprocess.run([program], check=True, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            place, way, ns = line.split()
            times_ns[place, way].append(int(ns))
    return times_ns


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print("\n".join(machine_lines(machine())))
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "probe_ways"
        subprocess.run(["gcc", *FLAGS, SOURCE, "-o", program], check=True)
        times_ns = measured(program, rounds)
    for (place, way), ns in sorted(times_ns.items(), key=lambda item: item[0]):
        low, high = min(ns), max(ns)
        print(f"{place:5} {TITLES[way]:31} {statistics.median(ns):6.0f} ns ({low} to {high})")


if __name__ == "__main__":
    main()
