"""The machine that the accuracy bench measures against: energy, its owners, and what is shown."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

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
from bench.accuracy.recording import KINDS, Case, Group, Recording
from bench.accuracy.scenarios import SCENARIOS, make_case, simulate_on

from qjoule.model.arrays import Machine, Segments

SECOND = 1_000_000_000
SPAN = (0, SECOND)


def steady(machine: PhysicalMachine, span_ns: tuple[int, int] = SPAN) -> Climate:
    """A climate in which nothing changes."""
    steps = -(-(span_ns[1] - span_ns[0]) // GRID_NS)
    ones = np.ones((machine.topology.packages, steps))
    return Climate(span_ns[0], ones, ones, None)


def busy(*rows: tuple[int, int, int], bound: float = 0.0) -> Stretches:
    """Stretches (cpu, t0, t1) of one behaviour without anything hidden."""
    cpu, t0, t1 = np.array(rows, np.int64).reshape(-1, 3).T
    activity = draw_activity(np.random.default_rng(5), np.array([bound]), 0.0)
    return Stretches(t0, t1, cpu, activity.take(np.zeros(len(cpu), np.int64)))


def power_w(machine: PhysicalMachine, stretches: Stretches) -> float:
    """Mean package power over a second, P_idle taken off."""
    power = simulate(machine, stretches, steady(machine), SPAN).power[0]
    return float(power.energy_nj["package"][-1] - power.idle_nj["package"]) / SECOND


def drawn(seed: int, topology: Topology | None = None) -> PhysicalMachine:
    return draw_machine(np.random.default_rng(seed), topology or Topology(1, 4, 2))


def crowd(random: np.random.Generator, topology: Topology, n: int) -> Stretches:
    """Random stretches on every CPU."""
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
    # CPUs 0 and 4 share a core: together they owe as much as CPU 1 alone.
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


def every_array(value: Any) -> list[bytes]:
    """Bytes of all that a case holds, in order."""
    if isinstance(value, np.ndarray):
        return [value.tobytes()]
    if is_dataclass(value):
        return [b for field in fields(value) for b in every_array(getattr(value, field.name))]
    if isinstance(value, dict):
        return [b for item in value.items() for b in every_array(item)]
    if isinstance(value, tuple | list):
        return [b for item in value for b in every_array(item)]
    return [repr(value).encode()]


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: make_case(name, 1) for name in SCENARIOS}


def test_same_seed_same_bytes(cases: dict[str, Case]) -> None:
    for name in ("losses", "multiplexed", "two_packages"):
        assert every_array(cases[name]) == every_array(make_case(name, 1))
    assert every_array(make_case("losses", 2)) != every_array(cases["losses"])


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_case_is_whole(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    recording, truth = case.recording, case.truth
    for one in (recording, case.calibration):
        assert one is not None
        check_recording(one)
    for domain, total_nj in truth.total_nj.items():
        owned = truth.group_nj[domain].sum() + truth.idle_nj[domain]
        assert owned == pytest.approx(total_nj, rel=1e-9)
        queries = np.array([group.kind == "queries" for group in recording.groups])
        by_query = truth.query_nj[domain].sum()
        assert by_query == pytest.approx(truth.group_nj[domain][queries].sum(), rel=1e-9)
    seconds = (recording.end_ns - recording.begin_ns) * 1e-9
    packages = len(recording.machine.packages)
    assert 5 < truth.total_nj["package"] * 1e-9 / seconds / packages < 500
    seen = recording.query >= 0
    asked = truth.query_group[recording.query[seen]]
    np.testing.assert_array_equal(asked, recording.segments.group[seen])


def check_recording(recording: Recording) -> None:
    """Segments in order, inside the run, on CPUs that exist, none beside another on its CPU."""
    segments = recording.segments
    assert np.all(np.diff(segments.t0_ns) >= 0)
    assert segments.t0_ns[0] >= recording.begin_ns
    assert segments.t1_ns.max() <= recording.end_ns
    assert np.all(segments.t1_ns > segments.t0_ns)
    assert np.all(recording.machine.slots(segments.cpu) >= 0)
    assert {group.kind for group in recording.groups} <= set(KINDS)
    order = np.lexsort((segments.t0_ns, segments.cpu))
    same = np.diff(segments.cpu[order].astype(int)) == 0
    assert np.all((segments.t0_ns[order][1:] >= segments.t1_ns[order][:-1])[same])


def test_scenarios_differ_in_what_they_are_about(cases: dict[str, Case]) -> None:
    assert cases["no_counters"].recording.segments.counters is None
    assert "dram" not in cases["no_dram"].truth.total_nj
    assert "dram" in cases["losses"].truth.total_nj
    assert len(cases["two_packages"].recording.machine.packages) == 2
    multiplexed = cases["multiplexed"].recording.segments
    assert multiplexed.scaled is not None
    assert multiplexed.valid is not None
    assert 0.1 < multiplexed.scaled.mean() < 0.95
    np.testing.assert_array_equal(multiplexed.valid[:, 0], multiplexed.scaled > 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cross_socket_queries_run_on_both_packages(seed: int) -> None:
    recording = make_case("two_packages", seed).recording
    package = recording.machine.cpu_package[recording.segments.cpu]
    wide = recording.segments.group == 0
    pairs = np.unique(np.stack([recording.query[wide], package[wide]]), axis=1)
    packages = np.unique(pairs[0], return_counts=True)[1]
    assert len(packages) > 20
    assert (packages == 2).mean() > 0.8


def test_frequency_steps_move_the_clock(cases: dict[str, Case]) -> None:
    def frequencies(name: str) -> float:
        segments = cases[name].recording.segments
        assert segments.counters is not None
        cpu_ns = segments.t1_ns - segments.t0_ns
        long = cpu_ns > 100_000
        return float(np.std(segments.counters[long, 0] / cpu_ns[long]))

    assert frequencies("frequency_steps") > 0.25 > frequencies("single_shape")


def test_lost_time_is_told_to_the_nanosecond() -> None:
    with_loss = make_case("losses", 4).recording
    lost_ns = sum(int(one.lost_ns[-1]) for one in with_loss.lost)
    kept_ns = int((with_loss.segments.t1_ns - with_loss.segments.t0_ns).sum())
    assert 0.0005 < lost_ns / (lost_ns + kept_ns) < 0.08
    for one in with_loss.lost:
        assert np.all(np.diff(one.t_ns) > 0)
        assert np.all(np.diff(one.lost_ns) > 0)


def test_calibration_phases_run_what_they_say(cases: dict[str, Case]) -> None:
    case = cases["smt_both_busy"]
    assert case.calibration is not None
    segments = case.calibration.segments
    assert {phase.name for phase in case.calibration_phases} == {
        "idle", "integer", "floating_point", "cache", "stream", "chase"
    }  # fmt: skip
    for phase in case.calibration_phases:
        inside = np.minimum(segments.t1_ns, phase.t1_ns) - np.maximum(segments.t0_ns, phase.t0_ns)
        cpus = np.clip(inside, 0, None).sum() / (phase.t1_ns - phase.t0_ns)
        assert cpus == pytest.approx(phase.threads, abs=0.1)
        busy_cpus = np.bincount(segments.cpu, np.clip(inside, 0, None)) > SECOND // 2
        cores = np.unique(np.flatnonzero(busy_cpus) % (len(case.calibration.machine.cpu_ids) // 2))
        assert len(cores) == (phase.threads // 2 if phase.smt else phase.threads)


def test_recorded_schedules_are_simulated_as_they_are() -> None:
    machine = Machine(np.array([3, 5, 8, 9]), np.array([0, 0, 2, 2]), np.array([7, 7, 1, 4]))
    t0 = np.array([0, 0, 100_000, 400_000, 800_000])
    segments = Segments(
        t0, t0 + 90_000, np.array([3, 5, 8, 9, 3], np.uint16), np.array([0, 1, 0, 2, 1])
    )
    groups = (Group("a", "queries"), Group("b", "queries"), Group("c", "kernel"))
    query = np.array([0, 1, 0, -1, 2])
    case = simulate_on(machine, segments, groups, query, span_ns=(0, SECOND), seed=3)
    assert len(case.recording.segments.cpu) == len(t0)
    np.testing.assert_array_equal(case.recording.segments.group, segments.group)
    assert case.recording.machine.cpu_core is not None
    slots = case.recording.machine.slots(case.recording.segments.cpu)
    core = case.recording.machine.cpu_core[slots]
    assert core[0] == core[1] != core[2]
    assert len(case.recording.machine.packages) == 2
    owned = case.truth.group_nj["package"].sum() + case.truth.idle_nj["package"]
    assert owned == pytest.approx(case.truth.total_nj["package"], rel=1e-9)
    np.testing.assert_array_equal(case.truth.query_group, [0, 1, 1])
