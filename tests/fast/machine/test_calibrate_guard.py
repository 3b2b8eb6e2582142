# SPDX-License-Identifier: Apache-2.0
"""What ends a quick calibration: other programs' work, threads that wait, power, and a failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from qjoule.errors import QjouleError
from qjoule.machine.load import Guard, Limits, LoadRose, Reading, Running, read_stat
from qjoule.machine.steps import IDLE, Step
from qjoule.session import calibrating
from qjoule.session.calibrating import Bounds, Done, PowerWatch, QuickRun

CPUS = 4
LIMITS = Limits(rise=1.0, waiting=2.0)


class Machine:
    """A machine of CPUS CPUs whose clock moves when somebody sleeps."""

    def __init__(self, foreign: float = 1.0) -> None:
        self.t_s, self.foreign, self.own, self.runnable = 100.0, foreign, 0.0, 1
        self._foreign_s = self._own_s = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.t_s += seconds
        self._foreign_s += seconds * self.foreign
        self._own_s += seconds * self.own
        self.on_sleep()

    def read(self) -> Reading:
        each = (self._foreign_s + self._own_s) / CPUS
        return Reading(self.t_s, dict.fromkeys(range(CPUS), each), self.runnable, self._own_s)


def guarded(machine: Machine) -> Callable[[float], None]:
    """Begins to watch the machine; the result checks it for some seconds."""
    guard = Guard(LIMITS, machine.read)
    assert guard.begin(2.0, machine.sleep).busy_cpus == pytest.approx(machine.foreign)

    def check_for(seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            machine.sleep(0.1)
            guard.check()

    return check_for


def test_our_own_load_and_a_short_burst_are_no_rise() -> None:
    machine = Machine()
    check_for = guarded(machine)
    machine.own = 2.0
    check_for(5.0)
    machine.foreign = 3.0
    check_for(0.1)
    machine.foreign = 1.0
    check_for(2.0)


def test_a_rise_ends_it_within_a_second() -> None:
    machine = Machine()
    check_for = guarded(machine)
    check_for(1.0)
    machine.foreign = 3.0
    begin_s = machine.t_s
    with pytest.raises(LoadRose, match=r"use 2\.\d CPUs, and used 1\.0"):
        check_for(5.0)
    assert machine.t_s - begin_s <= 1.0


def test_threads_that_wait_end_it_unless_they_waited_before() -> None:
    machine = Machine()
    check_for = guarded(machine)
    machine.runnable = CPUS + 5
    with pytest.raises(LoadRose, match=r"threads wait for a CPU, and 0\.0 did"):
        check_for(5.0)
    check_for = guarded(machine)
    machine.runnable = CPUS + 6
    check_for(3.0)


# ---- /proc ---------------------------------------------------------------------------------------

STAT = (
    "cpu  30 0 10 900 60 0 0 0 0 0\ncpu0 10 0 10 400 30 0 0 0 0 0\n"
    "cpu1 20 0 0 500 30 0 0 0 0 0\nintr 5\nprocs_running 3\n"
)
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("damaged", ["", "cpu0 1 2\nprocs_running 3\n", STAT.replace("400", "x")])
def test_busy_seconds_and_runnable_threads_of_the_kernel(damaged: str) -> None:
    busy_s, runnable = read_stat(STAT)
    assert busy_s == pytest.approx({0: 20 * TICK_S, 1: 20 * TICK_S})
    assert runnable == 3
    with pytest.raises(QjouleError, match="/proc/stat"):
        read_stat(damaged)


# ---- power ---------------------------------------------------------------------------------------


def readings(*rows: tuple[float, int | None], **changes: object) -> dict[str, pa.Table]:
    """(seconds, joules) of a counter of 1 mJ that wraps at 100 J."""
    fixed = {"package": 0, "domain": "package", "unit_j": 1e-3, "range": 100_000, "die": 0}
    fixed |= changes
    rows_of_counter = [
        {"t_ns": round(t_s * 1e9), "raw": None if joules is None else joules * 1000 % 100_000}
        | fixed
        for t_s, joules in rows
    ]
    return {"energy": pa.Table.from_pylist(rows_of_counter)}


def test_power_above_the_start() -> None:
    watch = PowerWatch()
    assert watch.above_w() is None
    watch.see(readings((0, 0), (1, 30), (2, 60)))
    assert watch.start_w == pytest.approx(30.0)
    watch.begun()
    watch.see(readings((3, 110), (4, 160)))  # it wraps
    assert watch.last_w == pytest.approx(50.0)
    psys = readings((3, 0), (4, 900), domain="psys")["energy"]
    die = readings((4, 7), (5, 17), die=1)["energy"]
    watch.see({"energy": pa.concat_tables([readings((4, 160), (5, 210))["energy"], psys, die])})
    assert watch.above_w() == pytest.approx(30.0), "the platform contains the packages' dies"


# ---- a run ---------------------------------------------------------------------------------------

STEPS = [Step(IDLE if i % 2 == 0 else "integer", (), False, 0.4) for i in range(21)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose own load ends with each test."""
    simulated = Machine()

    @contextmanager
    def running(step: Step) -> Iterator[Running]:
        simulated.own = 0.0 if step.kernel == IDLE else 1.0
        try:
            yield Running(True, (1,))
        finally:
            simulated.own = 0.0

    monkeypatch.setattr(calibrating, "running", running)
    yield simulated
    assert simulated.own == 0.0


def run_of(
    machine: Machine,
    power: PowerWatch | None = None,
    most_w: float | None = None,
) -> tuple[list[Done], str]:
    bounds = Bounds(LIMITS, most_w)
    run = QuickRun(bounds, power or PowerWatch(), lambda: None, machine.read, machine.sleep)
    run.begin(1.0)
    reported = list[Done]()
    done, why = run.run(STEPS, reported.append)
    assert reported == done
    return done, why


def rises_after(machine: Machine, seconds: float) -> None:
    at_s = machine.t_s + seconds
    machine.on_sleep = lambda: setattr(machine, "foreign", 3.0 if machine.t_s > at_s else 1.0)


def test_a_rise_late_in_a_run_keeps_what_was_measured(machine: Machine) -> None:
    done, why = run_of(machine)
    assert [measured.step for measured in done] == STEPS
    assert not why
    rises_after(machine, 9.0)
    done, why = run_of(machine)
    assert len(STEPS) / 2 < len(done) < len(STEPS)
    assert "stopped after" in why


def test_a_rise_early_in_a_run_leaves_nothing(machine: Machine) -> None:
    rises_after(machine, 3.0)
    with pytest.raises(LoadRose, match=r"stopped after \d of 10 loads"):
        run_of(machine)


def test_power_ends_a_run(machine: Machine) -> None:
    power = PowerWatch()
    power.see(readings((0, 0), (1, 30)))
    machine.on_sleep = lambda: power.see(readings((2, 60), (3, 130)) if machine.own else {})
    with pytest.raises(LoadRose, match=r"W more than at the start are drawn, and 10 W are allowed"):
        run_of(machine, power, most_w=10.0)
