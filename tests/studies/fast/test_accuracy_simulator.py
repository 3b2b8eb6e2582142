# SPDX-License-Identifier: Apache-2.0
"""The simulated machine of the accuracy bench: its energy, the owners, and what is recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.accuracy.activity import Activity, draw_activity
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

SECOND = 1_000_000_000
SPAN = (0, SECOND)


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


def power_w(machine: PhysicalMachine, stretches: Stretches) -> float:
    """Mean package power over a second, with P_idle subtracted."""
    power = simulate(machine, stretches, steady(machine), SPAN).power[0]
    return float(power.energy_nj["package"][-1] - power.idle_nj["package"]) / SECOND


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


def of(simulation: Simulation, domain: str) -> tuple[float, float, float]:
    """Total, idle's part and the threads' part of a domain."""
    total = sum(power.energy_nj[domain][-1] for power in simulation.power)
    idle = sum(power.idle_nj[domain] for power in simulation.power)
    return total, idle, simulation.whole()[domain].sum()


@pytest.mark.parametrize("seed", range(6))
def test_owners_add_up_to_every_domain(seed: int) -> None:
    random = np.random.default_rng(seed)
    topology = Topology(1 + seed % 2, 3, 1 + seed // 3)
    machine = draw_machine(random, topology)
    climate = draw_climate(random, machine, SPAN, "steps" if seed % 3 else "turbo")
    simulation = simulate(machine, crowd(random, topology, 200), climate, SPAN)
    for domain in DOMAINS:
        total, idle, threads = of(simulation, domain)
        assert idle + threads == pytest.approx(total, rel=1e-9)
        assert threads > 0


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


def test_an_idle_machine_draws_its_power_at_rest() -> None:
    machine = drawn(1, Topology(2, 4, 1))
    simulation = simulate(machine, busy(), steady(machine), SPAN)
    for package, power in enumerate(simulation.power):
        watts = power.energy_nj["package"][-1] / SECOND
        assert watts == pytest.approx(machine.idle_w[package], rel=1e-9)
        assert power.idle_nj["package"] == pytest.approx(power.energy_nj["package"][-1])


def test_energy_of_one_thread_is_as_computed_by_hand() -> None:
    machine = drawn(2)
    one = busy((0, 0, SECOND // 2))
    act, ghz = one.activity, machine.turbo_ghz()[1]
    volts2 = float(machine.voltage(ghz)) ** 2
    rate = 1 / (act.core_cpi[0] / ghz + act.stall_ns[0])
    own_w = volts2 * (machine.cycle_nj * ghz + machine.instruction_nj * rate)
    own_w += machine.miss_nj * rate * act.misses[0]
    own_w /= 1 + machine.saturation * own_w / machine.full_w
    pace = machine.maintenance_scaled * (volts2 * ghz / machine.max_ghz - 1)
    expected_w = own_w + machine.maintenance_w * (1 + pace)
    assert power_w(machine, one) == pytest.approx(expected_w / 2, rel=1e-9)
    amounts = simulate(machine, one, steady(machine), SPAN).whole()
    assert amounts["cycles"][0] == pytest.approx(ghz * SECOND / 2)
    assert amounts["instructions"][0] == pytest.approx(rate * SECOND / 2)


@pytest.mark.parametrize("seed", range(8))
def test_second_sibling_adds_far_less_than_a_second_core(seed: int) -> None:
    machine = drawn(seed)
    one = power_w(machine, busy((0, 0, SECOND)))
    siblings = power_w(machine, busy((0, 0, SECOND), (4, 0, SECOND)))
    cores = power_w(machine, busy((0, 0, SECOND), (1, 0, SECOND)))
    own = one - machine.maintenance_w
    assert 0 < siblings - one < 0.75 * own
    assert siblings - one < 0.8 * (cores - one) + 0.05 * machine.maintenance_w
    both = simulate(machine, busy((0, 0, SECOND), (4, 0, SECOND)), steady(machine), SPAN).whole()[
        "package"
    ]
    assert both[0] == pytest.approx(both[1])


@pytest.mark.parametrize("seed", range(8))
def test_alone_and_alone_exceed_together_by_the_residual(seed: int) -> None:
    machine = drawn(seed, Topology(1, 6, 1))
    half = [(cpu, 0, SECOND) for cpu in range(6)]
    a, b = (power_w(machine, busy(*rows)) for rows in (half[:3], half[3:]))
    together = power_w(machine, busy(*half))
    assert 0.05 < (a + b - together) / (machine.idle_w[0] + together) < 0.7


def test_maintenance_is_split_over_cores_before_threads() -> None:
    machine = replace(drawn(4), cycle_nj=0.0, instruction_nj=0.0, miss_nj=0.0)
    # CPUs 0 and 4 share a core: together they are charged as much as CPU 1 alone.
    rows = busy((0, 0, SECOND), (1, 0, SECOND), (4, 0, SECOND))
    whole = simulate(machine, rows, steady(machine), SPAN).whole()["package"]
    assert whole[0] == pytest.approx(whole[2])
    assert whole[0] + whole[2] == pytest.approx(whole[1])


def test_memory_bound_work_draws_dram_power_and_runs_fewer_instructions() -> None:
    machine = drawn(5)
    compute, memory = (
        simulate(machine, busy((0, 0, SECOND), bound=bound), steady(machine), SPAN).whole()
        for bound in (0.0, 1.0)
    )
    assert memory["dram"][0] > 5 * compute["dram"][0]
    assert memory["instructions"][0] < 0.7 * compute["instructions"][0]


@pytest.mark.parametrize("rows", [[(0, 0, 10), (0, 9, 20)], [(0, 5, 5)], [(0, 0, SECOND + 1)]])
def test_impossible_schedules_are_refused(rows: list[tuple[int, int, int]]) -> None:
    machine = drawn(0)
    with pytest.raises(ValueError, match="stretch"):
        simulate(machine, busy(*rows), steady(machine), SPAN)


@pytest.mark.parametrize("seed", range(6))
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


def test_counters_stand_still_between_updates() -> None:
    random = np.random.default_rng(1)
    machine = drawn(1, Topology(1, 2, 1))
    power = simulate(machine, busy(), steady(machine), SPAN).power
    meter = replace(draw_meter(random, dram=False), period_ns=100_000, noise=0.0)
    _, readings = read_meter(random, meter, power, SPAN)
    mine = readings.series == 0
    moved = np.diff(readings.raw[mine].astype(np.int64)) != 0
    assert 900 < moved.sum() < 1150
