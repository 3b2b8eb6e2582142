# SPDX-License-Identifier: Apache-2.0
"""Simulated machines whose clock is lowered by licences or heat, and pulses of their firmware."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from studies.bench.accuracy.activity import Activity, draw_activity
from studies.bench.accuracy.effects import Effects
from studies.bench.accuracy.limits import Licence, Pulse, Throttle
from studies.bench.accuracy.machine import (
    PhysicalMachine,
    Topology,
    draw_climate,
    draw_machine,
)
from studies.bench.accuracy.physics import Simulation, Stretches, simulate
from studies.bench.accuracy.scenarios import make_case

MS = 1_000_000
SPAN_NS = (10**9, 10**9 + 4_000 * MS)
MACHINE: PhysicalMachine = replace(
    draw_machine(np.random.default_rng(3), Topology(1, 2, 1)),
    max_ghz=4.0,
    all_cores_ghz=4.0,
    drift=(0.0, 0.0),
)


def simulated(
    slices_ms: list[tuple[int, int, int]], effects: Effects, wide: list[int] | None = None
) -> Simulation:
    """Slices (begin, end, CPU) on a machine that always has 4 GHz but for its effects."""
    begin, end, cpu = np.array(slices_ms).T
    activity = draw_activity(np.random.default_rng(5), np.full(len(cpu), 0.2), 0.0)
    activity = replace(activity, wide=np.array(wide or [0] * len(cpu), np.float64))
    random = np.random.default_rng(7)
    stretches = Stretches(SPAN_NS[0] + begin * MS, SPAN_NS[0] + end * MS, cpu, activity)
    return simulate(MACHINE, stretches, draw_climate(random, MACHINE, SPAN_NS), SPAN_NS, effects)


def ghz(simulation: Simulation, row: int, begin_ms: int, end_ms: int) -> float:
    """Cycles per nanosecond of slice `row` between two times."""
    t0_ns, t1_ns = (np.array([SPAN_NS[0] + t * MS]) for t in (begin_ms, end_ms))
    cycles = simulation.amounts(np.array([row]), t0_ns, t1_ns, ("cycles",))["cycles"]
    return float(cycles[0]) / ((end_ms - begin_ms) * MS)


def test_a_licence_outlasts_wide_instructions_on_their_core_alone() -> None:
    licence = Licence(pace=0.75, hold_ns=2 * MS, share=0.0, energy=1.0)
    run = [(0, 10, 0), (10, 30, 0), (0, 30, 1)]
    simulation = simulated(run, Effects(licence=licence), wide=[1, 0, 0])
    assert ghz(simulation, 0, 0, 10) == pytest.approx(3.0)
    assert ghz(simulation, 1, 10, 12) == pytest.approx(3.0)
    assert ghz(simulation, 1, 12, 30) == pytest.approx(4.0)
    assert ghz(simulation, 2, 0, 30) == pytest.approx(4.0)


def test_some_behaviours_are_wide_and_cost_more() -> None:
    licence = Licence(pace=0.75, hold_ns=MS, share=0.4, energy=1.3)
    random = np.random.default_rng(1)
    plain = draw_activity(random, np.array([0.5]), 0.0)
    drawn = Activity.join([licence.dressed(random, plain) for _ in range(500)])
    assert 0.3 < drawn.wide.mean() < 0.5
    assert drawn.intensity == pytest.approx(np.where(drawn.wide > 0, 1.3, 1.0))


@pytest.mark.parametrize("duty", [False, True])
def test_a_hot_machine_loses_clocks(duty: bool) -> None:
    throttle = Throttle(tau_s=0.1, begin=0.5, pace=0.4, duty=duty)
    busy = [(0, 4000, 0), (2000, 4000, 1)]
    simulation = simulated(busy, Effects(throttle=throttle))
    assert ghz(simulation, 0, 3000, 4000) == pytest.approx(4.0 * (0.4375 if duty else 0.4), 1e-3)
    assert ghz(simulation, 0, 1000, 2000) >= 3.6
    watts = simulation.whole(("package",))["package"] / 4e9
    cool_w = simulated(busy, Effects()).whole(("package",))["package"] / 4e9
    assert np.all(watts < cool_w)
    slower = simulated(busy, Effects(throttle=replace(throttle, duty=not duty)))
    assert (slower.whole(("package",))["package"] / 4e9 < watts).all() == duty


def test_pulses_belong_to_idle() -> None:
    pulse = Pulse(1000 * MS, 100 * MS, share=0.5, in_phase=False, begin_ns=SPAN_NS[0] - 950 * MS)
    run = [(500, 900, 0)]
    with_pulse, without = simulated(run, Effects(pulse=pulse)), simulated(run, Effects())
    key = ("package",)
    assert with_pulse.whole(key)["package"] == pytest.approx(without.whole(key)["package"])
    more_nj = with_pulse.power[0].idle_nj["package"] - without.power[0].idle_nj["package"]
    # Four begin in the four seconds.
    assert more_nj == pytest.approx(0.5 * MACHINE.idle_w[0] * 400 * MS)
    assert with_pulse.power[0].idle_nj["core"] == without.power[0].idle_nj["core"]


@pytest.mark.parametrize("family", ["licences", "throttling", "pulses"])
def test_owners_and_idle_have_all_energy(family: str) -> None:
    truth = make_case(f"{family}/mostly_idle", 1).truth
    for domain, total_nj in truth.total_nj.items():
        sum_nj = truth.group_nj[domain].sum() + truth.idle_nj[domain]
        assert sum_nj == pytest.approx(total_nj, rel=1e-6)
