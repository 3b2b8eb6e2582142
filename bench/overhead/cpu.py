# SPDX-License-Identifier: Apache-2.0
"""CPU time of processes in ns, and what else the machine was doing."""

from __future__ import annotations

import os
from collections.abc import Iterable
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


def peak_resident_bytes(pid: int) -> int:
    """The most memory that a process ever had resident (proc_pid_status(5), VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def load_average() -> float:
    return os.getloadavg()[0]
