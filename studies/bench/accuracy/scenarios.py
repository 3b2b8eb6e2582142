# SPDX-License-Identifier: Apache-2.0
"""Makes cases: a machine, what runs on it, what is recorded of it, and the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

import numpy as np
import numpy.typing as npt
from studies.bench.accuracy.activity import draw_activity
from studies.bench.accuracy.calibration_run import calibrate
from studies.bench.accuracy.effects import SHALLOW, Effects
from studies.bench.accuracy.limits import Pulse
from studies.bench.accuracy.machine import (
    PhysicalMachine,
    Topology,
    another_day,
    draw_climate,
    draw_machine,
    wandering,
)
from studies.bench.accuracy.outcomes import (
    FAMILIES,
    FRIENDLY,
    WITH_SIBLINGS,
    WITH_TWO_PACKAGES,
    WITHOUT_SIBLINGS,
    split_name,
)
from studies.bench.accuracy.physics import Stretches, simulate
from studies.bench.accuracy.plans import (
    SCENARIOS,
    Plan,
    draw_hidden_bound,
    on_one_of_them,
    on_two_packages,
)
from studies.bench.accuracy.rapl import draw_meter
from studies.bench.accuracy.recording import I64, Case, Group, Phase, Recording, Truth
from studies.bench.accuracy.rig import Rig, idle_minute, small_cpus
from studies.bench.accuracy.tracer import Work, draw_tracer, record, truth
from studies.bench.accuracy.workload import Source, run

from qjoule.model.arrays import Machine, Segments

#: A run lasts until it has about this many slices, between these bounds.
STRETCHES, SHORTEST_S, LONGEST_S = 50_000, 12, 30
#: How long before a recording its machine was calibrated.
CALIBRATED_NS = 900_000_000_000
_OF_KIND = 0.4  #: of the cores of a kind that one source may use alone
#: CPUs that a statement in phase with a pulse keeps busy at most: a call is over before the next.
_MOST_IN_PHASE = 0.5
_HIDDEN = 0.12  #: bound of |intensity - 1| of the calibration's kernels


#: Runs a calibration on a machine, as `calibration_run.calibrate` does.
Calibrator = Callable[..., tuple[Recording, tuple[Phase, ...]]]


def make_case(name: str, seed: int, calibrator: Calibrator = calibrate) -> Case:
    """One drawing: the same `name` and `seed` give the same bytes.

    `name` is a scenario, or "family/scenario". The scenario and the seed give the same server and
    the same machine in every family, except in those that need sibling threads.

    Raises:
        KeyError: there is no such scenario or family.
    """
    family, scenario = split_name(name)
    factory = SCENARIOS[scenario]
    for attempt in range(1000):
        entropy = [crc32(scenario.encode()), seed, *([attempt] if attempt else [])]
        draw, rest = (np.random.default_rng(s) for s in np.random.SeedSequence(entropy).spawn(2))
        plan = factory(draw)
        if family in WITH_TWO_PACKAGES:
            if (halved := on_two_packages(plan.topology)) is None:
                continue
            plan = replace(plan, topology=halved)
        threads = plan.topology.threads_per_core
        if (
            threads == 1
            if family in WITHOUT_SIBLINGS
            else threads > 1 or family not in WITH_SIBLINGS
        ):
            break
    stretches_per_s = sum(source.stretches_per_s for source in plan.sources)
    length_s = float(np.clip(STRETCHES / stretches_per_s, SHORTEST_S, LONGEST_S))
    begin_ns = int(draw.integers(10**12, 10**13))
    span_ns = (begin_ns, begin_ns + int(length_s * 1e9))
    extra = extra_random(family, scenario, seed)
    physical = draw_machine(rest, plan.topology)
    effects = with_table(FAMILIES[family](extra, physical))
    plan = replace(plan, sources=dressed(extra, effects, plan.sources))
    if family in WITH_TWO_PACKAGES:
        sources = on_one_of_them(extra, plan.topology, plan.sources)
        plan = replace(plan, sources=sources)
    if effects.small is not None:
        plan = replace(plan, sources=placed(extra, small_cpus(plan.topology, effects.small), plan))
    if effects.pulse is not None:
        pulse, sources = beside_pulse(extra, effects.pulse, plan.sources, span_ns)
        effects, plan = replace(effects, pulse=pulse), replace(plan, sources=sources)
    work = run(draw, plan.sources, plan.topology.cpus, span_ns, plan.variation)
    rig = draw_rig(rest, plan, (physical, effects))
    names = (family, scenario, seed)
    case = _case(names, (rest, extra), rig, work, span_ns, calibrator=calibrator)
    return replace(case, idle=idle_minute(names, rig, plan.sources, begin_ns))


def with_table(effects: Effects) -> Effects:
    """The effects with the idle states that the kernel shows. Whoever has no tail has only a
    shallow state; physics that is kept from the developers shows no table."""
    if effects.idle_states or effects.hidden is not None:
        return effects
    return replace(effects, idle_states=SHALLOW)


def extra_random(family: str, *seed_words: str | int) -> np.random.Generator:
    """Draws what only this family has, so that the other draws are those of every family."""
    numbers = [
        crc32(word.encode()) if isinstance(word, str) else word for word in (family, *seed_words)
    ]
    return np.random.default_rng(np.random.SeedSequence([*numbers, 1]))


def dressed(random: np.random.Generator, effects: Effects, sources: list[Source]) -> list[Source]:
    """The sources with what the machine's effects make of each behaviour."""
    return [replace(s, activity=effects.dressed(random, s.activity)) for s in sources]


def placed(random: np.random.Generator, small: npt.NDArray[np.bool_], plan: Plan) -> list[Source]:
    """The sources, of which some run on cores of one kind alone, as a scheduler that knows the
    kinds has them: those that use at most `_OF_KIND` of these cores."""
    placed_sources = []
    for source in plan.sources:
        kind = int(random.choice(3, p=(0.4, 0.3, 0.3)))
        cpus = np.flatnonzero(small if kind == 1 else ~small)
        fits = kind > 0 and not source.cpus and source.load <= _OF_KIND * len(cpus)
        placed_sources.append(replace(source, cpus=tuple(cpus.tolist())) if fits else source)
    return placed_sources


def beside_pulse(
    random: np.random.Generator, pulse: Pulse, sources: list[Source], span_ns: tuple[int, int]
) -> tuple[Pulse, list[Source]]:
    """The pulse, and the sources of which one runs by its clock if it is `in_phase`."""
    if not pulse.in_phase:
        return pulse, sources
    chosen = int(random.choice([i for i, s in enumerate(sources) if s.group.kind == "queries"]))
    length_ns = span_ns[1] - span_ns[0]
    period_ns = length_ns / round(length_ns / pulse.period_ns)
    load = min(sources[chosen].load, _MOST_IN_PHASE)
    timed = replace(
        sources[chosen],
        pace="clock",
        workers=1,
        spread=0.2,
        load=load,
        # A little less, so that there is one call in each period.
        call_ns=load * period_ns / (1 + 1e-9),
    )
    begin_ns = span_ns[0] + int(period_ns * random.uniform(0.45, 0.5))
    pulse = replace(pulse, period_ns=int(period_ns), begin_ns=begin_ns)
    return pulse, [timed if i == chosen else s for i, s in enumerate(sources)]


def draw_rig(
    random: np.random.Generator, plan: Plan, machine: tuple[PhysicalMachine, Effects]
) -> Rig:
    """The meter and the tracer of a machine; counters are multiplexed if the plan requires that."""
    meter = draw_meter(random, plan.dram)
    tracer = draw_tracer(random, plan.counters, plan.lost)
    if tracer.pmu is not None:
        tracer = replace(tracer, pmu=replace(tracer.pmu, counted=plan.counted))
    return Rig(*machine, meter, tracer, plan.governor)


def recorded(
    randoms: tuple[np.random.Generator, np.random.Generator],
    rig: Rig,
    work: Work,
    span_ns: tuple[int, int],
) -> tuple[Recording, Truth]:
    """The recording of a run on a machine, and its truth."""
    random, extra = randoms
    climate = draw_climate(random, rig.machine, span_ns, rig.governor)
    if rig.effects.wander:
        climate = wandering(extra, climate, rig.effects.wander)
    simulation = simulate(rig.machine, work.stretches, climate, span_ns, rig.effects)
    observed_by = (rig.machine.topology.machine(), rig.meter, rig.tracer)
    recording = rig.shown(record(random, observed_by, simulation, work, span_ns))
    return recording, truth(simulation, work, rig.meter.domains)


def calibration_of(
    randoms: tuple[np.random.Generator, np.random.Generator],
    rig: Rig,
    begin_ns: int,
    calibrator: Calibrator = calibrate,
) -> tuple[Recording, tuple[Phase, ...]]:
    """A calibration run of the machine on another day, `CALIBRATED_NS` before `begin_ns`."""
    random, _ = randoms
    then = replace(
        rig,
        machine=another_day(random, rig.machine),
        tracer=replace(rig.tracer, lost=0.0),
    )
    recording, phases = calibrator(randoms, then, begin_ns - CALIBRATED_NS, hidden=_HIDDEN)
    return rig.shown(recording), phases


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
    hidden = draw_hidden_bound(draw)
    bound = (draw.permutation(len(groups)) + draw.uniform(0, 1, len(groups))) / len(groups)
    calls = draw_activity(draw, bound, hidden)
    of_query, which = np.unique(np.stack([segments.group, query]), axis=1, return_inverse=True)
    call_activity = calls.take(of_query[0]).varied(draw, 0.03)
    activity = call_activity.take(which.reshape(-1)).varied(draw, 0.03)
    cpu = cpu_of[machine.slots(segments.cpu)]
    stretches = Stretches(segments.t0_ns, segments.t1_ns, cpu, activity)
    work = Work(stretches, segments.group, query, groups)
    rig = draw_rig(rest, Plan(topology, [], hidden), (draw_machine(rest, topology), Effects()))
    extra = extra_random(FRIENDLY, scenario, seed)
    return _case((FRIENDLY, scenario, seed), (rest, extra), rig, work, span_ns)


def _like(machine: Machine) -> tuple[Topology, I64]:
    """A regular topology large enough for `machine`, and its CPU for each CPU slot."""
    package, core = machine.package_slots(), machine.core_slots()
    cpu = np.zeros(len(core), np.int64)
    members = [np.unique(core[package == p]) for p in range(len(machine.packages))]
    per_package = max(len(cores) for cores in members)
    threads = int(np.bincount(core).max())
    total = per_package * len(members)
    for p, cores in enumerate(members):
        for c, number in enumerate(cores):
            of_core = np.flatnonzero(core == number)
            cpu[of_core] = p * per_package + c + np.arange(len(of_core)) * total
    return Topology(len(members), per_package, threads), cpu


def _case(
    names: tuple[str, str, int],
    randoms: tuple[np.random.Generator, np.random.Generator],
    rig: Rig,
    work: Work,
    span_ns: tuple[int, int],
    *,
    calibrator: Calibrator = calibrate,
) -> Case:
    """The run and its calibration."""
    family, scenario, seed = names
    recording, facts = recorded(randoms, rig, work, span_ns)
    calibration, phases = calibration_of(randoms, rig, span_ns[0], calibrator)
    return Case(scenario, seed, recording, facts, calibration, phases, family)
