# SPDX-License-Identifier: Apache-2.0
"""The phases of a calibration on a machine that is in use: short, few cores, in random order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from random import Random

from qjoule.errors import QjouleError
from qjoule.machine.cpu import CpuInfo
from qjoule.machine.steps import IDLE, KERNELS, WAKEUP_RATES, Step, cores_by_package

LOAD_S, REST_S = 0.4, 0.3
SETTLE_S = 0.08  #: for a core's clock; a fan's answer comes later than the phase ends
_PAIR_S = LOAD_S + REST_S + 2 * SETTLE_S
#: Never load more than this share of the cores that are idle.
_SHARE = 0.5
#: A calibration of fewer phases than this share of one round tells too little.
ENOUGH = 0.5


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
    for rate in WAKEUP_RATES:
        loads.append(Step(f"wakeups_{rate}", first[:1], False, LOAD_S))
        if near:
            loads.append(Step(f"wakeups_{rate}_beside", first[:1], False, LOAD_S, near[0][:1]))
    return loads
