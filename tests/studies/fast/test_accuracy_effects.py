# SPDX-License-Identifier: Apache-2.0
"""Each effect of the simulated machine changes what `PHYSICS.md` says, and energy still adds up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.accuracy import effects as drawn_effects
from bench.accuracy.effects import Effects, Tail, Uncore, Warming
from bench.accuracy.families import FAMILIES
from bench.accuracy.hidden_kinds import DRAWN, Hidden, Kind, candidates, draw_hidden
from bench.accuracy.machine import GRID_NS, Climate, PhysicalMachine, Topology, draw_machine
from bench.accuracy.physics import DOMAINS, Simulation, Stretches, simulate

from studies.fast.test_accuracy_simulator import SECOND, SPAN, busy, crowd, drawn, steady

MS = 1_000_000
HALF_MS = MS // 2


def run(
    machine: PhysicalMachine, stretches: Stretches, effects: Effects | None = None
) -> Simulation:
    return simulate(machine, stretches, steady(machine), SPAN, effects)


def watts(simulation: Simulation, domain: str = "package") -> float:
    """Mean power of all packages over the second."""
    return float(sum(power.energy_nj[domain][-1] for power in simulation.power)) / SECOND


def owned(simulation: Simulation, domain: str = "package") -> np.ndarray:
    return simulation.whole((domain,))[domain]


def waking(cpu: int, rate: int, awake_ns: int = 20_000) -> list[tuple[int, int, int]]:
    period = SECOND // rate
    return [(cpu, i * period + 1_000, i * period + 1_000 + awake_ns) for i in range(rate - 1)]


def tail(until_ns: int, share: float = 1.0, **more: object) -> Tail:
    return replace(Tail((until_ns,), (share,), 0.0, 10_000), **more)  # type: ignore[arg-type]


def everything(random: np.random.Generator, machine: PhysicalMachine) -> Effects:
    """All effects, with all hidden kinds."""
    made = FAMILIES["all_together"](random, machine)
    whole = drawn_effects.wake_tails(np.random.default_rng(3), machine)
    return replace(made.joined(whole), hidden=Hidden(tuple(candidates(random, machine))))


@pytest.mark.parametrize("seed", range(6))
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


@pytest.mark.parametrize("rate", [100, 1_000])
def test_a_package_tail_draws_rate_times_tail_times_power_more(rate: int) -> None:
    machine = replace(drawn(1), saturation=0.0)
    stretches = busy(*waking(0, rate))
    plain, tailed = run(machine, stretches), run(machine, stretches, Effects(tail(HALF_MS)))
    pace = machine.maintenance_scaled * (
        float(machine.voltage(machine.turbo_ghz()[1])) ** 2 * machine.turbo_ghz()[1]
    )
    shared_w = machine.maintenance_w * (1 - machine.maintenance_scaled + pace / machine.max_ghz)
    more_w = (rate - 1) * HALF_MS / SECOND * shared_w
    assert watts(tailed) - watts(plain) == pytest.approx(more_w, rel=1e-9)
    assert owned(tailed).sum() - owned(plain).sum() == pytest.approx(more_w * SECOND, rel=1e-9)
    assert tailed.power[0].idle_nj == plain.power[0].idle_nj


def test_a_core_tail_draws_the_cores_clock_while_the_package_is_awake() -> None:
    machine = replace(drawn(1), saturation=0.0)
    stretches = busy(*waking(0, 1_000), (1, 0, SECOND))
    plain = run(machine, stretches)
    tailed = run(machine, stretches, Effects(core_tail=tail(200_000, 0.5)))
    ghz = machine.turbo_ghz()[2]
    clock_w = float(machine.voltage(ghz)) ** 2 * machine.cycle_nj * ghz
    more_w = 999 * 200_000 / SECOND * 0.5 * clock_w
    assert watts(tailed) - watts(plain) == pytest.approx(more_w, rel=1e-6)
    assert watts(tailed, "core") - watts(plain, "core") == pytest.approx(more_w, rel=1e-6)
    more_nj = owned(tailed) - owned(plain)
    assert more_nj[-1] == pytest.approx(0.0, abs=1.0)  # the thread that never slept pays nothing


def test_a_tail_ends_when_a_thread_wakes_and_belongs_to_the_last_sleeper() -> None:
    machine = drawn(2)
    stretches = busy((0, 0, MS), (1, 0, 2 * MS), (2, 2 * MS + 100_000, 3 * MS), (3, 9 * MS, SECOND))
    plain, tailed = run(machine, stretches), run(machine, stretches, Effects(tail(HALF_MS)))
    more = owned(tailed) - owned(plain)
    assert more[0] == pytest.approx(0.0, abs=1e-3)
    assert more[2] == pytest.approx(5 * more[1], rel=1e-6)  # 0.5 ms against 0.1 ms


def test_waking_costs_the_one_that_runs_first_and_less_from_a_shallow_state() -> None:
    machine = drawn(2)
    stretches = busy((0, MS, 2 * MS), (1, MS + 10, 2 * MS), (2, 2 * MS + 100, 3 * MS))
    effects = Effects(package_tail=tail(HALF_MS, 0.0, wake_nj=1e6))
    more = owned(run(machine, stretches, effects)) - owned(run(machine, stretches))
    scale = machine.saturation  # saturation takes a part of it away again
    assert more[0] == pytest.approx(1e6, rel=0.3 + scale)
    assert more[2] == pytest.approx(1e5, rel=0.3 + scale)
    assert abs(more[1]) < 0.3 * more[0]


def test_a_predicting_governor_skips_the_tail_after_long_sleeps() -> None:
    machine = drawn(2)
    long, short = busy(*waking(0, 100)), busy(*waking(0, 4_000))
    for stretches, most in ((long, 0.2), (short, 1.0)):
        plain = watts(run(machine, stretches))
        ladder = watts(run(machine, stretches, Effects(tail(HALF_MS)))) - plain
        predicting = tail(HALF_MS, governor="predicting")
        found = watts(run(machine, stretches, Effects(predicting))) - plain
        assert 0 < found <= ladder
        assert (found < most * ladder) == (most < 1)


@pytest.mark.parametrize("form", ["mean", "max"])
def test_uncore_follows_memory_traffic(form: str) -> None:
    machine = replace(drawn(3), saturation=0.0)
    effects = Effects(uncore=Uncore(form, 0.6, 1e-4))
    compute, memory = busy((0, 0, SECOND), bound=0.0), busy((0, 0, SECOND), bound=1.0)
    more = watts(run(machine, memory, effects)) - watts(run(machine, memory))
    pace = machine.maintenance_scaled * (
        float(machine.voltage(machine.turbo_ghz()[1])) ** 2 * machine.turbo_ghz()[1]
    )
    shared_w = machine.maintenance_w * (1 - machine.maintenance_scaled + pace / machine.max_ghz)
    assert more == pytest.approx(0.6 * shared_w, rel=1e-9)
    weak = Effects(uncore=Uncore(form, 0.6, 1.0))
    assert watts(run(machine, compute, weak)) - watts(run(machine, compute)) < 0.02 * shared_w


def test_mean_and_max_differ_beside_computing_cores() -> None:
    machine = drawn(3)
    rows = busy((0, 0, SECOND), bound=1.0), busy((1, 0, SECOND), (2, 0, SECOND))
    mixed = Stretches(
        np.concatenate([r.t0_ns for r in rows]),
        np.concatenate([r.t1_ns for r in rows]),
        np.concatenate([r.cpu for r in rows]),
        type(rows[0].activity).join([r.activity for r in rows]),
    )
    mean, most = (
        run(machine, mixed, Effects(uncore=Uncore(f, 0.6, 0.02))) for f in ("mean", "max")
    )
    assert watts(most) > watts(mean)
    # What traffic adds is shared by all busy cores, whoever caused it.
    added = owned(most) - owned(run(machine, mixed))
    np.testing.assert_allclose(added, added.mean(), rtol=1e-6)


def test_a_stepped_uncore_climbs_one_step_in_ten_ms_and_keeps_its_level() -> None:
    machine = replace(drawn(3), saturation=0.0)
    uncore = Uncore("stepped", 0.6, 1e-4, steps=5, low=0.2, high=0.5)
    rows = busy((0, 0, SECOND), bound=1.0)
    power = run(machine, rows, Effects(uncore=uncore)).power[0]
    plain = run(machine, rows).power[0]
    at = np.arange(0, 11) * GRID_NS
    more = np.diff(power.at("package", at) - plain.at("package", at)) / GRID_NS
    steps = more / more[-1]
    np.testing.assert_allclose(steps, [0, 0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1], atol=1e-9)


def test_warming_follows_power_and_idle_pays_its_part() -> None:
    machine = drawn(4)
    effects = Effects(warming=Warming(0.03, 0.1))
    loaded = busy(*((cpu, SECOND // 2, SECOND) for cpu in range(8)))
    warm, plain = (run(machine, loaded, e).power[0] for e in (effects, None))
    factor = [
        (warm.at("package", b) - warm.at("package", a))
        / (plain.at("package", b) - plain.at("package", a))
        for a, b in ((0, 50 * MS), (450 * MS, 500 * MS), (950 * MS, 1000 * MS))
    ]
    cooling, cool, hot = factor
    assert 0.97 <= cool < cooling < hot <= 1.03
    assert warm.idle_nj["package"] != plain.idle_nj["package"]


def test_a_load_line_takes_power_away_by_total_current() -> None:
    machine = replace(drawn(4), saturation=0.0)
    one, all_ = busy((0, 0, SECOND)), busy(*((cpu, 0, SECOND) for cpu in range(8)))
    rest = float(machine.idle_w[0])

    def lost(stretches: Stretches) -> float:
        droopy = watts(run(machine, stretches, Effects(load_line=0.1))) - rest
        return 1 - droopy / (watts(run(machine, stretches)) - rest)

    assert 0 < lost(one) < lost(all_) < 0.25


def test_cost_beside_a_sibling_follows_the_shape() -> None:
    machine = replace(drawn(4), saturation=0.0)
    pair = busy((0, 0, SECOND), (4, 0, SECOND))
    costly = replace(pair, activity=replace(pair.activity, beside=np.array([1.3, 1.0])))
    more = owned(run(machine, costly)) - owned(run(machine, pair))
    assert more[0] > 0 and more[1] == pytest.approx(0.0, abs=1.0)
    alone = busy((0, 0, SECOND))
    other = replace(alone, activity=replace(alone.activity, beside=np.array([1.3])))
    assert owned(run(machine, alone)) == pytest.approx(owned(run(machine, other)))


def test_prefetching_hides_misses_but_not_their_energy() -> None:
    machine = drawn(4)
    seen = busy((0, 0, SECOND), bound=1.0)
    hidden = replace(seen, activity=replace(seen.activity, prefetched=np.array([0.75])))
    one, two = run(machine, seen), run(machine, hidden)
    assert two.whole()["misses"][0] == pytest.approx(one.whole()["misses"][0] / 4)
    for domain in DOMAINS:
        assert owned(two, domain) == pytest.approx(owned(one, domain))


def test_hidden_kinds_are_those_of_the_seed() -> None:
    machine = drawn(5)
    first, again = (draw_hidden(np.random.default_rng(7), machine) for _ in range(2))
    assert first == again
    assert len({type(kind) for kind in first.kinds}) == DRAWN
    every = {
        type(kind)
        for seed in range(40)
        for kind in draw_hidden(np.random.default_rng(seed), machine).kinds
    }
    assert len(every) >= 6


@pytest.mark.parametrize("number", range(len(candidates(np.random.default_rng(0), drawn(5)))))
def test_each_hidden_kind_changes_what_is_seen(number: int) -> None:
    machine = drawn(5)
    kind: Kind = candidates(np.random.default_rng(1), machine)[number]
    effects = Effects(hidden=Hidden((kind,)))
    random = np.random.default_rng(2)
    stretches = crowd(random, machine.topology, 100)
    wide = (np.arange(len(stretches.cpu)) % 3 == 0).astype(float)
    stretches = replace(stretches, activity=replace(stretches.activity, wide=wide))
    plain, changed = run(machine, stretches), run(machine, stretches, effects)
    at = np.linspace(0, SECOND, 200)
    before = plain.power[0].seen().at("package", at)
    after = changed.power[0].seen().at("package", at)
    assert np.abs(np.diff(after) - np.diff(before)).max() > 0.01 * np.diff(before).mean()
    total = changed.power[0].energy_nj["package"][-1]
    idle = changed.power[0].idle_nj["package"]
    assert idle + owned(changed).sum() == pytest.approx(total, rel=1e-9)
    # A counter may be late, but it shows all of the energy.
    assert changed.power[0].seen().energy_nj["package"][-1] == pytest.approx(total, rel=0.05)


def test_climate_without_wander_is_as_before() -> None:
    machine = drawn(6)
    climate: Climate = steady(machine)
    ones = np.ones_like(climate.idle)
    stretches = busy(*waking(0, 100))
    one = simulate(machine, stretches, climate, SPAN)
    two = simulate(machine, stretches, replace(climate, all_power=ones), SPAN)
    np.testing.assert_array_equal(
        one.power[0].energy_nj["package"], two.power[0].energy_nj["package"]
    )
