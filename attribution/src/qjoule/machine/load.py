# SPDX-License-Identifier: Apache-2.0
"""Runs the known loads of `qjoule calibrate`, measures how busy the machine is meanwhile, and ends
a load if other programs become busier."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.installed import installed_program
from qjoule.machine.facts import read_text
from qjoule.machine.steps import BESIDE, IDLE, Step, Use, wakeup_rate

_END_SECONDS = 10.0
_PROC_STAT = Path("/proc/stat")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
#: A rise must last this long: /proc/stat counts in ticks, and a short burst is no rise.
WINDOW_S = 0.5


@dataclass(frozen=True)
class Running:
    """A running load. `exceeds_cache`: its memory is larger than the caches. `pids`: its
    processes."""

    exceeds_cache: bool
    pids: tuple[int, ...] = ()


@contextmanager
def running(step: Step) -> Iterator[Running]:
    """Runs the step's kernel in the block, which starts when every thread is ready.

    Raises `QjouleError` if it cannot be started.
    """
    if step.kernel == IDLE:
        yield Running(True)
        return
    rate = wakeup_rate(step.kernel)
    loads = [(step.kernel if rate is None else f"wakeups:{rate}", step.cpus)]
    if step.beside:
        loads.append((BESIDE, step.beside))
    with ExitStack() as stack:
        started = [stack.enter_context(_run_program(step, *load)) for load in loads]
        pids = tuple(pid for run in started for pid in run.pids)
        yield Running(all(run.exceeds_cache for run in started), pids)


@contextmanager
def _run_program(step: Step, kernel: str, on: Sequence[int]) -> Iterator[Running]:
    """Runs one program of a step. Raises `QjouleError` if it cannot start, or ends by itself."""
    cpus = ",".join(map(str, on))
    # This time limit ends the program if we cannot.
    command = [str(installed_program("qjoule-load")), kernel, cpus, f"{step.seconds + 60:.0f}"]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise QjouleError(f"cannot start {command[0]}: {error.strerror}") from None
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            reason = process.stderr.read().decode("utf-8", "replace").strip()
            raise QjouleError(
                f"the load '{step.description}' did not start: {reason or 'no reason told'}"
            )
        yield Running(bool(json.loads(line)["exceeds_cache"]), (process.pid,))
        if process.poll() is not None:
            raise QjouleError(f"the load '{step.description}' ended by itself: run it again")
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        process.terminate()
    with process:  # closes its pipes
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


class BusyWatch:
    """The mean number of busy CPUs since its creation, from /proc/stat in steps of 10 ms."""

    def __init__(self) -> None:
        self._begin_s, self._busy_s = time.monotonic(), self._read()

    def cpus(self) -> float:
        length_s = time.monotonic() - self._begin_s
        return max(self._read() - self._busy_s, 0.0) / length_s if length_s > 0 else 0.0

    def _read(self) -> float:
        """Seconds that all CPUs together were not idle (proc(5): fields 4 and 5 are idle)."""
        fields = _PROC_STAT.read_text().split("\n", 1)[0].split()[1:]
        ticks: Sequence[int] = [int(word) for word in fields[:8]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


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
    """A sample of the machine: seconds that each CPU was busy, and the threads that want to run."""

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
            name, *fields = line.split() or [""]
            if name.startswith("cpu") and name[3:].isdecimal():
                ticks = [int(word) for word in fields[:8]]
                busy_s[int(name[3:])] = (sum(ticks) - ticks[3] - ticks[4]) * _TICK_S
            elif name == "procs_running":
                runnable = int(fields[0])
    except (ValueError, IndexError) as error:
        raise QjouleError(f"/proc/stat cannot be understood ({error})") from error
    if not busy_s or runnable is None:
        raise QjouleError("/proc/stat shows no CPUs or no runnable threads; is /proc mounted?")
    return busy_s, runnable


def own_cpu_s(pids: Collection[int], proc: Path = Path("/proc")) -> float:
    """CPU seconds of all children that have ended, and of the running processes `pids`."""
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

    `read` samples the machine. Before `begin`, `check` allows everything.
    """

    limits: Limits
    read: Callable[[], Reading]
    use: Use | None = None
    _waiting: float = 0.0

    def __post_init__(self) -> None:
        self._last: deque[Reading] = deque()

    def begin(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Use:
        """Measures for `seconds`, before our load starts, how busy other programs are."""
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
        usage, before = (last.foreign_s - first.foreign_s) / length_s, self.use.busy_cpus
        if usage > before + self.limits.rise:
            raise LoadRose(
                f"other programs use {usage:.1f} CPUs, and used {before:.1f} at the start"
            )
        waiting = sum(state.waiting for state in self._last) / len(self._last)
        if waiting > self._waiting + self.limits.waiting:
            raise LoadRose(
                f"{waiting:.1f} threads wait for a CPU, and {self._waiting:.1f} did at the start"
            )


def load_reader(
    pids: Callable[[], Collection[int]], root: Path = Path("/")
) -> Callable[[], Reading]:
    """Returns a function that samples this machine; `pids`: the processes of our own load."""

    def read() -> Reading:
        busy_s, runnable = read_stat(read_text(root / "proc/stat"))
        return Reading(time.monotonic(), busy_s, runnable, own_cpu_s(pids(), root / "proc"))

    return read
