# SPDX-License-Identifier: Apache-2.0
"""The phases of a calibration: which load runs, on which CPUs, and for how long. On a machine in
use they are short, on few cores, and in random order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from random import Random

from qjoule.errors import QjouleError
from qjoule.machine.facts import CpuInfo

KERNELS = ("integer", "floating_point", "cache", "stream", "chase")  #: of tracer/load/kernels.c
IDLE = "idle"
#: Wake-ups per second of the phases that measure what a wake-up costs, and what a package draws
#: until it sleeps. At the first two rates, pauses exceed the longest time until it sleeps.
WAKEUP_RATES = (20, 50, 100, 500, 1000, 2000, 5000, 10000)
_SHORT_RATES = (20, 100, 1000, 10000)
#: Lowest rate of wake-ups beside a busy core, or on a machine in use. At lower rates a core's own
#: tails are shorter than its sleeps, and a package in use hardly sleeps.
_LEAST_BESIDE = 100
BESIDE = "integer"  #: what the other core computes in the phases `wakeups_RATE_beside`
_WAKEUPS = re.compile(r"wakeups_([1-9][0-9]{0,4})(_beside)?")
_WAKEUPS_S = 1.0
LOAD_S, REST_S = 0.4, 0.3
QUICK_SETTLE_S = 0.08  #: lets a core's clock settle; fans react only after the phase
_PAIR_S = LOAD_S + REST_S + 2 * QUICK_SETTLE_S
#: Never load more than this share of the cores that are idle.
_SHARE = 0.5
#: A calibration with fewer phases than this share of one round is not precise enough.
ENOUGH = 0.5


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
    def description(self) -> str:
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
    steps = []
    for rate in rates:
        steps.append(Step(f"wakeups_{rate}", first[:1], False, seconds))
        if others and rate >= _LEAST_BESIDE:
            busy = others[0][:1]
            steps.append(Step(f"wakeups_{rate}_beside", first[:1], False, seconds, busy))
    return steps


def _spread(loads: list[Step], between: list[Step]) -> list[Step]:
    """Merges `between` into `loads` at equal distances; both keep their order."""
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


@dataclass(frozen=True)
class Use:
    """How busy a machine is: `cpu` busy share of each CPU; `busy_cpus` their sum."""

    cpu: Mapping[int, float]

    @property
    def busy_cpus(self) -> float:
        return sum(self.cpu.values())


def loaded_cores(info: CpuInfo, use: Use, most: int | None = None) -> list[tuple[int, ...]]:
    """The cores that may be loaded, the quietest first: half of the idle ones, at most `most`.

    A core counts as idle for the share of time in which none of its CPUs is busy. Half of them is
    rounded. Raises `QjouleError` if that is none.
    """
    cores = [core for of in cores_by_package(info).values() for core in of]
    idle = sum(prod(max(1.0 - use.cpu.get(cpu, 0.0), 0.0) for cpu in core) for core in cores)
    allowed = round(idle * _SHARE)
    if allowed < 1:
        raise QjouleError(
            f"only {idle:.1f} of {len(cores)} cores are idle, and the load may take half of those: "
            "calibrate when the machine is less busy"
        )
    ranked = sorted(cores, key=lambda core: sum(use.cpu.get(cpu, 0.0) for cpu in core))
    return ranked[: min(allowed, most or allowed)]


def plan_quick(
    info: CpuInfo, cores: Sequence[tuple[int, ...]], seconds: float, random: Random
) -> list[Step]:
    """Every load as often as fits in `seconds`, in random order, with a rest before each.

    The random order keeps a slow change of the foreign load apart from the loads. `cores`: those
    that may be loaded, the best first.
    """
    loads = _loads(info, cores)
    rounds = max(int((seconds - REST_S) / (len(loads) * _PAIR_S)), 1)
    rest, steps = Step(IDLE, (), False, REST_S), []
    for _ in range(rounds):
        order = random.sample(loads, len(loads))
        steps += [step for load in order for step in (rest, load)]
    most = max(int((seconds - REST_S) / _PAIR_S), 1)
    return [*steps[: 2 * most], rest]


def _loads(info: CpuInfo, cores: Sequence[tuple[int, ...]]) -> list[Step]:
    """Every kernel on one core, on all of `cores`, and on both siblings; wake-ups at every rate."""
    first = cores[0]
    widths = [(first[:1], False)]
    if len(cores) > 1:
        widths.append((tuple(sorted(core[0] for core in cores)), False))
    if len(first) > 1:
        widths.append((first, True))
    loads = [Step(kernel, cpus, smt, LOAD_S) for cpus, smt in widths for kernel in KERNELS]
    package = {cpu.cpu: cpu.package for cpu in info.cpus}
    near = [core for core in cores[1:] if package[core[0]] == package[first[0]]]
    for rate in (rate for rate in WAKEUP_RATES if rate >= _LEAST_BESIDE):
        loads.append(Step(f"wakeups_{rate}", first[:1], False, LOAD_S))
        if near:
            loads.append(Step(f"wakeups_{rate}_beside", first[:1], False, LOAD_S, near[0][:1]))
    return loads
