# SPDX-License-Identifier: Apache-2.0
"""What sampled stacks cost and tell, on servers as Debian builds them.

    sudo packaging/reachable .venv/bin/python bench/bench_stacks.py [--seconds N] [--pairs N]

For MariaDB, PostgreSQL and Redis, each under a load of bench_overhead: the share of samples that
are followed to their thread's entry; the tracer's CPU time per stack, beside a recording without
stacks, and so how many it could follow in a second; what the program in the kernel takes per stack
(bpf_stats; its runs beside other processes are in it); bytes of a minute's samples of a busy core.
Samples are taken at 4,999 Hz, and costs are stated for 99.

With --pairs, recordings with and without stacks take turns on MariaDB at 99 Hz: CPU time per query,
as a ratio with its 95 % interval (Student's t on logarithms). Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.overhead.inside import accounts, programs_of, statistics  # noqa: E402
from bench.overhead.loads import LOADS  # noqa: E402

from qjoule.contract import CALL, STACK  # noqa: E402
from qjoule.trace.reader import Trace  # noqa: E402
from qjoule_studies.servers.process import DatabaseServer  # noqa: E402
from tracing.recording import Recorder  # noqa: E402

FAST, USUAL = 4999, 99
SUBJECTS = ("oltp_read_only", "select-only-prepared", "ycsb-redis")


@dataclass(frozen=True)
class Seen:
    """The figures of one recording, which was watched for `seconds`."""

    seconds: float
    tracer_s: float
    program_ns: int
    trace: Trace
    recorded_s: float

    @property
    def stacks(self) -> int:
        return self.trace.rows("samples")

    @property
    def stacks_per_s(self) -> float:
        return self.stacks / self.recorded_s

    def cpu_ns_per_query(self) -> float:
        owners = self.trace.table("owners").select(["owner", "kind"]).to_pylist()
        queries = [row["owner"] for row in owners if row["kind"] == "query"]
        used = 0
        for table in self.trace.iter_table("segments", ("t0_ns", "t1_ns", "owner")):
            columns = (table.column(name).to_numpy() for name in ("t0_ns", "t1_ns", "owner"))
            t0_ns, t1_ns, owner = columns
            used += int((t1_ns - t0_ns)[np.isin(owner, queries)].sum())
        return used / self.trace.rows("queries")


def _program_ns(pids: Sequence[int]) -> int:
    programs = accounts(programs_of(pids)).values()
    return sum(program.ns for program in programs if program.name == "on_sample")


def _record(server: DatabaseServer, hz: int, seconds: float, folder: Path) -> Seen:
    directory = folder / f"{time.monotonic_ns()}"
    options = ("--pid", str(server.pid), "--energy", "none", "--no-counters")
    with Recorder(directory, *options, "--stacks", str(hz)) as recorder:
        tracer = psutil.Process(recorder.tracer_pid)
        pids = (recorder.process.pid, tracer.pid)
        before, ran_before_ns, begin = tracer.cpu_times(), _program_ns(pids), time.monotonic()
        time.sleep(seconds)
        after, ran_after, end = tracer.cpu_times(), _program_ns(pids), time.monotonic()
        recorder.stop()
    trace = Trace(directory)
    used = after.user + after.system - before.user - before.system
    recorded_s = (trace.end_ns - trace.begin_ns) / 1e9
    return Seen(end - begin, used, ran_after - ran_before_ns, trace, recorded_s)


@contextmanager
def _busy(name: str) -> Iterator[DatabaseServer]:
    (load,) = (candidate for candidate in LOADS if candidate.name == name)
    with load.started() as server, load.running(server):
        yield server


def _show_stacks(name: str, seconds: float, folder: Path) -> None:
    with _busy(name) as server:
        without, fast = (_record(server, hz, seconds, folder) for hz in (0, FAST))
    complete = sum(fast.trace.table("samples").column("whole").to_pylist()) / fast.stacks
    watched = fast.stacks_per_s * fast.seconds
    tracer_us = (fast.tracer_s / fast.seconds - without.tracer_s / without.seconds) * 1e6
    tracer_us /= fast.stacks_per_s
    kernel_us = fast.program_ns / 1e3 / watched
    bytes_per_stack = STACK.itemsize + CALL.itemsize * fast.trace.rows("frames") / fast.stacks
    print(
        f"{name:22}{fast.stacks:8} stacks, {complete:.1%} whole; tracer {tracer_us:.1f} us each "
        f"({1e6 / tracer_us:,.0f} per s and core); program {kernel_us:.1f} us each; at {USUAL} Hz "
        f"{(tracer_us + kernel_us) * USUAL / 1e4:.2f} % of a busy core, "
        f"{bytes_per_stack * USUAL * 60 / 1e6:.1f} MB a minute",
        flush=True,
    )


def _paired(pairs: int, seconds: float, folder: Path) -> None:
    with _busy(SUBJECTS[0]) as server:
        ratios = []
        for number in range(pairs):
            order = (0, USUAL) if number % 2 else (USUAL, 0)
            ns_per_query = {
                hz: _record(server, hz, seconds, folder).cpu_ns_per_query() for hz in order
            }
            ratios.append(np.log(ns_per_query[USUAL] / ns_per_query[0]))
    mean, error = np.mean(ratios), stats.sem(ratios)
    half = stats.t.ppf(0.975, pairs - 1) * error
    ends = (np.expm1(log_ratio) * 100 for log_ratio in (mean, mean - half, mean + half))
    print("CPU time per query at 99 Hz, %: {:+.2f} [{:+.2f}, {:+.2f}]".format(*ends))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with statistics():
            for name in SUBJECTS:
                _show_stacks(name, options.seconds, Path(folder))
        if options.pairs > 1:
            _paired(options.pairs, options.seconds, Path(folder))


if __name__ == "__main__":
    main()
