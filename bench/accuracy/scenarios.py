# SPDX-License-Identifier: Apache-2.0
"""Scenarios: what is drawn by seed, and the resulting case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np
from bench.accuracy import mixes
from bench.accuracy.activity import draw_activity
from bench.accuracy.calibration_run import calibrate
from bench.accuracy.machine import Topology, another_day, draw_climate, draw_machine
from bench.accuracy.physics import Stretches, simulate
from bench.accuracy.rapl import draw_meter
from bench.accuracy.recording import I64, Case, Group
from bench.accuracy.tracer import Tracer, Work, draw_tracer, record, truth
from bench.accuracy.workload import Source, run

from qjoule.model.arrays import Machine, Segments

#: A run lasts until it has about this many slices, between these bounds.
STRETCHES, SHORTEST_S, LONGEST_S = 50_000, 12, 30


@dataclass(frozen=True)
class Plan:
    """One draw of a scenario. `hidden` bounds |intensity - 1| of every behaviour."""

    topology: Topology
    sources: list[Source]
    hidden: float
    governor: str = "turbo"
    counters: bool = True
    counted: float = 1.0
    dram: bool = True
    lost: float = 0.0
    variation: float = field(default=0.03)


ScenarioFactory = Callable[[np.random.Generator], Plan]


def _topology(random: np.random.Generator, packages: int = 1, smt: bool | None = None) -> Topology:
    """4 to 16 CPUs; SMT is drawn unless `smt` is given."""
    threads = 2 if (bool(random.integers(2)) if smt is None else smt) else 1
    cores = int(random.integers(4, 9)) if packages == 1 else int(random.integers(2, 5))
    return Topology(packages, cores, threads)


def _hidden(random: np.random.Generator) -> float:
    return float(random.uniform(0.0, 0.12))


def _server(random: np.random.Generator) -> Plan:
    """A common server at 15 to 55 % load."""
    topology, hidden = _topology(random), _hidden(random)
    load = random.uniform(0.15, 0.55)
    return Plan(topology, mixes.server(random, topology.cpus, hidden, load), hidden)


def _single_shape(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), _hidden(random)
    cpus = topology.cpus
    made = mixes.shapes(random, 1, hidden, cpus * random.uniform(0.15, 0.6), (2e5, 2e7))
    made += mixes.background(random, hidden, 0.03 * cpus)
    return Plan(topology, made + mixes.rest(random, hidden, 0.05 * cpus), hidden)


def _equal_time(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), _hidden(random)
    load, call_ns = topology.cpus * random.uniform(0.1, 0.25), random.uniform(3e5, 1e7)
    call_ns = max(call_ns, load / mixes.RUNS_PER_S * 4e9)
    sort, probe = (
        mixes.shape(random, name, hidden, load=load, call_ns=call_ns, bound=0)
        for name in ("sort", "probe")
    )
    slow = draw_activity(random, random.uniform(0.85, 1.0, 1), hidden, overlap=(1.0, 2.5))
    probe = replace(probe, activity=slow)
    made = [sort, probe, *mixes.background(random, hidden, 0.02 * topology.cpus)]
    return Plan(topology, made + mixes.rest(random, hidden, 0.03 * topology.cpus), hidden)


def _short_bursts(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), _hidden(random)
    return Plan(topology, mixes.short_bursts(random, topology.cpus, hidden), hidden)


def _analytic(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), _hidden(random)
    return Plan(topology, mixes.analytic_and_points(random, topology, hidden), hidden)


def _neighbours(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), _hidden(random)
    return Plan(topology, mixes.neighbours(random, topology.cpus, hidden), hidden)


def _mostly_idle(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), _hidden(random)
    load = random.uniform(0.02, 0.06)
    return Plan(topology, mixes.server(random, topology.cpus, hidden, load), hidden)


def _siblings(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random, smt=True), _hidden(random)
    return Plan(topology, mixes.siblings(random, topology, hidden), hidden)


def _frequency_steps(random: np.random.Generator) -> Plan:
    return replace(_server(random), governor="steps")


def _two_packages(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random, packages=2), _hidden(random)
    return Plan(topology, mixes.two_packages(random, topology, hidden), hidden)


def _no_counters(random: np.random.Generator) -> Plan:
    return replace(_server(random), counters=False)


def _no_dram(random: np.random.Generator) -> Plan:
    return replace(_server(random), dram=False)


def _losses(random: np.random.Generator) -> Plan:
    share = float(np.exp(random.uniform(np.log(0.001), np.log(0.05))))
    return replace(_server(random), lost=share)


def _multiplexed(random: np.random.Generator) -> Plan:
    return replace(_server(random), counted=float(random.uniform(0.3, 0.9)))


def _collinear(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), _hidden(random)
    load = random.uniform(0.15, 0.4)
    return Plan(topology, mixes.pair(random, topology.cpus, hidden, load), hidden)


SCENARIOS: dict[str, ScenarioFactory] = {
    "single_shape": _single_shape,
    "equal_time_unequal_power": _equal_time,
    "short_bursts": _short_bursts,
    "analytic_and_points": _analytic,
    "noisy_neighbours": _neighbours,
    "mostly_idle": _mostly_idle,
    "smt_both_busy": _siblings,
    "frequency_steps": _frequency_steps,
    "two_packages": _two_packages,
    "no_counters": _no_counters,
    "no_dram": _no_dram,
    "losses": _losses,
    "multiplexed": _multiplexed,
    "collinear": _collinear,
}


def make_case(scenario: str, seed: int) -> Case:
    """One drawing: the same `scenario` and `seed` give the same bytes.

    Raises:
        KeyError: there is no such scenario.
    """
    factory = SCENARIOS[scenario]
    name = crc32(scenario.encode())
    draw, rest = (np.random.default_rng(s) for s in np.random.SeedSequence([name, seed]).spawn(2))
    plan = factory(draw)
    stretches_per_s = sum(source.stretches_per_s for source in plan.sources)
    length_s = float(np.clip(STRETCHES / stretches_per_s, SHORTEST_S, LONGEST_S))
    begin_ns = int(draw.integers(10**12, 10**13))
    span_ns = (begin_ns, begin_ns + int(length_s * 1e9))
    work = run(draw, plan.sources, plan.topology.cpus, span_ns, plan.variation)
    return _case(scenario, seed, rest, (plan, plan.topology.machine(), work, span_ns))


def simulate_on(
    machine: Machine,
    segments: Segments,
    groups: tuple[Group, ...],
    query: I64,
    *,
    span_ns: tuple[int, int],
    seed: int,
    scenario: str = "recorded",
) -> Case:
    """A drawn machine under a schedule that was recorded elsewhere.

    `segments` (n,) lie inside `span_ns` and do not overlap on a CPU; `query` (n,), -1 none. Every
    group gets a behaviour; every query and segment varies around it. The CPUs are renumbered from 0
    by package, core and id. Every package gets as many cores, and every core as many threads, as
    the largest has.
    """
    draw, rest = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    topology, cpu_of = _like(machine)
    hidden = _hidden(draw)
    bound = (draw.permutation(len(groups)) + draw.uniform(0, 1, len(groups))) / len(groups)
    calls = draw_activity(draw, bound, hidden)
    of_query, which = np.unique(np.stack([segments.group, query]), axis=1, return_inverse=True)
    called = calls.take(of_query[0]).varied(draw, 0.03)
    activity = called.take(which.reshape(-1)).varied(draw, 0.03)
    cpu = cpu_of[machine.slots(segments.cpu)]
    stretches = Stretches(segments.t0_ns, segments.t1_ns, cpu, activity)
    work = Work(stretches, segments.group, query, groups)
    plan = Plan(topology, [], hidden)
    return _case(scenario, seed, rest, (plan, topology.machine(), work, span_ns))


def _like(machine: Machine) -> tuple[Topology, I64]:
    """A regular topology large enough for `machine`, and its CPU for each CPU slot."""
    package, core = machine.package_slots(), machine.core_slots()
    cpu = np.zeros(len(core), np.int64)
    members = [np.unique(core[package == p]) for p in range(len(machine.packages))]
    per_package = max(len(cores) for cores in members)
    threads = int(np.bincount(core).max())
    total = per_package * len(members)
    for p, cores in enumerate(members):
        for c, one in enumerate(cores):
            mine = np.flatnonzero(core == one)
            cpu[mine] = p * per_package + c + np.arange(len(mine)) * total
    return Topology(len(members), per_package, threads), cpu


def _case(
    scenario: str,
    seed: int,
    random: np.random.Generator,
    parts: tuple[Plan, Machine, Work, tuple[int, int]],
) -> Case:
    """The run and its calibration on a machine drawn for the plan's topology."""
    plan, machine, work, span_ns = parts
    physical = draw_machine(random, plan.topology)
    meter = draw_meter(random, plan.dram)
    tracer = _tracer(random, plan)
    climate = draw_climate(random, physical, span_ns, plan.governor)
    simulation = simulate(physical, work.stretches, climate, span_ns)
    recording = record(random, (machine, meter, tracer), simulation, work, span_ns)
    then = another_day(random, physical)
    calibration, phases = calibrate(
        random,
        then,
        (meter, replace(tracer, lost=0.0)),
        span_ns[0] - 3_600_000_000_000 // 4,
        hidden=0.12,
        governor=plan.governor,
    )
    facts = truth(simulation, work, meter.domains)
    return Case(scenario, seed, recording, facts, calibration, phases)


def _tracer(random: np.random.Generator, plan: Plan) -> Tracer:
    """The plan's tracer; its counters are multiplexed if the plan requires that."""
    tracer = draw_tracer(random, plan.counters, plan.lost)
    if tracer.pmu is None:
        return tracer
    return replace(tracer, pmu=replace(tracer.pmu, counted=plan.counted))
