# SPDX-License-Identifier: Apache-2.0
"""The phases of a calibration: which load runs, on which CPUs, and for how long."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qjoule.machine.cpu import CpuInfo

KERNELS = ("integer", "floating_point", "cache", "stream", "chase")  #: of tracer/load/kernels.c
IDLE = "idle"
#: Wake-ups per second of the phases that show what a wake-up costs.
WAKEUP_RATES = (100, 500, 1000, 2000, 5000, 10000)
_SHORT_RATES = (100, 1000, 10000)
BESIDE = "integer"  #: what the other core computes in the phases `wakeups_RATE_beside`
_WAKEUPS = re.compile(r"wakeups_([1-9][0-9]{0,4})(_beside)?")
_WAKEUPS_S = 1.0


@dataclass(frozen=True)
class Step:
    """One planned phase: `kernel` on each of `cpus`, or IDLE. `smt`: both siblings of a core.

    `beside`: CPUs that compute BESIDE meanwhile.
    """

    kernel: str
    cpus: tuple[int, ...]
    smt: bool
    seconds: float
    beside: tuple[int, ...] = ()

    @property
    def threads(self) -> int:
        return len(self.cpus) + len(self.beside)

    @property
    def words(self) -> str:
        if self.kernel == IDLE:
            return "idle"
        siblings = ", both siblings of each core" if self.smt else ""
        return f"{self.kernel} on {len(self.cpus)} CPU{'s'[: len(self.cpus) != 1]}{siblings}"


def wakeup_rate(phase: str) -> int | None:
    """Wake-ups per second of a phase by its name; None: it is none of `wakeups_RATE[_beside]`."""
    match = _WAKEUPS.fullmatch(phase)
    return int(match[1]) if match else None


def plan_steps(info: CpuInfo, *, short: bool = False) -> list[Step]:
    """The phases: idle first, in the middle and last; between them every kernel at every width.

    Widths, in all packages at the same time since each has its own power: one core, half of them,
    all, and with SMT both siblings of one core and of all. Wake-ups come in between.
    """
    idle_s, load_s, least_s, most_s = (3.0, 11.0, 0.5, 1.0) if short else (12.0, 50.0, 2.0, 4.0)
    widths = _widths(info)
    each_s = min(max(load_s / (len(widths) * len(KERNELS)), least_s), most_s)
    loads = [Step(kernel, cpus, smt, each_s) for cpus, smt in widths for kernel in KERNELS]
    loads = _spread(loads, wakeup_steps(info, short=short))
    middle = len(loads) // 2
    first, rest = Step(IDLE, (), False, idle_s), Step(IDLE, (), False, idle_s / 2)
    return [first, *loads[:middle], rest, *loads[middle:], rest]


def wakeup_steps(info: CpuInfo, *, short: bool = False) -> list[Step]:
    """One thread that wakes at a known rate: alone, and beside a busy core of its package.

    A machine of one core has no phases `wakeups_RATE_beside`.
    """
    rates, seconds = (_SHORT_RATES, 0.5) if short else (WAKEUP_RATES, _WAKEUPS_S)
    first, *others = next(iter(cores_by_package(info).values()))
    made = []
    for rate in rates:
        made.append(Step(f"wakeups_{rate}", first[:1], False, seconds))
        if others:
            busy = others[0][:1]
            made.append(Step(f"wakeups_{rate}_beside", first[:1], False, seconds, busy))
    return made


def _spread(loads: list[Step], between: list[Step]) -> list[Step]:
    """`between` at equal distances among `loads`, both in their order."""
    places = [(i + 0.5) / len(loads) for i in range(len(loads))]
    places += [(i + 0.5) / len(between) for i in range(len(between))]
    both = [*loads, *between]
    return [both[i] for i in sorted(range(len(both)), key=places.__getitem__)]


def cores_by_package(info: CpuInfo) -> dict[int, list[tuple[int, ...]]]:
    """The cores of each package as tuples of their online CPUs, the last core first.

    Interrupts and the kernel's own work are mostly on the first CPUs: the last are quieter.
    """
    by_package: dict[int, list[tuple[int, ...]]] = {}
    for package, cpus in info.packages.items():
        cores = {cpu.siblings for cpu in info.cpus if cpu.cpu in cpus}
        online = [tuple(sorted(set(core) & set(cpus))) for core in cores]
        by_package[package] = sorted(online, reverse=True)
    return by_package


def _widths(info: CpuInfo) -> list[tuple[tuple[int, ...], bool]]:
    """Sets of CPUs, and whether they are both siblings of their cores; each set once."""
    by_package = cores_by_package(info)
    widths: list[tuple[tuple[int, ...], bool]] = []
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
            if width not in [cpus for cpus, _ in widths]:
                widths.append((width, siblings))
    return widths
