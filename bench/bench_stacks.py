# SPDX-License-Identifier: Apache-2.0
"""What sampled stacks cost and tell, on servers as Debian builds them.

    sudo packaging/reachable .venv/bin/python bench/bench_stacks.py [--seconds N] [--pairs N]

For MariaDB, PostgreSQL and Redis, each under load: the share of samples that are followed to their
thread's entry; the tracer's CPU time per stack, beside a recording without stacks, and so how many
it could follow in a second; what the program in the kernel takes per stack (bpf_stats; its runs
beside other processes are in it); bytes of a minute's samples of a busy core. Samples are taken at
4,999 Hz, and costs are stated for 99.

With --pairs, recordings with and without stacks take turns on MariaDB at 99 Hz: CPU time per query,
as a ratio with its 95 % interval (Student's t on logarithms). Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from qjoule.contract import CALL, STACK
from qjoule.trace.reader import Trace
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.redis import redis_server
from tracing.recording import Recorder

FAST, USUAL = 4999, 99
STATS = "kernel.bpf_stats_enabled"
ROWS = 20_000


@dataclass(frozen=True)
class Seen:
    """Of one recording, while it was watched for `seconds`."""

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


def _program_ns() -> int:
    listed = subprocess.run(
        ["bpftool", "-j", "prog", "show", "name", "on_sample"], check=False, capture_output=True
    )
    found = json.loads(listed.stdout.strip() or b"[]")
    return sum(one.get("run_time_ns", 0) for one in (found if isinstance(found, list) else [found]))


def _record(server: DatabaseServer, hz: int, seconds: float, folder: Path) -> Seen:
    directory = folder / f"{time.monotonic_ns()}"
    options = ("--pid", str(server.pid), "--energy", "none", "--no-counters")
    with Recorder(directory, *options, "--stacks", str(hz)) as recorder:
        tracer = psutil.Process(recorder.tracer_pid)
        before, ran, begin = tracer.cpu_times(), _program_ns(), time.monotonic()
        time.sleep(seconds)
        after, ran_after, end = tracer.cpu_times(), _program_ns(), time.monotonic()
        recorder.stop()
    trace = Trace(directory)
    used = after.user + after.system - before.user - before.system
    recorded_s = (trace.end_ns - trace.begin_ns) / 1e9
    return Seen(end - begin, used, ran_after - ran, trace, recorded_s)


def _sysbench(server: DatabaseServer, *words: str) -> list[str]:
    options = [f"--mysql-socket={server.socket}", "--mysql-user=root", "--mysql-db=sbtest"]
    size = ["--tables=1", f"--table-size={ROWS}", "--threads=2", "--time=0"]
    return ["sysbench", "oltp_read_only", "--db-driver=mysql", *options, *size, *words]


def _on_mariadb(server: DatabaseServer) -> list[str]:
    with closing(server.connect()) as connection:
        connection.cursor().execute("CREATE DATABASE sbtest")
    subprocess.run(_sysbench(server, "prepare"), check=True, stdout=subprocess.DEVNULL)
    return _sysbench(server, "run")


def _on_postgres(server: DatabaseServer) -> list[str]:
    options = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    made = ["pgbench", *options, "-i", "-q", "-s", "1", "postgres"]
    subprocess.run(made, check=True, stderr=subprocess.DEVNULL)
    return ["pgbench", *options, "-c", "2", "-T", "100000", "-S", "postgres"]


def _on_redis(server: DatabaseServer) -> list[str]:
    numbers = ["-n", "1000000000", "-c", "4", "-q"]
    return ["redis-benchmark", "-p", str(server.port), *numbers, "-t", "lpush,lrange_100"]


SERVERS: dict[str, tuple[Callable[..., object], Callable[[DatabaseServer], list[str]]]] = {
    "mariadb": (mariadb_server, _on_mariadb),
    "postgres": (postgres_server, _on_postgres),
    "redis": (redis_server, _on_redis),
}


@contextmanager
def _busy(name: str) -> Iterator[DatabaseServer]:
    make, load = SERVERS[name]
    with make() as server:  # type: ignore[attr-defined]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(load(server), stdout=nothing, stderr=nothing) as running:
            try:
                yield server
            finally:
                running.kill()


def _told(name: str, seconds: float, folder: Path) -> None:
    with _busy(name) as server:
        without, fast = (_record(server, hz, seconds, folder) for hz in (0, FAST))
    whole = sum(fast.trace.table("samples").column("whole").to_pylist()) / fast.stacks
    watched = fast.stacks_per_s * fast.seconds
    tracer_us = (fast.tracer_s / fast.seconds - without.tracer_s / without.seconds) * 1e6
    tracer_us /= fast.stacks_per_s
    kernel_us = fast.program_ns / 1e3 / watched
    each = STACK.itemsize + CALL.itemsize * fast.trace.rows("frames") / fast.stacks
    print(
        f"{name:10}{fast.stacks:8} stacks, {whole:.1%} whole; tracer {tracer_us:.1f} us each "
        f"({1e6 / tracer_us:,.0f} per s and core); program {kernel_us:.1f} us each; at {USUAL} Hz "
        f"{(tracer_us + kernel_us) * USUAL / 1e4:.2f} % of a busy core, "
        f"{each * USUAL * 60 / 1e6:.1f} MB a minute",
        flush=True,
    )


def _paired(pairs: int, seconds: float, folder: Path) -> None:
    with _busy("mariadb") as server:
        ratios = []
        for number in range(pairs):
            order = (0, USUAL) if number % 2 else (USUAL, 0)
            found = {hz: _record(server, hz, seconds, folder).cpu_ns_per_query() for hz in order}
            ratios.append(np.log(found[USUAL] / found[0]))
    mean, error = np.mean(ratios), stats.sem(ratios)
    half = stats.t.ppf(0.975, pairs - 1) * error
    ends = (np.expm1(one) * 100 for one in (mean, mean - half, mean + half))
    print("CPU time per query at 99 Hz, %: {:+.2f} [{:+.2f}, {:+.2f}]".format(*ends))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=0)
    asked = parser.parse_args()
    subprocess.run(["sysctl", "-qw", f"{STATS}=1"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in SERVERS:
                _told(name, asked.seconds, Path(folder))
        finally:
            subprocess.run(["sysctl", "-qw", f"{STATS}=0"], check=True)
        if asked.pairs > 1:
            _paired(asked.pairs, asked.seconds, Path(folder))


if __name__ == "__main__":
    main()
