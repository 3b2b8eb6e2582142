# SPDX-License-Identifier: Apache-2.0
"""CPU time of processes in ns, and what else the machine was doing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
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


def load_average() -> float:
    return os.getloadavg()[0]
