# SPDX-License-Identifier: Apache-2.0
"""Known loads: what `qjoule calibrate` runs, on which CPUs, and how it is started."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.installed import installed_program
from qjoule.machine.cpu import CpuInfo

KERNELS = ("integer", "floating_point", "cache", "stream", "chase")  #: of tracer/load/kernels.c
IDLE = "idle"
_END_SECONDS = 10.0
_PROC_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Step:
    """One planned phase: `kernel` on each of `cpus`, or IDLE. `smt`: both siblings of a core."""

    kernel: str
    cpus: tuple[int, ...]
    smt: bool
    seconds: float

    @property
    def words(self) -> str:
        if self.kernel == IDLE:
            return "idle"
        siblings = ", both siblings of each core" if self.smt else ""
        return f"{self.kernel} on {len(self.cpus)} CPU{'s'[: len(self.cpus) != 1]}{siblings}"


def plan_steps(info: CpuInfo, *, quick: bool = False) -> list[Step]:
    """The phases: idle first, in the middle and last; between them every kernel at every width.

    Widths, in all packages at the same time since each has its own power: one core, half of them,
    all, and with SMT both siblings of one core and of all.
    """
    idle_s, load_s, least_s, most_s = (3.0, 11.0, 0.5, 1.0) if quick else (12.0, 50.0, 2.0, 4.0)
    widths = _widths(info)
    each_s = min(max(load_s / (len(widths) * len(KERNELS)), least_s), most_s)
    loads = [Step(kernel, cpus, smt, each_s) for cpus, smt in widths for kernel in KERNELS]
    middle = len(loads) // 2
    first, short = Step(IDLE, (), False, idle_s), Step(IDLE, (), False, idle_s / 2)
    return [first, *loads[:middle], short, *loads[middle:], short]


def _widths(info: CpuInfo) -> list[tuple[tuple[int, ...], bool]]:
    """Sets of CPUs, and whether they are both siblings of their cores; each set once."""
    by_package: dict[int, list[tuple[int, ...]]] = {}
    for package, cpus in info.packages.items():
        cores = {cpu.siblings for cpu in info.cpus if cpu.cpu in cpus}
        # Interrupts and the kernel's own work are mostly on the first CPUs: the last are quieter.
        online = [tuple(sorted(set(core) & set(cpus))) for core in cores]
        by_package[package] = sorted(online, reverse=True)
    found: list[tuple[tuple[int, ...], bool]] = []
    for siblings in (False, True):
        for share in (0.0, 0.5, 1.0):
            if siblings and share == 0.5:
                continue
            chosen = [
                cpu
                for cores in by_package.values()
                for core in cores[: max(round(len(cores) * share), 1)]
                for cpu in (core if siblings else core[:1])
            ]
            width = tuple(sorted(chosen))
            if width not in [cpus for cpus, _ in found]:
                found.append((width, siblings))
    return found


@dataclass(frozen=True)
class Running:
    """A running load. `exceeds_cache`: its memory is larger than the caches."""

    exceeds_cache: bool


@contextmanager
def running(step: Step) -> Iterator[Running]:
    """Runs the step's kernel in the block, which starts when every thread is ready.

    Raises `QjouleError` if it cannot be started.
    """
    if step.kernel == IDLE:
        yield Running(True)
        return
    cpus = ",".join(map(str, step.cpus))
    # Its own time limit is for the case that nobody is left to stop it.
    command = [str(installed_program("qjoule-load")), step.kernel, cpus, f"{step.seconds + 60:.0f}"]
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
            words = process.stderr.read().decode("utf-8", "replace").strip()
            raise QjouleError(f"the load '{step.words}' did not start: {words or 'no reason told'}")
        yield Running(bool(json.loads(line)["exceeds_cache"]))
        if process.poll() is not None:
            raise QjouleError(f"the load '{step.words}' ended by itself: run it again")
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        process.terminate()
    with process:  # closes its pipes
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


class BusyWatch:
    """Mean number of busy CPUs since it was made, from /proc/stat in steps of 10 ms."""

    def __init__(self, path: Path = _PROC_STAT) -> None:
        self._path = path
        self._begin_s, self._busy_s = time.monotonic(), self._read()

    def cpus(self) -> float:
        length_s = time.monotonic() - self._begin_s
        return max(self._read() - self._busy_s, 0.0) / length_s if length_s > 0 else 0.0

    def _read(self) -> float:
        """Seconds that all CPUs together were not idle (proc(5): fields 4 and 5 are idle)."""
        words = self._path.read_text().split("\n", 1)[0].split()[1:]
        ticks: Sequence[int] = [int(word) for word in words[:8]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
