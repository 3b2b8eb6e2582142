"""What the driver shims cost an application: time added to a point query on loopback.

    python bench/bench_drivers.py [--rounds N] [--calls N] [--only DRIVER]... [--record] [--awake]

Slices of calls take turns: bare driver, shim with a recorder that listens while tags stay the same,
as within a request, and while they change with every call, and shim without any recorder. Each
slice but the bare ones is compared with the bare slices just before and after it,
under the same recorder: what the recorder itself costs the server is in both. That recorder is the
one of `qjoule record` without its tracer, in a process of its own, or with `--record` (as root) all
of `qjoule record`, attached to the server.

Two figures each: elapsed time (a slice's median call) and CPU time of this process. Elapsed time
also says how deep an idle CPU sleeps while the other side works; `--awake` keeps every CPU awake
with a spinner that yields to everything (SCHED_IDLE). Medians over rounds, with their intervals.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, tag, uninstrument

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.overhead.stats import Estimate, median_interval  # noqa: E402

from root.support.recording import recording  # noqa: E402
from servers.cassandra import cassandra_server  # noqa: E402
from servers.mariadb import mariadb_server  # noqa: E402
from servers.mongodb import ferretdb_server  # noqa: E402
from servers.postgres import postgres_server  # noqa: E402
from servers.process import DatabaseServer, Unavailable  # noqa: E402
from servers.redis import redis_server  # noqa: E402

TARGET_US, TARGET_SHARE = 5.0, 0.01
#: After wrappers came or went the interpreter specialises its code anew.
WARM_CALLS = 100
LISTEN = """
import sys, time
from pathlib import Path
import numpy as np
from qjoule.tags.tagging import TagSource
source = TagSource(Path(sys.argv[1]))
source.start()
print("ready", flush=True)
one = np.zeros(1, np.int64)
while True:  # as often as a recorder asks, so that it forgets as one does
    time.sleep(0.2)
    source.tags_of([None], one, one, one + time.monotonic_ns())
"""
#: A recorder says what it wants within this time, and the shim hears it.
SETTLING_S = 60.0
SPIN = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    pass
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


def _pymongo(server: DatabaseServer) -> tuple[Any, Call]:
    client = server.connect()
    documents = client["bench"]["documents"]
    documents.insert_one({"_id": 1})
    return client, lambda: documents.find_one({"_id": 1})


DRIVERS: dict[str, tuple[Callable[[], Any], Callable[[DatabaseServer], tuple[Any, Call]]]] = {
    "pymysql": (mariadb_server, _pymysql),
    "psycopg": (postgres_server, _psycopg),
    "redis": (redis_server, _redis),
    "cassandra": (cassandra_server, _cassandra),
    "pymongo": (ferretdb_server, _pymongo),
}


def _changing(call: Call) -> Call:
    """With other tags at each call, as where each request makes one."""
    tags = itertools.cycle(str(number) for number in range(8))

    def tagged() -> None:
        with tag(endpoint=next(tags)):
            call()

    return tagged


#: Where the recorder is (None: where it listens), and how calls are tagged.
MODES: dict[str, tuple[str | None, Callable[[Call], Call]]] = {
    "a recorder listens, the same tags": (None, lambda call: call),
    "a recorder listens, other tags each time": (None, _changing),
    "nobody listens": ("/nonexistent", lambda call: call),
}


@dataclass
class Figures:
    """Per round, in µs: what a bare call takes, and what each mode added to it."""

    bare: list[Slice] = field(default_factory=list)
    added: dict[str, list[Slice]] = field(default_factory=dict)


@contextmanager
def listener() -> Iterator[Path]:
    """A recorder in another process, as a recorder is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tags.sock"
        process = subprocess.Popen(
            [sys.executable, "-c", LISTEN, str(path)], stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield path
        finally:
            process.kill()
            process.wait()


@contextmanager
def recorder(server: DatabaseServer) -> Iterator[Path]:
    """`qjoule record`, attached to the server; it loses root's rights, so its places are open."""
    path = Path(f"/tmp/qjoule-bench-{os.getpid()}.sock")
    os.environ["QJOULE_TAGS_SOCKET"] = str(path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with recording(Path(folder) / "t", "--pid", str(server.pid)):
                yield path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def awake() -> Iterator[None]:
    """No CPU idles."""
    spinners = []
    for cpu in sorted(os.sched_getaffinity(0)):
        spinner = subprocess.Popen([sys.executable, "-c", SPIN])
        os.sched_setaffinity(spinner.pid, {cpu})
        spinners.append(spinner)
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@dataclass(frozen=True)
class Slice:
    """A call of one slice, in µs: the median one's elapsed time, the mean one's CPU time."""

    elapsed: float
    cpu: float

    def over(self, one: Slice, other: Slice) -> Slice:
        """What it takes more than two others."""
        return Slice(
            self.elapsed - (one.elapsed + other.elapsed) / 2, self.cpu - (one.cpu + other.cpu) / 2
        )


def timed(call: Call, calls: int) -> Slice:
    """So many calls, after some that do not count."""
    clock = time.perf_counter_ns
    for _ in range(WARM_CALLS):
        call()
    times = np.empty(calls)
    cpu = time.process_time_ns()
    for n in range(calls):
        t0 = clock()
        call()
        times[n] = clock() - t0
    cpu = time.process_time_ns() - cpu
    return Slice(float(np.median(times)) / 1e3, cpu / calls / 1e3)


def settle(call: Call) -> None:
    """Until a recorder that listens has been met, and has said that it wants what changes."""
    channel = channel_module.channel
    deadline = time.monotonic() + SETTLING_S
    call()
    while channel.wants_ends:
        if time.monotonic() > deadline:
            raise SystemExit("the recorder wants the end of each call")
        call()


def run(name: str, call: Call, path: Path, rounds: int, calls: int) -> Figures:
    channel = channel_module.channel
    figures = Figures()
    timed(call, calls)
    before = timed(call, calls)
    for _ in range(rounds):
        for mode, (place, tagged) in MODES.items():
            channel.close()
            channel._path = str(path) if place is None else place
            instrument(name)
            with tag(endpoint="checkout", tenant="42"):
                settle(call)
                taken = timed(tagged(call), calls)
            uninstrument()
            after = timed(call, calls)
            figures.bare.append(after)
            figures.added.setdefault(mode, []).append(taken.over(before, after))
            before = after
    return figures


def lines(name: str, figures: Figures) -> Iterator[str]:
    bare = median_interval([one.elapsed for one in figures.bare])
    cpu = median_interval([one.cpu for one in figures.bare])
    yield f"{name}: a point query takes {_interval(bare)} µs, {_interval(cpu)} of them CPU time"
    for mode, added in figures.added.items():
        elapsed = median_interval([one.elapsed for one in added])
        cpu = median_interval([one.cpu for one in added])
        yield (
            f"  {mode}: {_interval(elapsed)} µs more (target {TARGET_US:g}), "
            f"{elapsed.median / bare.median:.1%} (target {TARGET_SHARE:.0%}); "
            f"CPU time {_interval(cpu)} µs more"
        )


def _interval(found: Estimate) -> str:
    return f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--only", action="append", choices=list(DRIVERS), metavar="DRIVER")
    parser.add_argument("--record", action="store_true", help="under a whole `qjoule record`")
    parser.add_argument("--awake", action="store_true", help="let no CPU idle")
    chosen = parser.parse_args()
    print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    for name in chosen.only or DRIVERS:
        start, connect = DRIVERS[name]
        try:
            with ExitStack() as stack:
                server = stack.enter_context(start())
                path = stack.enter_context(recorder(server) if chosen.record else listener())
                if chosen.awake:
                    stack.enter_context(awake())
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
