# SPDX-License-Identifier: Apache-2.0
"""Time and memory that attaching takes beside many processes of a hostile user.

    python bench/bench_attach.py [--rounds N] [--fakes N] [--others N]
    python bench/bench_attach.py --rounds 20 --old OTHER/.venv/bin/qjoule

Starts a redis-server and a PostgreSQL, and runs `qjoule record -d 0.1` beside them. Some runs are
without other processes. The others are beside processes with names of servers (an unprivileged
user's, with damaged and huge executables and hostile configuration files) and processes that only
sleep. Both kinds of runs are interleaved. Prints medians with their range beside the target, the
peak memory of all of qjoule's processes together, and whether every real server was traced. With
`--old`, another tree's command is compared instead, on a MariaDB and a PostgreSQL without fakes: in
each round both run, in turns first. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines, run, shared_directory  # noqa: E402

from qjoule_studies.servers.mysql import mariadb_server  # noqa: E402
from qjoule_studies.servers.postgres import postgres_server  # noqa: E402
from qjoule_studies.servers.redis import redis_server  # noqa: E402
from servers.toy_elf import MARIADB_10_11, toy_server  # noqa: E402

QJOULE = Path(sys.executable).parent / "qjoule"
TARGET_S, TARGET_MIB = 3.0, 200
SAMPLE_S = 0.01
SOMEBODY = 61234  #: a user without an account
NAMES = ("mysqld", "mariadbd", "postgres", "redis-server", "mongod")
HUGE_BYTES = 2 << 30  #: size of a sparse executable


@dataclass(frozen=True)
class Attached:
    seconds: float
    cpu_s: float
    mib: float
    messages: str


def attach(directory: Path, *options: str, qjoule: Path = QJOULE) -> Attached:
    """Records for a moment; returns the time until everything is attached."""
    cpu_s, began = _children_cpu_s(), time.monotonic()
    arguments = ["record", "-d", "0.1", "--energy", "none", "-o", str(directory / "trace")]
    process = subprocess.Popen(
        [qjoule, *arguments, *options],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=directory,
    )
    memory = None if options else _Memory(process.pid)  # looking for it takes CPU time
    assert process.stderr is not None
    messages, seconds = [], float("nan")
    for line in process.stderr:
        if "qjoule: tracing" in line:
            seconds = time.monotonic() - began
        messages.append(line.strip())
    process.wait()
    process.stderr.close()
    shutil.rmtree(directory / "trace", ignore_errors=True)
    memory_mib = memory.finish() / 2**20 if memory else float("nan")
    return Attached(seconds, _children_cpu_s() - cpu_s, memory_mib, "; ".join(messages))


def _children_cpu_s() -> float:
    """CPU time of this process's ended children, and of the descendants that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Memory(threading.Thread):
    """Peak memory (proportional set size, bytes) of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._most = pid, 0
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._most = max(self._most, sum(map(_pss, _tree(self._pid))))

    def finish(self) -> int:
        self._ended.set()
        self.join()
        return self._most


def _tree(pid: int) -> list[int]:
    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _pss(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:")), 0
    )


@contextmanager
def fakes(count: int, others: int) -> Iterator[None]:
    """Processes of a user without an account: some with names of servers, some that only sleep."""
    with shared_directory() as place:
        programs = list(_programs(place))
        started = [
            subprocess.Popen([random.choice(programs), "wait"], user=SOMEBODY, cwd="/")
            for _ in range(count)
        ]
        started += [subprocess.Popen(["sleep", "infinity"]) for _ in range(others)]
        try:
            yield
        finally:
            for process in started:
                process.kill()
                process.wait()


def _programs(place: Path) -> Iterator[Path]:
    """Executables that run but are hard on a parser."""
    sound = toy_server(place / "sound", [MARIADB_10_11], banner="10.11.6-MariaDB")
    for number, name in enumerate(NAMES):
        for kind in ("sound", "torn", "huge"):
            directory = place / f"{number}-{kind}"
            directory.mkdir(mode=0o755)
            program = Path(shutil.copy(sound, directory / name))
            program.chmod(0o755)
            if kind == "torn":
                _tear(program)
            elif kind == "huge":
                os.truncate(program, HUGE_BYTES)
            yield program


def _tear(program: Path) -> None:
    """Damages what only tools read: the section headers at the end of the file."""
    content = bytearray(program.read_bytes())
    for at in range(len(content) - 1500, len(content)):
        content[at] = random.randrange(256)
    program.write_bytes(content)


def bench(rounds: int, count: int, others: int) -> None:
    for line in machine_lines(machine()):
        print(line)
    alone: list[Attached] = []
    beside: list[Attached] = []
    processes = 0
    with ExitStack() as stack:
        directory = stack.enter_context(shared_directory())
        real = [stack.enter_context(redis_server()), stack.enter_context(postgres_server())]
        for _ in range(rounds):
            alone.append(attach(directory))
            with fakes(count, others):
                processes = len(psutil.pids())
                beside.append(attach(directory))
    print(f"{'':28}{'seconds':>20}{'MiB at most':>14}")
    _print("alone", alone)
    _print(f"beside {count} fakes", beside)
    print(f"{'target':28}{TARGET_S:>20.0f}{TARGET_MIB:>14}")
    print(f"{processes} processes ran, {count} of them fakes")
    for server in real:
        traced = sum(f":{server.port}" in run.messages for run in beside)
        print(f"{server.name}: traced in {traced} of {rounds} rounds beside the fakes")


def bench_pairs(rounds: int, old: Path) -> None:
    for line in machine_lines(machine()):
        print(line)
    runs: dict[Path, list[Attached]] = {QJOULE: [], old: []}
    with ExitStack() as stack:
        directory = stack.enter_context(shared_directory())
        servers = (stack.enter_context(mariadb_server()), stack.enter_context(postgres_server()))
        pids = [word for server in servers for word in ("--pid", str(server.pid))]
        for which in runs:
            attach(directory, *pids, qjoule=which)  # once before: caches of the disk
        for number in range(rounds):
            for which in list(runs)[:: 1 if number % 2 else -1]:
                runs[which].append(attach(directory, *pids, qjoule=which))
    print(f"{rounds} pairs{'here':>17}{'old':>10}   ratio [quartiles]")
    for name, field in (("until attached, s", "seconds"), ("CPU time, s", "cpu_s")):
        new, before = (
            [getattr(attached, field) for attached in attached_runs]
            for attached_runs in runs.values()
        )
        first, middle, third = statistics.quantiles(
            [a / b for a, b in zip(new, before, strict=True)], n=4
        )
        print(
            f"{name:18}{statistics.median(new):9.3f}{statistics.median(before):10.3f}"
            f"   {middle:.3f} [{first:.3f}, {third:.3f}]"
        )


def _print(name: str, runs: list[Attached]) -> None:
    seconds = [run.seconds for run in runs]
    span = f"{statistics.median(seconds):.2f} [{min(seconds):.2f}, {max(seconds):.2f}]"
    print(f"{name:28}{span:>20}{max(run.mib for run in runs):>14.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="[default: 5]")
    parser.add_argument("--fakes", type=int, default=100, help="[default: 100]")
    parser.add_argument("--others", type=int, default=100, help="[default: 100]")
    parser.add_argument("--old", type=Path, help="another tree's qjoule, to compare with")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.old:
        return run("bench_attach", lambda: bench_pairs(options.rounds, options.old.resolve()))
    return run("bench_attach", lambda: bench(options.rounds, options.fakes, options.others))


if __name__ == "__main__":
    sys.exit(main())
