# SPDX-License-Identifier: Apache-2.0
"""Turns slices of CPU time into the segments a tracer records, including lost records.

Hardware counters (cycles, instructions, LLC misses) are multiplexed on some machines. With fewer
counters than events the kernel rotates them, every millisecond by default. It then delivers counts
scaled by enabled over running time, which are exact only for work that does not change
(perf_event_open(2); Mathur and Cook, "Improved estimation for software multiplexing of performance
counters", MASCOTS 2005).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.bench.accuracy.physics import COUNTS, Simulation, Stretches
from studies.bench.accuracy.rapl import Meter, read_meter
from studies.bench.accuracy.recording import F64, I64, Group, Recording, Truth

from qjoule.model.arrays import COUNTERS, LostTime, Machine, Segments
from qjoule.model.energy import Bool

ROTATION_NS = 1_000_000


@dataclass(frozen=True)
class Pmu:
    """`counted` is the share of time in which the events are on a counter: 1 if not multiplexed.

    `error` is the relative error of a read. `unsteady` is how much events per nanosecond vary
    between the counted and the uncounted parts of a segment.
    """

    counted: float = 1.0
    error: float = 2e-4
    unsteady: float = 0.1


def read_pmu(
    random: np.random.Generator, pmu: Pmu, cut: Segments, amounts: dict[str, F64]
) -> Segments:
    """Adds to `cut` the counters for `amounts` and how they were scaled."""
    n = len(cut.cpu)
    true = np.stack([amounts[name] for name in COUNTS], axis=1)
    counts = true * (1 + pmu.error * random.normal(0, 1, (n, COUNTERS)))
    valid = np.ones((n, COUNTERS), bool)
    scaled = None
    if pmu.counted < 1:
        share = _running(random, pmu.counted, cut)
        off = np.sqrt(1 - share)[:, None] * pmu.unsteady
        counts *= np.exp(off * random.normal(0, 1, (n, COUNTERS)))
        # A segment that fell between two turns of the counters has no count to scale.
        never = share <= 0
        valid[never], counts[never] = _none(never), 0
        scaled = share.astype(np.float32)
    delivered = np.maximum(np.rint(counts), 0).astype(np.uint64)
    return Segments(cut.t0_ns, cut.t1_ns, cut.cpu, cut.group, delivered, valid, scaled)


def _none(rows: Bool) -> Bool:
    return np.zeros((int(rows.sum()), COUNTERS), bool)


def _running(random: np.random.Generator, counted: float, cut: Segments) -> F64:
    """Share of each segment in which its CPU's events were counted.

    Three rotations make a turn. On every CPU the events are counted in the first part of a turn.
    """
    turn_ns = 3 * ROTATION_NS
    on_ns = counted * turn_ns
    phase = random.uniform(0, turn_ns, int(cut.cpu.max(initial=0)) + 1)[cut.cpu]
    begin, end = cut.t0_ns + phase, cut.t1_ns + phase
    running = _counted_until(end, turn_ns, on_ns) - _counted_until(begin, turn_ns, on_ns)
    share: F64 = np.clip(running / (cut.t1_ns - cut.t0_ns), 0, 1)
    return share


def _counted_until(t_ns: F64 | I64, turn_ns: float, on_ns: float) -> F64:
    """Counted time from 0 to each time."""
    turns = np.floor(t_ns / turn_ns)
    until: F64 = turns * on_ns + np.minimum(t_ns - turns * turn_ns, on_ns)
    return until


#: Records lost together when a buffer is full.
BURST = 20


@dataclass(frozen=True)
class Tracer:
    """`tick_ns`: slices are cut at the ticks of their CPU. `lost` is the share of records lost.

    `pmu` None: a machine without hardware counters, like most virtual machines.
    """

    tick_ns: int
    pmu: Pmu | None
    lost: float = 0.0


@dataclass(frozen=True)
class Work:
    """Slices and their owners: `group` and `query` (n,), -1 if it ran for no query."""

    stretches: Stretches
    group: I64
    query: I64
    groups: tuple[Group, ...]


def draw_tracer(random: np.random.Generator, counters: bool = True, lost: float = 0.0) -> Tracer:
    """Ticks at 250 to 100 Hz."""
    tick_ns = int(random.choice([4_000_000, 10_000_000]))
    return Tracer(tick_ns, Pmu(error=random.uniform(1e-4, 1e-3)) if counters else None, lost)


def record(
    random: np.random.Generator,
    setup: tuple[Machine, Meter, Tracer],
    simulation: Simulation,
    work: Work,
    span_ns: tuple[int, int],
) -> Recording:
    """The recording that `setup` makes of a simulated run."""
    machine, meter, tracer = setup
    parent, t0_ns, t1_ns = _cut(random, tracer.tick_ns, work.stretches)
    lost_times, kept_rows = _lose(random, tracer.lost, work.stretches.cpu[parent], (t0_ns, t1_ns))
    order = kept_rows[np.argsort(t0_ns[kept_rows], kind="stable")]
    parent, t0_ns, t1_ns = parent[order], t0_ns[order], t1_ns[order]
    cpu = work.stretches.cpu[parent].astype(np.uint16)
    segments = Segments(t0_ns, t1_ns, cpu, work.group[parent])
    if tracer.pmu is not None:
        amounts = simulation.amounts(parent, t0_ns, t1_ns, COUNTS)
        segments = read_pmu(random, tracer.pmu, segments, amounts)
    series, readings = read_meter(random, meter, simulation.power, span_ns)
    return Recording(
        machine=machine,
        series=series,
        readings=readings,
        begin_ns=span_ns[0],
        end_ns=span_ns[1],
        segments=segments,
        query=work.query[parent],
        groups=work.groups,
        lost=lost_times,
        period_ns=meter.period_ns,
    )


def truth(simulation: Simulation, work: Work, domains: tuple[str, ...]) -> Truth:
    """What each owner caused, in the domains for which the machine has counters."""
    caused = simulation.whole(domains)
    queries = int(work.query.max(initial=-1)) + 1
    of_query = work.query >= 0
    query_group = np.full(queries, -1, np.int64)
    query_group[work.query[of_query]] = work.group[of_query]
    group_nj: dict[str, F64] = {}
    query_nj: dict[str, F64] = {}
    idle_nj: dict[str, float] = {}
    total_nj: dict[str, float] = {}
    idle_w: dict[tuple[int, str], float] = {}
    for domain in domains:
        of_group = np.bincount(work.group, caused[domain], len(work.groups))
        group_nj[domain] = of_group.astype(np.float64)
        caused_nj = np.bincount(work.query[of_query], caused[domain][of_query], queries)
        query_nj[domain] = caused_nj.astype(np.float64)
        idle_nj[domain] = sum(power.idle_nj[domain] for power in simulation.power)
        total_nj[domain] = float(sum(power.energy_nj[domain][-1] for power in simulation.power))
        for package, power in enumerate(simulation.power):
            span_ns = int(power.edges_ns[-1] - power.edges_ns[0])
            idle_w[package, domain] = power.idle_nj[domain] / span_ns
    return Truth(group_nj, query_nj, query_group, idle_nj, total_nj, idle_w)


def _cut(random: np.random.Generator, tick_ns: int, stretches: Stretches) -> tuple[I64, I64, I64]:
    """Slice, begin and end of every part between two ticks of its CPU."""
    phase = random.integers(0, tick_ns, int(stretches.cpu.max(initial=0)) + 1)[stretches.cpu]
    first = (stretches.t0_ns + phase) // tick_ns
    ticks = (stretches.t1_ns - 1 + phase) // tick_ns - first
    parent = np.repeat(np.arange(len(ticks)), ticks + 1)
    offset = np.cumsum(ticks + 1) - (ticks + 1)
    number = np.arange(len(parent)) - offset[parent]
    edge = (first[parent] + number) * tick_ns - phase[parent]
    t0_ns = np.maximum(edge, stretches.t0_ns[parent])
    t1_ns = np.minimum(edge + tick_ns, stretches.t1_ns[parent])
    return parent, t0_ns, t1_ns


def _lose(
    random: np.random.Generator, share: float, cpu: I64, times: tuple[I64, I64]
) -> tuple[tuple[LostTime, ...], I64]:
    """Loses records in bursts. The lost CPU time is reported once the buffer has room again."""
    n = len(cpu)
    if share <= 0:
        return (), np.arange(n)
    order = np.lexsort((times[0], cpu))
    starts = random.integers(0, n, max(1, round(n * share / BURST)))
    change = np.zeros(n + BURST + 1, np.int64)
    np.add.at(change, starts, 1)
    np.add.at(change, starts + BURST, -1)
    is_lost = np.cumsum(change)[:n] > 0
    lost_times = []
    for number in np.unique(cpu[order[is_lost]]):
        of_cpu = order[is_lost & (cpu[order] == number)]
        # A loss is reported with the CPU's next full batch, not record by record.
        ends = np.flatnonzero(np.diff(times[0][of_cpu], append=np.iinfo(np.int64).max) > 5_000_000)
        run = np.cumsum(times[1][of_cpu] - times[0][of_cpu])
        lost_times.append(LostTime(int(number), times[1][of_cpu][ends], run[ends]))
    return tuple(lost_times), order[~is_lost]
