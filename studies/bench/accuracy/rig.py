# SPDX-License-Identifier: Apache-2.0
"""A machine with all that is recorded with, and a minute in which it idles before its load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import numpy.typing as npt
from studies.bench.accuracy.effects import Effects, Small
from studies.bench.accuracy.machine import PhysicalMachine, Topology, draw_climate, wandering
from studies.bench.accuracy.physics import simulate
from studies.bench.accuracy.rapl import Meter
from studies.bench.accuracy.recording import Recording
from studies.bench.accuracy.tracer import Tracer, record
from studies.bench.accuracy.workload import Source, run

from qjoule.model.arrays import Machine
from qjoule.trace.meta import IdleState


@dataclass(frozen=True)
class Rig:
    """A machine with its effects, its energy counters and its tracer."""

    machine: PhysicalMachine
    effects: Effects
    meter: Meter
    tracer: Tracer
    governor: str

    def shown(self, recording: Recording) -> Recording:
        """The recording with the table of idle states that this machine's kernel shows."""
        states = tuple(
            IdleState(f"C{number}", exit_ns // 1000, residency_ns // 1000)
            for number, (residency_ns, exit_ns) in enumerate(self.effects.idle_states, 1)
        )
        return replace(recording, idle_states=states, machine=self.shown_machine())

    def shown_machine(self) -> Machine:
        """The CPUs as the tracer reports them, with the kind of each core."""
        topology, small = self.machine.topology, self.effects.small
        machine = topology.machine()
        return machine if small is None else replace(machine, cpu_small=small_cpus(topology, small))


def small_cpus(topology: Topology, small: Small) -> npt.NDArray[np.bool_]:
    """(cpus,) which ones are small."""
    within = np.arange(topology.cpus) % topology.cores % topology.cores_per_package
    is_small: npt.NDArray[np.bool_] = within >= topology.cores_per_package - small.cores(
        topology.cores_per_package
    )
    return is_small


SECONDS = 60
#: From the minute's end to the begin of the load.
BEFORE_S = 60
#: Of what they use under load, a server's own threads use this share while it has no queries.
_BACKGROUND = 0.1
_OTHERS = 0.02  #: CPUs that other processes use at most


def idle_sources(sources: list[Source]) -> list[Source]:
    """The machine at rest: no queries, no neighbours, few other processes."""
    quiet_sources = []
    for source in sources:
        if source.group.kind == "background":
            quiet_sources.append(replace(source, load=_BACKGROUND * source.load))
        elif source.group.name == "other":
            quiet_sources.append(replace(source, load=min(source.load, _OTHERS), swing=0.0))
        elif source.group.kind in ("kernel", "tracer"):
            quiet_sources.append(source)
    return quiet_sources


def idle_minute(
    seed_words: tuple[str, str, int], rig: Rig, sources: list[Source], begin_ns: int
) -> Recording:
    """The recording of a minute that ends `BEFORE_S` before `begin_ns`.

    `seed_words` seed its draws, which are independent of the case's others.
    """
    numbers = [crc32(word.encode()) if isinstance(word, str) else word for word in seed_words]
    random = np.random.default_rng(np.random.SeedSequence([*numbers, 2]))
    end_ns = begin_ns - BEFORE_S * 10**9
    span_ns = (end_ns - SECONDS * 10**9, end_ns)
    machine = rig.machine
    work = run(random, idle_sources(sources), machine.topology.cpus, span_ns, 0.03)
    climate = draw_climate(random, machine, span_ns, rig.governor)
    if rig.effects.wander:
        climate = wandering(random, climate, rig.effects.wander)
    simulation = simulate(machine, work.stretches, climate, span_ns, rig.effects)
    observed_by = (machine.topology.machine(), rig.meter, replace(rig.tracer, lost=0.0))
    return rig.shown(record(random, observed_by, simulation, work, span_ns))
