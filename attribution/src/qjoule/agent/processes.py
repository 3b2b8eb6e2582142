# SPDX-License-Identifier: Apache-2.0
"""What the agent's own processes take: CPU time and memory, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from qjoule.metrics.families import Family, Sample

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


def process_families(processes: Mapping[str, int], created: str) -> Iterator[Family]:
    """`processes`: their pids, by what they do. Those that /proc does not show are left out."""
    found = {name: one for name, pid in processes.items() if (one := _of(pid)) is not None}
    yield Family(
        "qjoule_agent_cpu_seconds",
        "counter",
        "CPU time of the agent's own processes. What its hooks take is in the servers' time.",
        "seconds",
        [
            Sample((("process", name),), f"{cpu_s:.2f}", created)
            for name, (cpu_s, _) in found.items()
        ],
    )
    yield Family(
        "qjoule_agent_resident_bytes",
        "gauge",
        "Resident memory of the agent's own processes, shared pages included.",
        "bytes",
        [Sample((("process", name),), str(size)) for name, (_, size) in found.items()],
    )


def cpu_seconds(pid: int) -> float | None:
    """CPU time of a process and of its children that have ended; None: it is not there."""
    fields = _fields(pid)
    return None if fields is None else sum(map(int, fields[11:15])) / _TICKS_PER_S


def _of(pid: int) -> tuple[float, int] | None:
    """CPU time in s and resident bytes."""
    fields = _fields(pid)
    if fields is None:
        return None
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return ticks / _TICKS_PER_S, pages * _PAGE_BYTES


def _fields(pid: int) -> list[str] | None:
    """From the state on (proc_pid_stat(5)): field n of the page is at n - 3."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 21 else None
