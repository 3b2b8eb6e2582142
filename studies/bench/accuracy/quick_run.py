# SPDX-License-Identifier: Apache-2.0
"""Simulates `qjoule calibrate --quick`: short loads in random order beside a running load.

The foreign load is one of `mixes`, which the fit sees only as foreign groups.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from studies.bench.accuracy import mixes
from studies.bench.accuracy.activity import KERNELS, Activity, draw_kernel
from studies.bench.accuracy.calibration_run import LOAD, without
from studies.bench.accuracy.machine import Topology, draw_climate, wandering
from studies.bench.accuracy.physics import Stretches, simulate
from studies.bench.accuracy.recording import I64, Phase, Recording
from studies.bench.accuracy.rig import Rig
from studies.bench.accuracy.tracer import Work, record
from studies.bench.accuracy.workload import run

from qjoule.machine.facts import Cpu, CpuInfo
from qjoule.machine.steps import (
    BESIDE,
    QUICK_SETTLE_S,
    Step,
    Use,
    loaded_cores,
    plan_quick,
    wakeup_rate,
)
from qjoule.model.energy import Bool

WORK_NS = 20_000  #: of each wake-up


def cpu_info(topology: Topology) -> CpuInfo:
    """The processor of a simulated machine."""
    per = topology.cores_per_package
    cpus = tuple(
        Cpu(cpu, core // per, core % per, tuple(range(core, topology.cpus, topology.cores)))
        for cpu in range(topology.cpus)
        for core in (cpu % topology.cores,)
    )
    return CpuInfo("Simulated", 0, 0, 0, "simulated", False, cpus)


def quick_calibrate(
    randoms: tuple[np.random.Generator, np.random.Generator],
    rig: Rig,
    begin_ns: int,
    *,
    hidden: float,
    foreign: float = 0.3,
    seconds: float = 60.0,
) -> tuple[Recording, tuple[Phase, ...]]:
    """A quick calibration of a machine while other programs keep the share `foreign` of it busy.

    In the recording, `own_groups` are its load.
    """
    random, extra = randoms
    machine, effects = rig.machine, rig.effects
    topology, info = machine.topology, cpu_info(machine.topology)
    use = Use({cpu.cpu: foreign for cpu in info.cpus})
    order = Random(int(random.integers(2**31)))
    steps = plan_quick(info, loaded_cores(info, use), seconds, order)
    phases, t_ns = [], begin_ns
    for step in steps:
        t0_ns = t_ns + round(QUICK_SETTLE_S * 1e9)
        t_ns = t0_ns + round(step.seconds * 1e9)
        phases.append(Phase(step.kernel, t0_ns, t_ns, step.threads, step.smt))
    span_ns = (begin_ns, t_ns + 10_000_000)
    kernels = [effects.dressed(extra, draw_kernel(random, name, hidden)) for name in KERNELS]
    sources = mixes.server(random, topology.cpus, hidden, foreign)
    sources = [
        replace(source, activity=effects.dressed(extra, source.activity)) for source in sources
    ]
    busy = run(random, sources, topology.cpus, span_ns, 0.03)
    planned = list(zip(steps, phases, strict=True))
    calibration_load = without(_load(random, planned, kernels), busy.stretches, topology.cpus)
    work = _joined(busy, calibration_load)
    climate = draw_climate(random, machine, span_ns, rig.governor)
    if effects.wander:
        climate = wandering(extra, climate, effects.wander)
    simulation = simulate(machine, work.stretches, climate, span_ns, effects)
    observed_by = (topology.machine(), rig.meter, rig.tracer)
    return record(random, observed_by, simulation, work, span_ns), tuple(phases)


def own_groups(recording: Recording) -> Bool:
    """(groups,) which groups are the load of the calibration."""
    return np.array([group == LOAD for group in recording.groups], bool)


def _load(
    random: np.random.Generator, planned: list[tuple[Step, Phase]], kernels: list[Activity]
) -> Stretches:
    """The loads on their CPUs, as if nothing else ran there."""
    names = list(KERNELS)
    rows: list[tuple[int, int, int, int]] = []
    for step, phase in planned:
        end_ns = phase.t1_ns + int(random.integers(0, 3_000_000))
        rate = wakeup_rate(step.kernel)
        for cpu in step.cpus:
            if rate:
                rows += [(*wake, cpu, names.index(BESIDE)) for wake in _wakes(random, phase, rate)]
            elif step.kernel in names:
                rows.append((phase.t0_ns - 30_000_000, end_ns, cpu, names.index(step.kernel)))
        rows += [(phase.t0_ns, end_ns, cpu, names.index(BESIDE)) for cpu in step.beside]
    t0, t1, cpu, kernel = np.array(rows, np.int64).T
    return Stretches(t0, t1, cpu, Activity.join(kernels).take(kernel))


def _wakes(random: np.random.Generator, phase: Phase, rate: int) -> list[tuple[int, int]]:
    """Times of a thread that wakes `rate` times per second with jitter."""
    gaps = random.uniform(0.5, 1.5, round((phase.t1_ns - phase.t0_ns) * 1e-9 * rate)) * 1e9 / rate
    begin: I64 = phase.t0_ns + np.cumsum(np.maximum(gaps, WORK_NS + 2_000)).astype(np.int64)
    begin = begin[begin + WORK_NS < phase.t1_ns]
    return [(begin_ns, begin_ns + WORK_NS) for begin_ns in begin.tolist()]


def _joined(busy: Work, load: Stretches) -> Work:
    sources = (busy.stretches, load)
    stretches = Stretches(
        np.concatenate([stretches.t0_ns for stretches in sources]),
        np.concatenate([stretches.t1_ns for stretches in sources]),
        np.concatenate([stretches.cpu for stretches in sources]),
        Activity.join([stretches.activity for stretches in sources]),
    )
    group = np.concatenate([busy.group, np.full(len(load.cpu), len(busy.groups))])
    return replace(
        busy,
        stretches=stretches,
        group=group,
        query=np.full(len(group), -1),
        groups=(*busy.groups, LOAD),
    )
