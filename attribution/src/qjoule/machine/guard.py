# SPDX-License-Identifier: Apache-2.0
"""Watches a machine in use while a load of our own runs: the load ends if the others' rises."""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.machine.facts import read_text
from qjoule.machine.quick_steps import Use

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
#: A rise counts if it lasts this long: /proc/stat counts ticks, and one call is no rise.
WINDOW_S = 0.5


class LoadRose(QjouleError):
    """Other programs became busier than the user allowed."""


@dataclass(frozen=True)
class Limits:
    """`rise`: how many CPUs more than at the start other programs may use. `waiting`: how many
    threads more than at the start may wait for a CPU."""

    rise: float
    waiting: float


@dataclass(frozen=True)
class Reading:
    """One look at the machine: seconds that each CPU was busy, and the threads that want one."""

    t_s: float
    busy_s: dict[int, float]
    runnable: int
    own_s: float  #: of `busy_s`, used by our own load

    @property
    def foreign_s(self) -> float:
        return sum(self.busy_s.values()) - self.own_s

    @property
    def waiting(self) -> int:
        return max(self.runnable - len(self.busy_s), 0)


def read_stat(text: str) -> tuple[dict[int, float], int]:
    """Busy seconds by CPU, and the number of runnable threads, from /proc/stat (proc(5)).

    Raises `QjouleError` if it is no such text.
    """
    busy_s: dict[int, float] = {}
    runnable = None
    try:
        for line in text.splitlines():
            name, *words = line.split() or [""]
            if name.startswith("cpu") and name[3:].isdecimal():
                ticks = [int(word) for word in words[:8]]
                busy_s[int(name[3:])] = (sum(ticks) - ticks[3] - ticks[4]) * _TICK_S
            elif name == "procs_running":
                runnable = int(words[0])
    except (ValueError, IndexError) as error:
        raise QjouleError(f"/proc/stat cannot be understood ({error})") from error
    if not busy_s or runnable is None:
        raise QjouleError("/proc/stat shows no CPUs or no runnable threads; is /proc mounted?")
    return busy_s, runnable


def own_cpu_s(pids: Collection[int], proc: Path = Path("/proc")) -> float:
    """CPU seconds of all children that have ended, and of these that run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for pid in pids:
        fields = read_text(proc / str(pid) / "stat").rpartition(")")[2].split()
        if len(fields) > 12 and fields[11].isdecimal() and fields[12].isdecimal():
            total += (int(fields[11]) + int(fields[12])) * _TICK_S
    return total


@dataclass
class Guard:
    """Compares what other programs use with what they used at the start.

    `read`: one look at the machine. Without a start (`begin`) it allows everything.
    """

    limits: Limits
    read: Callable[[], Reading]
    use: Use | None = None
    _waiting: float = 0.0

    def __post_init__(self) -> None:
        self._last: deque[Reading] = deque()

    def begin(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Use:
        """Looks at the machine for so long, without a load of our own; returns its use."""
        first, waiting = self.read(), []
        for _ in range(max(round(seconds / 0.1), 1)):
            sleep(0.1)
            waiting.append((last := self.read()).waiting)
        length_s = max(last.t_s - first.t_s, 1e-3)
        busy = {cpu: (s - first.busy_s.get(cpu, s)) / length_s for cpu, s in last.busy_s.items()}
        self.use = Use({cpu: min(max(share, 0.0), 1.0) for cpu, share in busy.items()})
        self._waiting = sum(waiting) / len(waiting)
        return self.use

    def check(self) -> None:
        """Raises `LoadRose` if other programs have used more than allowed for `WINDOW_S`."""
        self._last.append(self.read())
        while len(self._last) > 2 and self._last[-1].t_s - self._last[1].t_s >= WINDOW_S:
            self._last.popleft()
        first, last = self._last[0], self._last[-1]
        if self.use is None or (length_s := last.t_s - first.t_s) < WINDOW_S:
            return
        now, before = (last.foreign_s - first.foreign_s) / length_s, self.use.busy_cpus
        if now > before + self.limits.rise:
            raise LoadRose(f"other programs use {now:.1f} CPUs, and used {before:.1f} at the start")
        waiting = sum(state.waiting for state in self._last) / len(self._last)
        if waiting > self._waiting + self.limits.waiting:
            raise LoadRose(
                f"{waiting:.1f} threads wait for a CPU, and {self._waiting:.1f} did at the start"
            )


def look(pids: Callable[[], Collection[int]], root: Path = Path("/")) -> Callable[[], Reading]:
    """Looks at this machine; `pids`: the processes of our own load that run."""

    def one() -> Reading:
        busy_s, runnable = read_stat(read_text(root / "proc/stat"))
        return Reading(time.monotonic(), busy_s, runnable, own_cpu_s(pids(), root / "proc"))

    return one
