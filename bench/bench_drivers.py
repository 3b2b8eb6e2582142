"""What the driver shims cost an application: time added to a point query on loopback.

    python bench/bench_drivers.py [--rounds N] [--calls N] [--only DRIVER]...

Batches of calls take turns: bare driver, shim with a recorder that listens (tags in force), and
shim without any. Each batch gives its median time per call; each of the last two is compared with
the bare batches just before and after it. Medians over rounds with their intervals, beside the
target.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, tag, uninstrument

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.overhead.stats import Estimate, median_interval  # noqa: E402

from servers.cassandra import cassandra_server  # noqa: E402
from servers.mariadb import mariadb_server  # noqa: E402
from servers.postgres import postgres_server  # noqa: E402
from servers.process import DatabaseServer, Unavailable  # noqa: E402
from servers.redis import redis_server  # noqa: E402

TARGET_US, TARGET_SHARE = 5.0, 0.01
LISTEN = """
import sys, time
from pathlib import Path
from tag_listener import listening
with listening(Path(sys.argv[1])) as listener:
    print("ready", flush=True)
    while True:
        listener.poll()
        for process in listener.processes:
            process.begins.clear()
            process.ends.clear()
        time.sleep(0.02)
"""
Call = Callable[[], object]


def _pymysql(server: DatabaseServer) -> tuple[Any, Call]:
    connection = server.connect(tcp=True)
    cursor = connection.cursor()
    return connection, lambda: (cursor.execute("select 1"), cursor.fetchall())


def _psycopg(server: DatabaseServer) -> tuple[Any, Call]:
    connection = server.connect(tcp=True)
    return connection, lambda: connection.execute("select 1").fetchall()


def _redis(server: DatabaseServer) -> tuple[Any, Call]:
    client = server.connect(tcp=True)
    return client, lambda: client.get("key")


def _cassandra(server: DatabaseServer) -> tuple[Any, Call]:
    client = server.connect()
    statement = client.session.prepare("select key from system.local")
    return client, lambda: client.session.execute(statement)


DRIVERS: dict[str, tuple[Callable[[], Any], Callable[[DatabaseServer], tuple[Any, Call]]]] = {
    "pymysql": (mariadb_server, _pymysql),
    "psycopg": (postgres_server, _psycopg),
    "redis": (redis_server, _redis),
    "cassandra": (cassandra_server, _cassandra),
}


@dataclass
class Figures:
    """Per round: time of a bare call, and what each mode added to it."""

    bare_us: list[float] = field(default_factory=list)
    added_us: dict[str, list[float]] = field(default_factory=dict)


@contextmanager
def listener() -> Iterator[Path]:
    """A recorder in another process, as a recorder is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tags.sock"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        process = subprocess.Popen(
            [sys.executable, "-c", LISTEN, str(path)], stdout=subprocess.PIPE, env=environment
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield path
        finally:
            process.kill()
            process.wait()


def batch_us(call: Call, calls: int) -> float:
    """Median time of a call, in µs."""
    clock = time.perf_counter_ns
    times = np.empty(calls)
    for n in range(calls):
        t0 = clock()
        call()
        times[n] = clock() - t0
    return float(np.median(times)) / 1e3


def run(name: str, call: Call, path: Path, rounds: int, calls: int) -> Figures:
    channel = channel_module.channel
    figures = Figures()
    batch_us(call, calls)  # warm
    before = batch_us(call, calls)
    for _ in range(rounds):
        for mode, place in (("listening", str(path)), ("nobody listens", "/nonexistent")):
            channel.close()
            channel._path, channel._next_try_ns = place, 0
            instrument(name)
            with tag(endpoint="checkout", tenant="42"):
                call()
                taken = batch_us(call, calls)
            uninstrument()
            after = batch_us(call, calls)
            figures.bare_us.append(after)
            figures.added_us.setdefault(mode, []).append(taken - (before + after) / 2)
            before = after
    return figures


def lines(name: str, figures: Figures) -> Iterator[str]:
    bare = median_interval(figures.bare_us)
    yield f"{name}: a point query takes {_interval(bare)} µs"
    for mode, added in figures.added_us.items():
        found = median_interval(added)
        yield (
            f"  {mode}: {_interval(found)} µs more (target {TARGET_US:g}), "
            f"{found.median / bare.median:.1%} (target {TARGET_SHARE:.0%})"
        )


def _interval(found: Estimate) -> str:
    return f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--only", action="append", choices=list(DRIVERS), metavar="DRIVER")
    chosen = parser.parse_args()
    print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    for name in chosen.only or DRIVERS:
        start, connect = DRIVERS[name]
        try:
            with start() as server, listener() as path:
                client, call = connect(server)
                with closing(client):
                    figures = run(name, call, path, chosen.rounds, chosen.calls)
        except Unavailable as reason:
            print(f"{name}: not measured: {reason}")
            continue
        print("\n".join(lines(name, figures)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
