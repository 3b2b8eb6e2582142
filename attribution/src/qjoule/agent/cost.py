# SPDX-License-Identifier: Apache-2.0
"""What tracing costs this machine: the agent's processes, and the hooks in everything else.

The CPU time and memory of the processes are those of /proc. The kernel times BPF programs only
while it is asked to (BPF_ENABLE_STATS, bpf(2)), and reads its clock twice per run then. So hooks
are timed in short samples at random times, and their cost is extrapolated from these.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.metrics.exposition import Family, Sample, decimal, seconds

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


def process_families(processes: Mapping[str, int], created: str) -> Iterator[Family]:
    """`processes`: pids by task. Those that /proc does not show are left out."""
    costs = {name: cost for name, pid in processes.items() if (cost := _usage(pid)) is not None}
    yield Family(
        "qjoule_agent_cpu_seconds",
        "counter",
        "CPU time of the agent's own processes. What its hooks take is in the servers' time.",
        "seconds",
        [
            Sample((("process", name),), f"{cpu_s:.2f}", created)
            for name, (cpu_s, _) in costs.items()
        ],
    )
    yield Family(
        "qjoule_agent_resident_bytes",
        "gauge",
        "Resident memory of the agent's own processes, shared pages included.",
        "bytes",
        [Sample((("process", name),), str(size)) for name, (_, size) in costs.items()],
    )


def cpu_seconds(pid: int) -> float | None:
    """CPU time of a process and of its children that have ended; None: it is not there."""
    fields = _fields(pid)
    return None if fields is None else sum(map(int, fields[11:15])) / _TICKS_PER_S


def _usage(pid: int) -> tuple[float, int] | None:
    """CPU time in s and resident bytes."""
    fields = _fields(pid)
    if fields is None:
        return None
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return ticks / _TICKS_PER_S, pages * _PAGE_BYTES


def _fields(pid: int) -> list[str] | None:
    """Returns /proc/PID/stat from the state on: field n of proc_pid_stat(5) is at n - 3."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 21 else None


#: A sample begins 15 to 45 s after the last one, so that it does not keep step with periodic work.
EVERY_S = 30.0
SAMPLE_S = 0.5


@dataclass(frozen=True)
class ProgramTotals:
    """Runs and time of our BPF programs so far, by the kernel's accounting."""

    traps: int  #: runs of uprobes' programs
    ns: int  #: of all programs


#: Turns the kernel's accounting on while the returned descriptor is open; also returns the totals.
Ask = Callable[[], tuple[ProgramTotals, int]]


@dataclass(frozen=True)
class Cost:
    """Shares of the machine's CPU time since the last measurement. None: unknown."""

    processes: float
    programs: float | None = None  #: BPF programs, whoever's threads ran them
    traps: float | None = None  #: entering uprobes' programs and leaving them

    @property
    def known(self) -> float:
        return self.processes + (self.programs or 0.0) + (self.traps or 0.0)


@dataclass
class _OpenSample:
    at_s: float
    ran: ProgramTotals
    fd: int


@dataclass
class CostMeter:
    """Measures what tracing costs. `tick` is to be called several times a second.

    Args:
        processes: pids of the agent's processes, by task.
        ask: None: the cost of hooks stays unknown.
        trap_ns: cost of one run of a uprobe, beyond its program; 0: unknown.
    """

    processes: Mapping[str, int]
    ask: Ask | None
    trap_ns: float
    say: Callable[[str], object]
    cpus: int = field(default_factory=lambda: os.cpu_count() or 1)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    cost: Cost | None = None  #: the last one
    _hook_ns: dict[str, int] = field(default_factory=dict)  #: extrapolated, by part
    _begun: _OpenSample | None = None
    _created: str = ""
    _warned_of_traps: bool = False

    def __post_init__(self) -> None:
        self._created = seconds(self.wall())
        self._last_s = self.clock()
        self._cpu_s = self._own_cpu_s()
        self._due_s = self._last_s + EVERY_S * random.uniform(0.1, 0.5)

    def tick(self) -> Cost | None:
        """A measurement, if one has just ended."""
        now_s = self.clock()
        if self._begun is None and now_s >= self._due_s:
            self._due_s = now_s + EVERY_S * random.uniform(0.5, 1.5)
            sample = self._sample()
            if sample is None:
                return self._measured(now_s, None, None)
            self._begun = _OpenSample(self.clock(), *sample)
        elif self._begun is not None and now_s >= self._begun.at_s + SAMPLE_S:
            return self._end_sample(self._begun)
        return None

    def close(self) -> None:
        if self._begun is not None:
            os.close(self._begun.fd)
            self._begun = None

    def _end_sample(self, begun: _OpenSample) -> Cost | None:
        sample = self._sample()
        now_s = self.clock()
        self.close()
        if sample is None:
            return self._measured(now_s, None, None)
        ran, fd = sample
        os.close(fd)
        for_s = now_s - begun.at_s
        runs, ns = ran.traps - begun.ran.traps, ran.ns - begun.ran.ns
        if runs and not self.trap_ns and not self._warned_of_traps:
            self._warned_of_traps = True
            self.say(
                f"uprobes ran {runs / for_s:.0f} times a second, and what their traps cost is "
                "unknown: set budget.trap_ns"
            )
        traps_ns = runs * self.trap_ns if self.trap_ns or not runs else None
        return self._measured(now_s, ns / for_s, None if traps_ns is None else traps_ns / for_s)

    def _measured(self, now_s: float, programs: float | None, traps: float | None) -> Cost:
        """`programs`, `traps`: ns per second."""
        for_s, self._last_s = now_s - self._last_s, now_s
        before, self._cpu_s = self._cpu_s, self._own_cpu_s()
        own_s = sum(cpu_s - before[pid] for pid, cpu_s in self._cpu_s.items() if pid in before)
        for part, rate in (("programs", programs), ("traps", traps)):
            if rate is not None:
                self._hook_ns[part] = self._hook_ns.get(part, 0) + int(rate * for_s)
        self.cost = Cost(
            own_s / for_s / self.cpus,
            None if programs is None else programs / 1e9 / self.cpus,
            None if traps is None else traps / 1e9 / self.cpus,
        )
        return self.cost

    def _own_cpu_s(self) -> Mapping[int, float]:
        times = {pid: cpu_seconds(pid) for pid in self.processes.values()}
        return {pid: cpu_s for pid, cpu_s in times.items() if cpu_s is not None}

    def _sample(self) -> tuple[ProgramTotals, int] | None:
        if self.ask is None:
            return None
        try:
            return self.ask()
        except QjouleError as error:
            self.ask = None
            self.say(f"what hooks cost the servers is unknown: {error}")
        return None

    def families(self) -> Iterator[Family]:
        about = "CPU time of hooks in whatever they interrupt, extrapolated from samples."
        hooks = sorted(self._hook_ns.items())
        yield Family(
            "qjoule_hook_cpu_seconds",
            "counter",
            about,
            "seconds",
            [Sample((("part", part),), decimal(ns), self._created) for part, ns in hooks],
        )
        if self.cost is None:
            return
        parts = {
            "processes": self.cost.processes,
            "programs": self.cost.programs,
            "traps": self.cost.traps,
        }
        yield Family(
            "qjoule_budget_used_ratio",
            "gauge",
            "Share of the machine's CPU time that tracing takes. A part that is unknown is absent.",
            "ratio",
            [
                Sample((("part", part),), f"{share:.9g}")
                for part, share in parts.items()
                if share is not None
            ],
        )
