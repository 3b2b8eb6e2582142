# SPDX-License-Identifier: Apache-2.0
"""CPU time in ns: of processes, of everybody who has a part in a load, and of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import psutil


def cpu_ns(pids: Iterable[int]) -> int:
    """CPU time of these processes' current threads (Documentation/scheduler/sched-stats.rst)."""
    total = 0
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except (OSError, IndexError):  # it has just ended
                continue
    return total


def family(pid: int) -> tuple[int, ...]:
    """A process and its descendants."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return ()
    return (pid, *(child.pid for child in children))


def all_tasks_ns() -> int:
    """CPU time of all tasks of the machine, kernel threads among them, that have not ended."""
    return cpu_ns(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def busy_ns() -> int:
    """Time that the machine's CPUs have not idled, in steps of a clock tick, 10 ms (proc_stat(5)).

    Unlike the tasks' CPU time, it also has interrupts that arrive while a CPU idles.
    """
    with Path("/proc/stat").open(encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    idle, iowait = fields[3], fields[4]
    return (sum(fields) - idle - iowait) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def runs(pid: int) -> int:
    """How often a process's threads got a CPU: each time they were woken or had been preempted."""
    with suppress(OSError, IndexError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[2]) for task in tasks)
    return 0


def peak_resident_bytes(pid: int) -> int:
    """The most memory that a process ever had resident (proc_pid_status(5), VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True)
class Watched:
    """The processes of a mode. Without a tracer, all of them count as reader."""

    pids: tuple[int, ...] = ()
    tracer: int = 0

    @property
    def others(self) -> tuple[int, ...]:
        """The reader and the root part."""
        return tuple(pid for pid in self.pids if pid != self.tracer)


@dataclass(frozen=True)
class Clocks:
    """CPU time in ns: of processes, of all tasks, and of the machine's CPUs outside idle."""

    server: int = 0
    client: int = 0
    tracer: int = 0
    reader: int = 0
    tasks: int = 0
    machine: int = 0
    tracer_runs: int = 0  #: how often the tracer got a CPU
    reader_runs: int = 0

    def __sub__(self, before: Clocks) -> Clocks:
        names = (field.name for field in fields(self))
        return Clocks(*(getattr(self, name) - getattr(before, name) for name in names))


def read_clocks(server: Sequence[int], client: Sequence[int], watched: Watched) -> Clocks:
    tracer = [watched.tracer] if watched.tracer else []
    return Clocks(
        cpu_ns(server),
        cpu_ns(client),
        cpu_ns(tracer),
        cpu_ns(watched.others),
        all_tasks_ns(),
        busy_ns(),
        sum(map(runs, tracer)),
        sum(map(runs, watched.others)),
    )
