# SPDX-License-Identifier: Apache-2.0
"""The simulated machine of the accuracy bench: its energy, its owners, and its effects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.accuracy import effects as drawn_effects
from bench.accuracy.activity import Activity, draw_activity
from bench.accuracy.effects import Effects
from bench.accuracy.families import FAMILIES
from bench.accuracy.hidden_kinds import Hidden, candidates
from bench.accuracy.machine import (
    GRID_NS,
    Climate,
    PhysicalMachine,
    Topology,
    draw_climate,
    draw_machine,
)
from bench.accuracy.physics import DOMAINS, Simulation, Stretches, simulate
from bench.accuracy.rapl import MICROJOULE, draw_meter, read_meter

pytestmark = pytest.mark.beside
SECOND = 1_000_000_000
SPAN = (0, SECOND)
MS = 1_000_000


def steady(machine: PhysicalMachine, span_ns: tuple[int, int] = SPAN) -> Climate:
    """A climate in which nothing changes."""
    steps = -(-(span_ns[1] - span_ns[0]) // GRID_NS)
    ones = np.ones((machine.topology.packages, steps))
    return Climate(span_ns[0], ones, ones, None)


def busy(*rows: tuple[int, int, int], bound: float = 0.0) -> Stretches:
    """Slices (cpu, t0, t1) of one behaviour without hidden effects."""
    cpu, t0, t1 = np.array(rows, np.int64).reshape(-1, 3).T
    activity = draw_activity(np.random.default_rng(5), np.array([bound]), 0.0)
    return Stretches(t0, t1, cpu, activity.take(np.zeros(len(cpu), np.int64)))


def drawn(seed: int, topology: Topology | None = None) -> PhysicalMachine:
    return draw_machine(np.random.default_rng(seed), topology or Topology(1, 4, 2))


def crowd(random: np.random.Generator, topology: Topology, n: int) -> Stretches:
    """Random slices on every CPU."""
    rows = []
    for cpu in range(topology.cpus):
        times = np.unique(random.integers(0, SECOND, 2 * n))
        times = times[: len(times) // 2 * 2]
        rows += [(cpu, t0, t1) for t0, t1 in zip(times[::2], times[1::2], strict=True)]
    made = busy(*rows)
    activity = draw_activity(random, random.uniform(0, 1, len(rows)), 0.1)
    return replace(made, activity=activity)


def owned(simulation: Simulation, domain: str = "package") -> np.ndarray:
    return simulation.whole((domain,))[domain]


def everything(random: np.random.Generator, machine: PhysicalMachine) -> Effects:
    """All effects, with all hidden kinds."""
    made = FAMILIES["all_together"](random, machine)
    whole = drawn_effects.wake_tails(np.random.default_rng(3), machine)
    return replace(made.joined(whole), hidden=Hidden(tuple(candidates(random, machine))))


def test_truth_does_not_depend_on_where_stretches_are_cut() -> None:
    random = np.random.default_rng(3)
    topology = Topology(2, 2, 2)
    machine = draw_machine(random, topology)
    climate = draw_climate(random, machine, SPAN, "steps")
    whole = crowd(random, topology, 150)
    rows = np.arange(len(whole.cpu))
    middle = whole.t0_ns + ((whole.t1_ns - whole.t0_ns) * random.random(len(rows))).astype(int)
    keep = (middle > whole.t0_ns) & (middle < whole.t1_ns)
    first = replace(whole, t1_ns=np.where(keep, middle, whole.t1_ns))
    second = replace(whole, t0_ns=middle).take(keep)
    pieces = Stretches(
        np.concatenate([first.t0_ns, second.t0_ns]),
        np.concatenate([first.t1_ns, second.t1_ns]),
        np.concatenate([first.cpu, second.cpu]),
        Activity.join([first.activity, second.activity]),
    )
    one = simulate(machine, whole, climate, SPAN)
    two = simulate(machine, pieces, climate, SPAN)
    parents = np.concatenate([rows, rows[keep]])
    inside = one.amounts(parents, pieces.t0_ns, pieces.t1_ns)
    for name, value in two.whole().items():
        np.testing.assert_allclose(
            np.bincount(parents, value), one.whole()[name], rtol=1e-8, err_msg=name
        )
        np.testing.assert_allclose(inside[name], value, rtol=1e-6, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("seed", range(4))
def test_counters_wrap_and_still_add_up_to_the_energy(seed: int) -> None:
    random = np.random.default_rng(seed)
    span_ns = (5 * SECOND, 9 * SECOND)
    machine = drawn(seed, Topology(2, 2, 1))
    rows = busy(*((cpu, span_ns[0] + cpu, span_ns[1] - SECOND) for cpu in range(4)))
    power = simulate(machine, rows, steady(machine, span_ns), span_ns).power
    meter = draw_meter(random)
    series, readings = read_meter(random, meter, power, span_ns)
    assert np.all(np.diff(readings.t_ns) > 0)
    assert readings.t_ns.min() >= span_ns[0]
    assert readings.t_ns.max() <= span_ns[1]
    for number, one in enumerate(series):
        mine = readings.series == number
        raw = readings.raw[mine].astype(np.int64)
        assert raw.max() < one.range
        assert one.unit_j in {MICROJOULE, 2.0**-14, 2.0**-16}
        assert (np.diff(raw) < 0).sum() == 1
        counted_j = float(((np.diff(raw)) % one.range).sum() * one.unit_j)
        at = power[one.package].at(one.domain, readings.t_ns[mine][[0, -1]])
        assert counted_j == pytest.approx((at[1] - at[0]) * 1e-9, rel=0.004)


@pytest.mark.parametrize("seed", range(4))
def test_owners_add_up_with_every_effect(seed: int) -> None:
    random = np.random.default_rng(seed)
    topology = Topology(1 + seed % 2, 3, 1 + seed // 3)
    machine = draw_machine(random, topology)
    effects = everything(random, machine)
    stretches = crowd(random, topology, 200)
    one = [stretches.activity.take(slice(i, i + 1)) for i in range(len(stretches.cpu))]
    dressed = [effects.dressed(random, activity) for activity in one]
    stretches = replace(stretches, activity=type(one[0]).join(dressed))
    calm = steady(machine)
    wave = 1 + 0.1 * np.sin(np.arange(calm.idle.size)).reshape(calm.idle.shape)
    simulation = simulate(machine, stretches, replace(calm, all_power=wave), SPAN, effects)
    for domain in DOMAINS:
        total = sum(power.energy_nj[domain][-1] for power in simulation.power)
        idle = sum(power.idle_nj[domain] for power in simulation.power)
        assert idle + owned(simulation, domain).sum() == pytest.approx(total, rel=1e-9)
        assert owned(simulation, domain).min() >= 0
