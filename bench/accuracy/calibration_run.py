# SPDX-License-Identifier: Apache-2.0
"""Simulates a calibration run: load kernels on a simulated machine, as `qjoule calibrate` runs
them.
"""

from __future__ import annotations

import numpy as np
from bench.accuracy.activity import KERNELS, Activity, draw_activity, draw_kernel
from bench.accuracy.machine import PhysicalMachine, Topology, draw_climate
from bench.accuracy.physics import Stretches, simulate
from bench.accuracy.rapl import Meter
from bench.accuracy.recording import Group, Phase, Recording
from bench.accuracy.tracer import Tracer, Work, record
from bench.accuracy.workload import Source, run

PHASE_NS = 1_500_000_000
IDLE_NS = 4_000_000_000
PAUSE_NS = 60_000_000  #: between phases, while kernels start and stop
LOAD = Group("load", "other_processes")
QUIET = (Group("daemons", "other_processes"), Group("kworker", "kernel"), Group("tracer", "tracer"))


def phases(topology: Topology, begin_ns: int) -> tuple[Phase, ...]:
    """Idle, every kernel on one core, half of them, all, and on both siblings; idle again."""
    sizes = sorted({1, max(1, topology.cores // 2), topology.cores})
    runs = [(threads, False) for threads in sizes]
    if topology.threads_per_core > 1:
        runs += [(2, True), (topology.cpus, True)]
    wanted = [("idle", 0, False, IDLE_NS)]
    wanted += [(name, threads, smt, PHASE_NS) for name in KERNELS for threads, smt in runs]
    wanted.append(("idle", 0, False, IDLE_NS))
    made, t_ns = [], begin_ns + PAUSE_NS
    for name, threads, smt, length_ns in wanted:
        made.append(Phase(name, t_ns, t_ns + length_ns, threads, smt))
        t_ns += length_ns + PAUSE_NS
    return tuple(made)


def phase_cpus(topology: Topology, phase: Phase) -> list[int]:
    """CPUs to which a phase's threads are pinned: spread over packages; siblings only if `smt`."""
    per = topology.cores_per_package
    cores = [p * per + c for c in range(per) for p in range(topology.packages)]
    if not phase.smt:
        return cores[: phase.threads]
    return [c + t * topology.cores for c in cores[: phase.threads // 2] for t in range(2)]


def calibrate(
    random: np.random.Generator,
    machine: PhysicalMachine,
    setup: tuple[Meter, Tracer],
    begin_ns: int,
    *,
    hidden: float,
    governor: str = "turbo",
) -> tuple[Recording, tuple[Phase, ...]]:
    """What a calibration run records. `hidden` bounds the energy effects that counters do
    not see.
    """
    topology = machine.topology
    planned = phases(topology, begin_ns)
    span_ns = (begin_ns, planned[-1].t1_ns + PAUSE_NS)
    kernels = {name: draw_kernel(random, name, hidden) for name in KERNELS}
    work = _work(random, topology, planned, kernels, span_ns)
    climate = draw_climate(random, machine, span_ns, governor)
    simulation = simulate(machine, work.stretches, climate, span_ns)
    what = (topology.machine(), *setup)
    return record(random, what, simulation, work, span_ns), planned


def _work(
    random: np.random.Generator,
    topology: Topology,
    planned: tuple[Phase, ...],
    kernels: dict[str, Activity],
    span_ns: tuple[int, int],
) -> Work:
    """The kernels' slices, interleaved with short slices of other threads of a quiet system."""
    quiet = run(random, _quiet(random, topology), topology.cpus, span_ns, 0.05)
    names = list(kernels)
    rows = [
        (phase.t0_ns, phase.t1_ns, cpu, names.index(phase.name))
        for phase in planned
        if phase.threads
        for cpu in phase_cpus(topology, phase)
    ]
    t0, t1, cpu, kernel = np.array(rows, np.int64).T
    # Threads of a phase do not start and stop at the same moment.
    t0, t1 = (
        t0 + random.integers(-3_000_000, 0, len(t0)),
        t1 + random.integers(0, 3_000_000, len(t1)),
    )
    table = Activity.join([kernels[name] for name in names])
    load = _between(Stretches(t0, t1, cpu, table.take(kernel)), quiet.stretches, topology.cpus)
    both = (quiet.stretches, load)
    stretches = Stretches(
        np.concatenate([s.t0_ns for s in both]),
        np.concatenate([s.t1_ns for s in both]),
        np.concatenate([s.cpu for s in both]),
        Activity.join([s.activity for s in both]),
    )
    group = np.concatenate([quiet.group, np.full(len(load.cpu), len(QUIET))])
    return Work(stretches, group, np.full(len(group), -1), (*QUIET, LOAD))


def _quiet(random: np.random.Generator, topology: Topology) -> list[Source]:
    bound = random.uniform(0.2, 0.6, 3)
    activity = draw_activity(random, bound, 0.05)
    one = [activity.take(slice(i, i + 1)) for i in range(3)]
    share = topology.cpus * random.uniform(0.0005, 0.003)
    return [
        Source(QUIET[0], one[0], share, 150_000),
        Source(QUIET[1], one[1], share / 6, 30_000),
        Source(QUIET[2], one[2], 0.002, 60_000, pace="clock"),
    ]


def _between(load: Stretches, quiet: Stretches, cpus: int) -> Stretches:
    """`load` without the times in which another thread had its CPU."""
    t0, t1, row = [], [], []
    for cpu in range(cpus):
        mine = np.flatnonzero(quiet.cpu == cpu)
        mine = mine[np.argsort(quiet.t0_ns[mine])]
        free0 = np.append(np.iinfo(np.int64).min, quiet.t1_ns[mine])
        free1 = np.append(quiet.t0_ns[mine], np.iinfo(np.int64).max)
        for index in np.flatnonzero(load.cpu == cpu):
            begin = np.maximum(free0, load.t0_ns[index])
            end = np.minimum(free1, load.t1_ns[index])
            some = begin < end
            t0.append(begin[some])
            t1.append(end[some])
            row.append(np.full(int(some.sum()), index))
    rows = np.concatenate(row)
    return Stretches(
        np.concatenate(t0), np.concatenate(t1), load.cpu[rows], load.activity.take(rows)
    )
