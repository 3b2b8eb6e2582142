# SPDX-License-Identifier: Apache-2.0
"""What qjoule's hooks cost another process and a server's thread, per operation.

    sudo python bench/bench_hooks.py [--quick] [--only PLAN]

Two processes run the same tight loops (bench/hooks/loops.c) on one CPU, one at a time: a foreign
process, and one whose executable is planned as a MySQL server on the attach mode socket. Blocks
without and with tracing follow each other, each with many short turns. The loops precede all else
on that CPU (SCHED_FIFO), and the tracer and its reader are kept off it. Printed are, over blocks,
the median and the range of the difference between the fastest turn of a block with tracing and
those of its two neighbours without; and the medians of the same differences of quartiles. The plan
`empty` is an empty program on each of the hooks: a plan that leaves a hook alone costs less there.
Counters are not read. Nothing passes or fails here.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import (  # noqa: E402
    machine,
    machine_lines,
    make_parser,
    progress_to,
    run,
    shared_directory,
)
from bench.overhead import empty  # noqa: E402

from qjoule.contract import Mode  # noqa: E402
from qjoule.errors import QjouleError  # noqa: E402
from tracing.tracer import tracing  # noqa: E402

SOURCE = ROOT / "bench" / "hooks" / "loops.c"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")
#: Operations of a turn of 1 to 3 ms, less than a time slice: others may use the CPU, too.
OPERATIONS = {"read": 3_000, "query": 500, "write": 2_000, "switch": 600, "timer": 500}
#: What a foreign operation may cost beyond an empty program.
TARGETS_NS = {"read": 15, "write": 15, "switch": 40, "timer": 15}
EMPTY = "empty"
#: Kinds and attach modes of a plan's servers; the first is the one whose threads are measured.
PLANS: Mapping[str, Sequence[str]] = {
    "mysql": ("mysql:socket",),
    "four": ("mysql:socket", "postgres:socket", "redis:socket", "memcached:socket"),
    "all": (
        *("mysql:socket", "postgres:socket", "redis:socket", "memcached:socket"),
        *("mongodb:socket", "cassandra:agent", "voltdb:symbol", "generic:none"),
    ),
}
NO_SUCH_INODE = 1 << 40
TURNS = 40  #: of a block, for each operation and process
TRIES = 5  #: until a third of the turns that were asked for were not interrupted
RING_MB = 64  #: no loss: a full ring would be cheaper

#: Nanoseconds per operation of each turn of a block, by operation and process.
Block = dict[tuple[str, str], list[float]]


@dataclass(frozen=True)
class Tracing:
    """What is attached in a block; `mode` None: empty programs."""

    plan: str
    mode: Mode | None

    @contextmanager
    def attached(self, executable: Path) -> Iterator[None]:
        """Attaches for the block; `executable` is the plan's first server."""
        if self.mode is None:
            with _empty_programs():
                yield
            return
        status = executable.stat()
        options = ["--energy", "none", "--ring-mb", str(RING_MB)]
        for number, kind in enumerate(PLANS[self.plan], 1):
            inode = status.st_ino if number == 1 else NO_SUCH_INODE + number
            options += ["--server", f"{number}:{kind}:{status.st_dev}:{inode}"]
        with tracing(self.mode, *options) as session:
            if session.process.poll() is not None or not session.frames:
                raise QjouleError(f"the tracer did not start: {session.finish()}")
            yield
            session.finish()


@contextmanager
def _empty_programs() -> Iterator[None]:
    names = (*empty.ALWAYS, empty.SOCKET, empty.REDIS_SEND)
    options = [word for name in names for word in ("--program", name)]
    with subprocess.Popen(
        [empty.LOADER, empty.OBJECT, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as loader:
        assert loader.stdin is not None
        assert loader.stdout is not None
        if loader.stdout.readline() != b"attached\n":
            raise QjouleError("the empty programs cannot be attached")
        yield
        loader.stdin.close()


class Loops:
    """A process that runs the loops on one CPU when it is asked to."""

    def __init__(self, executable: Path, cpu: int) -> None:
        self._process = subprocess.Popen(
            [executable, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def turns(self, operation: str, count: int) -> list[float]:
        """Nanoseconds per operation of about `count` turns that were not interrupted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        times_ns: list[float] = []
        for _ in range(TRIES):
            self._process.stdin.write(f"{operation} {count} {OPERATIONS[operation]}\n")
            self._process.stdin.flush()
            answer = [float(word) for word in self._process.stdout.readline().split()]
            times_ns += [ns for ns in answer if ns]
            if len(times_ns) >= count / 3:
                return times_ns
        raise QjouleError(f"{operation}: others use the loops' CPU all the time")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass
class Differences:
    """What one hook costs one process: a value per block with tracing, ns per operation."""

    off: list[float] = field(default_factory=list)  #: fastest turns without tracing
    fastest: list[float] = field(default_factory=list)
    quartiles: list[list[float]] = field(default_factory=list)

    def add(self, on: list[float], neighbours: Sequence[list[float]]) -> None:
        self.off.append(min(map(min, neighbours)))
        self.fastest.append(min(on) - statistics.mean(map(min, neighbours)))
        without = zip(*(statistics.quantiles(turns) for turns in neighbours), strict=True)
        pairs = zip(statistics.quantiles(on), without, strict=True)
        self.quartiles.append([with_it - statistics.mean(others) for with_it, others in pairs])

    @property
    def median(self) -> float:
        return statistics.median(self.fastest)

    def line(self) -> str:
        low, high = min(self.fastest), max(self.fastest)
        quartiles = [statistics.median(values) for values in zip(*self.quartiles, strict=True)]
        texts = " ".join(f"{ns:+6.0f}" for ns in quartiles)
        return f"{min(self.off):6.0f} {self.median:+7.1f} [{low:+7.1f}, {high:+7.1f}]  {texts}"


def measured(
    tracings: Sequence[Tracing], blocks: int, turns: int, cpu: int
) -> dict[tuple[str, str, Tracing], Differences]:
    """Blocks with each tracing in turn, between blocks without."""
    differences: dict[tuple[str, str, Tracing], Differences] = {}
    say = progress_to(sys.stderr, "bench_hooks")
    with ExitStack() as stack:
        directory = stack.enter_context(shared_directory())
        server = directory / "server"
        subprocess.run(["gcc", *FLAGS, SOURCE, "-o", server], check=True)
        processes = {}
        for role, executable in (
            ("foreign", shutil.copy(server, directory / "loops")),
            ("server", server),
        ):
            processes[role] = Loops(Path(executable), cpu)
            stack.callback(processes[role].end)

        def block() -> Block:
            return {
                (operation, role): process.turns(operation, turns)
                for operation in OPERATIONS
                for role, process in processes.items()
            }

        before = block()
        for number in range(blocks):
            for tracing_now in tracings:
                say(f"block {number + 1} of {blocks}: {tracing_now.plan}")
                with tracing_now.attached(server):
                    on = block()
                after = block()
                for (operation, role), ns in on.items():
                    key = (operation, role, tracing_now)
                    neighbours = (before[operation, role], after[operation, role])
                    differences.setdefault(key, Differences()).add(ns, neighbours)
                before = after
    say("")
    return differences


def table(differences: Mapping[tuple[str, str, Tracing], Differences]) -> Iterator[str]:
    yield (
        "operation who     plan  mode      off  fastest [over blocks]      "
        "   25 %   50 %   75 %  beyond empty"
    )
    for operation in OPERATIONS:
        for role in ("foreign", "server"):
            rows = {key[2]: row for key, row in differences.items() if key[:2] == (operation, role)}
            nothing = next((row for key, row in rows.items() if key.mode is None), None)
            for key, row in rows.items():
                mode = key.mode.name.lower() if key.mode is not None else ""
                line = f"{operation:9} {role:7} {key.plan:5} {mode:6} {row.line()}"
                if nothing is not None and row is not nothing:
                    line += f"  {row.median - nothing.median:+7.1f}"
                    if role == "foreign" and operation in TARGETS_NS:
                        line += f" (target: {TARGETS_NS[operation]})"
                yield line


def bench(plans: Sequence[str], blocks: int, turns: int) -> None:
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        raise QjouleError("one CPU is not enough: the loops need one to themselves")
    cpu = max(cpus)
    os.sched_setaffinity(0, cpus - {cpu})  # for all children but the loops
    empty.build()
    tracings = [Tracing(EMPTY, None)]
    tracings += [Tracing(plan, mode) for plan in plans for mode in (Mode.RECORD, Mode.LIVE)]
    print(*machine_lines(machine()), sep="\n")
    print(f"ns per operation; {blocks} blocks of {turns} turns each, on CPU {cpu}")
    print(*table(measured(tracings, blocks, turns, cpu)), sep="\n")


def main() -> int:
    quick = "two blocks instead of ten: under a minute, and a wide spread"
    options = make_parser(__doc__, tuple(PLANS), "PLAN", quick).parse_args()
    blocks = 2 if options.quick else 10
    return run("bench_hooks", lambda: bench(options.only or tuple(PLANS), blocks, TURNS))


if __name__ == "__main__":
    sys.exit(main())
