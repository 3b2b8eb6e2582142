# SPDX-License-Identifier: Apache-2.0
"""Several runs of one simulated machine on different days, attributed with a memory between them.

A history is a machine, its statements, and runs in which some of them are called. Each run's
evidence goes into a memory, and the next run is attributed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from studies.bench.accuracy import mixes
from studies.bench.accuracy.activity import Activity
from studies.bench.accuracy.harness import CONDITIONS, attribute, remembering
from studies.bench.accuracy.machine import PhysicalMachine, Topology, another_day, draw_climate
from studies.bench.accuracy.machine import draw_machine as drawn
from studies.bench.accuracy.physics import simulate
from studies.bench.accuracy.rapl import Meter, draw_meter
from studies.bench.accuracy.recording import Recording, Truth
from studies.bench.accuracy.tracer import Tracer, draw_tracer, record, truth
from studies.bench.accuracy.workload import Source, run

from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.cells import Cell, Conditions, union
from qjoule.model.fit.remembered import Now
from qjoule.model.ledger import Ledger

DAY_S = 86_400.0
_BEGIN_NS = 10**12


@dataclass(frozen=True)
class Day:
    """One run: which statements are called (by name; none: all), for how long, and when.

    `factor`: what each statement's power is multiplied by on that day, by name. `version`: of the
    server.
    """

    called: tuple[str, ...] = ()
    seconds: float = 30.0
    when_s: float = 0.0
    factor: tuple[tuple[str, float], ...] = ()
    conditions: Conditions = CONDITIONS


@dataclass(frozen=True)
class Run:
    recording: Recording
    truth: Truth


@dataclass(frozen=True)
class History:
    """A machine with its meter and tracer, and all statements that its server may run."""

    random: np.random.Generator
    machine: PhysicalMachine
    meter: Meter
    tracer: Tracer
    sources: list[Source]

    @staticmethod
    def draw(
        seed: int,
        *,
        shapes: int = 2,
        counters: bool = True,
        load: float = 0.35,
        steady: bool = False,
    ) -> History:
        """A machine of 4 to 8 cores, with `shapes` statements that load `load` of it together.

        `steady`: they run all the time, so that no window has one of them without the others.
        """
        random = np.random.default_rng(np.random.SeedSequence([seed, 91]))
        topology = Topology(1, int(random.integers(4, 9)), int(random.integers(1, 3)))
        machine = drawn(random, topology)
        cpus, hidden = topology.cpus, float(random.uniform(0.0, 0.12))
        made = mixes.shapes(random, shapes, hidden, cpus * load, (3e6, 3e7))
        if steady:
            made = [replace(one, swing=0.0, pace="clock", spread=0.05, parts=1.0) for one in made]
        made += mixes.background(random, hidden, 0.02 * cpus)
        made += mixes.rest(random, hidden, 0.03 * cpus)
        tracer = draw_tracer(random, counters, 0.0)
        return History(random, machine, draw_meter(random, True), tracer, made)

    @property
    def statements(self) -> list[str]:
        return [one.group.name for one in self.sources if one.group.kind == "queries"]

    def run(self, day: Day) -> Run:
        """One day's recording."""
        random, factor = self.random, dict(day.factor)
        sources = [
            replace(one, activity=_stronger(one.activity, factor.get(one.group.name, 1.0)))
            for one in self.sources
            if not day.called or one.group.kind != "queries" or one.group.name in day.called
        ]
        machine, cpus = another_day(random, self.machine), self.machine.topology.cpus
        span_ns = (_BEGIN_NS, _BEGIN_NS + int(day.seconds * 1e9))
        work = run(random, sources, cpus, span_ns, 0.03)
        climate = draw_climate(random, machine, span_ns)
        simulation = simulate(machine, work.stretches, climate, span_ns)
        parts = (machine.topology.machine(), self.meter, self.tracer)
        recording = record(random, parts, simulation, work, span_ns)
        return Run(recording, truth(simulation, work, self.meter.domains))


def _stronger(activity: Activity, factor: float) -> Activity:
    return replace(activity, intensity=activity.intensity * factor)


def attributed(
    run: Run, day: Day, cells: Sequence[Cell], coefficients: Coefficients | None = None
) -> tuple[Ledger, tuple[Cell, ...]]:
    """The ledger of a run under a memory, and the memory with what the run told."""
    recording, now = run.recording, Now(day.when_s, day.conditions)
    memory = remembering(recording, cells, now, hash((day.when_s, len(cells))))
    ledger = attribute(recording, coefficients, refit=True, memory=memory)
    ledger.grow(len(recording.groups))
    return ledger, union([*cells, *memory.take()])
