# SPDX-License-Identifier: Apache-2.0
"""What is drawn by seed in each scenario: a topology, and what runs on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from studies.bench.accuracy import mixes
from studies.bench.accuracy.activity import draw_activity
from studies.bench.accuracy.machine import Topology
from studies.bench.accuracy.workload import Source


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


#: Of their CPUs, sources use at most this part where all of them are on one package.
_MOST_LOAD = 0.7

ScenarioFactory = Callable[[np.random.Generator], Plan]


def _topology(random: np.random.Generator, packages: int = 1, smt: bool | None = None) -> Topology:
    """4 to 16 CPUs; SMT is drawn unless `smt` is given."""
    threads = 2 if (bool(random.integers(2)) if smt is None else smt) else 1
    cores = int(random.integers(4, 9)) if packages == 1 else int(random.integers(2, 5))
    return Topology(packages, cores, threads)


def draw_hidden_bound(random: np.random.Generator) -> float:
    """How far energy differs by effects that counters cannot see: bound of |intensity - 1|."""
    return float(random.uniform(0.0, 0.12))


def _server(random: np.random.Generator) -> Plan:
    """A common server at 15 to 55 % load."""
    topology, hidden = _topology(random), draw_hidden_bound(random)
    load = random.uniform(0.15, 0.55)
    return Plan(topology, mixes.server(random, topology.cpus, hidden, load), hidden)


def _single_shape(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), draw_hidden_bound(random)
    cpus = topology.cpus
    sources = mixes.shapes(random, 1, hidden, cpus * random.uniform(0.15, 0.6), (2e5, 2e7))
    sources += mixes.background(random, hidden, 0.03 * cpus)
    return Plan(topology, sources + mixes.rest(random, hidden, 0.05 * cpus), hidden)


def _equal_time(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), draw_hidden_bound(random)
    load, call_ns = topology.cpus * random.uniform(0.1, 0.25), random.uniform(3e5, 1e7)
    call_ns = max(call_ns, load / mixes.RUNS_PER_S * 4e9)
    sort, probe = (
        mixes.shape(random, name, hidden, load=load, call_ns=call_ns, bound=0)
        for name in ("sort", "probe")
    )
    slow = draw_activity(random, random.uniform(0.85, 1.0, 1), hidden, overlap=(1.0, 2.5))
    probe = replace(probe, activity=slow)
    sources = [sort, probe, *mixes.background(random, hidden, 0.02 * topology.cpus)]
    return Plan(topology, sources + mixes.rest(random, hidden, 0.03 * topology.cpus), hidden)


def _short_bursts(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), draw_hidden_bound(random)
    return Plan(topology, mixes.short_bursts(random, topology.cpus, hidden), hidden)


def _analytic(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), draw_hidden_bound(random)
    return Plan(topology, mixes.analytic_and_points(random, topology, hidden), hidden)


def _neighbours(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), draw_hidden_bound(random)
    return Plan(topology, mixes.neighbours(random, topology.cpus, hidden), hidden)


def _mostly_idle(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random), draw_hidden_bound(random)
    load = random.uniform(0.02, 0.06)
    return Plan(topology, mixes.server(random, topology.cpus, hidden, load), hidden)


def _siblings(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random, smt=True), draw_hidden_bound(random)
    return Plan(topology, mixes.siblings(random, topology, hidden), hidden)


def _frequency_steps(random: np.random.Generator) -> Plan:
    return replace(_server(random), governor="steps")


def _two_packages(random: np.random.Generator) -> Plan:
    topology, hidden = _topology(random, packages=2), draw_hidden_bound(random)
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
    topology, hidden = _topology(random), draw_hidden_bound(random)
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


def on_two_packages(topology: Topology) -> Topology | None:
    """The same number of CPUs on two packages; None if their cores cannot be halved."""
    cores, rest = divmod(topology.cores, 2)
    return None if rest else replace(topology, packages=2, cores_per_package=cores)


def on_one_of_them(
    random: np.random.Generator, topology: Topology, sources: list[Source]
) -> list[Source]:
    """In half of all cases everything runs on the first package, if it fits there."""
    first = np.arange(topology.cpus)
    first = first[first % topology.cores < topology.cores_per_package]
    fits = sum(source.load for source in sources) <= _MOST_LOAD * len(first)
    workers = max(source.workers for source in sources)
    if not random.integers(2) or not fits or workers > len(first):
        return sources
    return [replace(source, cpus=tuple(first.tolist())) for source in sources]
