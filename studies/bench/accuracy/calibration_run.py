# SPDX-License-Identifier: Apache-2.0
"""Simulates a calibration run: load kernels on a simulated machine, as `qjoule calibrate` runs
them.
"""

from __future__ import annotations

import numpy as np
from studies.bench.accuracy.activity import KERNELS, Activity, draw_activity, draw_kernel, spread
from studies.bench.accuracy.machine import Topology, draw_climate, wandering
from studies.bench.accuracy.physics import Stretches, simulate
from studies.bench.accuracy.recording import I64, Group, Phase, Recording
from studies.bench.accuracy.rig import Rig
from studies.bench.accuracy.tracer import Work, record
from studies.bench.accuracy.workload import Source, run

PHASE_NS = 1_500_000_000
IDLE_NS = 4_000_000_000
PAUSE_NS = 60_000_000  #: between phases, while kernels start and stop
#: Phases in which one thread wakes up this many times per second; "_beside", not in the first two:
#: another core computes.
WAKEUPS_PER_S = (20, 50, 100, 500, 1_000, 2_000, 5_000, 10_000)
LEAST_BESIDE_PER_S = 100
WAKEUPS_NS = 1_000_000_000
AWAKE_NS = 20_000  #: what it computes each time
BESIDE = "_beside"
_KERNEL = "integer"  #: what computes in those phases
LOAD = Group("load", "other_processes")
QUIET = (Group("daemons", "other_processes"), Group("kworker", "kernel"), Group("tracer", "tracer"))


def phases(topology: Topology, begin_ns: int) -> tuple[Phase, ...]:
    """Idle, every kernel on one core, half of them, all, and on both siblings; wake-ups; idle."""
    sizes = sorted({1, max(1, topology.cores // 2), topology.cores})
    runs = [(threads, False) for threads in sizes]
    if topology.threads_per_core > 1:
        runs += [(2, True), (topology.cpus, True)]
    runs_in_order = [("idle", 0, False, IDLE_NS)]
    runs_in_order += [(name, threads, smt, PHASE_NS) for name in KERNELS for threads, smt in runs]
    for rate in WAKEUPS_PER_S:
        runs_in_order.append((f"wakeups_{rate}", 1, False, WAKEUPS_NS))
        if topology.cores_per_package > 1 and rate >= LEAST_BESIDE_PER_S:
            runs_in_order.append((f"wakeups_{rate}{BESIDE}", 2, False, WAKEUPS_NS))
    runs_in_order.append(("idle", 0, False, IDLE_NS))
    planned, t_ns = [], begin_ns + PAUSE_NS
    for name, threads, smt, length_ns in runs_in_order:
        planned.append(Phase(name, t_ns, t_ns + length_ns, threads, smt))
        t_ns += length_ns + PAUSE_NS
    return tuple(planned)


def phase_cpus(topology: Topology, phase: Phase) -> list[int]:
    """CPUs to which a phase's threads are pinned: spread over packages; siblings only if `smt`.

    The two of a phase with wake-ups are on cores of one package.
    """
    per = topology.cores_per_package
    if wakeup_rate(phase.name):
        return list(range(phase.threads))
    cores = [p * per + c for c in range(per) for p in range(topology.packages)]
    if not phase.smt:
        return cores[: phase.threads]
    return [c + t * topology.cores for c in cores[: phase.threads // 2] for t in range(2)]


def wakeup_rate(name: str) -> int:
    """Wake-ups per second in a phase of this name, 0 in those of kernels."""
    parts = name.split("_")
    return int(parts[1]) if parts[0] == "wakeups" else 0


def calibrate(
    randoms: tuple[np.random.Generator, np.random.Generator],
    rig: Rig,
    begin_ns: int,
    *,
    hidden: float,
) -> tuple[Recording, tuple[Phase, ...]]:
    """What a calibration run records. `hidden` bounds the energy effects that counters do
    not see. The second generator draws what only machines with effects have.
    """
    random, extra = randoms
    machine, effects = rig.machine, rig.effects
    topology = machine.topology
    planned = phases(topology, begin_ns)
    span_ns = (begin_ns, planned[-1].t1_ns + PAUSE_NS)
    kernels = {name: draw_kernel(random, name, hidden) for name in KERNELS}
    kernels = {name: effects.dressed(extra, kernel) for name, kernel in kernels.items()}
    work = _work(random, topology, planned, kernels, span_ns)
    climate = draw_climate(random, machine, span_ns, rig.governor)
    if effects.wander:
        climate = wandering(extra, climate, effects.wander)
    simulation = simulate(machine, work.stretches, climate, span_ns, effects)
    observed_by = (topology.machine(), rig.meter, rig.tracer)
    return record(random, observed_by, simulation, work, span_ns), planned


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
    rows = []
    for phase in planned:
        cpus = phase_cpus(topology, phase)
        name = _KERNEL if wakeup_rate(phase.name) else phase.name
        # The first thread of a phase with wake-ups is the one that sleeps.
        steady = cpus[1:] if wakeup_rate(phase.name) else cpus
        rows += [(phase.t0_ns, phase.t1_ns, cpu, names.index(name)) for cpu in steady]
    t0, t1, cpu, kernel = np.array(rows, np.int64).T
    # Threads of a phase do not start and stop at the same moment.
    t0, t1 = (
        t0 + random.integers(-3_000_000, 0, len(t0)),
        t1 + random.integers(0, 3_000_000, len(t1)),
    )
    table = Activity.join([kernels[name] for name in names])
    waking = _waking(random, topology, planned)
    kernel = np.append(kernel, np.full(len(waking[0]), names.index(_KERNEL)))
    t0, t1, cpu = (np.append(a, b) for a, b in zip((t0, t1, cpu), waking, strict=True))
    load = without(Stretches(t0, t1, cpu, table.take(kernel)), quiet.stretches, topology.cpus)
    sources = (quiet.stretches, load)
    stretches = Stretches(
        np.concatenate([s.t0_ns for s in sources]),
        np.concatenate([s.t1_ns for s in sources]),
        np.concatenate([s.cpu for s in sources]),
        Activity.join([s.activity for s in sources]),
    )
    group = np.concatenate([quiet.group, np.full(len(load.cpu), len(QUIET))])
    return Work(stretches, group, np.full(len(group), -1), (*QUIET, LOAD))


def _waking(
    random: np.random.Generator, topology: Topology, planned: tuple[Phase, ...]
) -> tuple[I64, I64, I64]:
    """Begin, end and CPU of every slice of the threads that wake up, with jitter."""
    begins, ends, cpus = [], [], []
    for phase in planned:
        if not (rate := wakeup_rate(phase.name)):
            continue
        period_ns = 1e9 / rate
        count = int((phase.t1_ns - phase.t0_ns) / period_ns)
        at = (np.arange(count) + random.uniform(0.0, 0.5, count)) * period_ns
        begins.append(phase.t0_ns + at.astype(np.int64))
        ends.append(begins[-1] + (AWAKE_NS * random.uniform(0.8, 1.2, count)).astype(np.int64))
        cpus.append(np.full(count, phase_cpus(topology, phase)[0]))
    return np.concatenate(begins), np.concatenate(ends), np.concatenate(cpus)


def _quiet(random: np.random.Generator, topology: Topology) -> list[Source]:
    bound = random.uniform(0.2, 0.6, 3)
    activity = draw_activity(random, bound, 0.05)
    activities = [activity.take(slice(i, i + 1)) for i in range(3)]
    share = topology.cpus * random.uniform(0.0005, 0.003)
    return [
        Source(QUIET[0], activities[0], share, 150_000),
        Source(QUIET[1], activities[1], share / 6, 30_000),
        Source(QUIET[2], activities[2], 0.002, 60_000, pace="clock"),
    ]


def without(load: Stretches, quiet: Stretches, cpus: int) -> Stretches:
    """`load` without the times in which another thread had its CPU."""
    t0, t1, row = [], [], []
    for cpu in range(cpus):
        quiet_rows = np.flatnonzero(quiet.cpu == cpu)
        quiet_rows = quiet_rows[np.argsort(quiet.t0_ns[quiet_rows])]
        free0 = np.append(np.iinfo(np.int64).min, quiet.t1_ns[quiet_rows])
        free1 = np.append(quiet.t0_ns[quiet_rows], np.iinfo(np.int64).max)
        load_rows = np.flatnonzero(load.cpu == cpu)
        first = np.searchsorted(free1, load.t0_ns[load_rows], "right")
        last = np.searchsorted(free0, load.t1_ns[load_rows], "left")
        which, gap = spread(first, np.maximum(last, first))
        begin = np.maximum(free0[gap], load.t0_ns[load_rows[which]])
        end = np.minimum(free1[gap], load.t1_ns[load_rows[which]])
        some = begin < end
        t0.append(begin[some])
        t1.append(end[some])
        row.append(load_rows[which[some]])
    rows = np.concatenate(row)
    return Stretches(
        np.concatenate(t0), np.concatenate(t1), load.cpu[rows], load.activity.take(rows)
    )
