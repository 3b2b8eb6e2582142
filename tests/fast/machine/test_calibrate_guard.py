# SPDX-License-Identifier: Apache-2.0
"""What ends a quick calibration: other programs' work, waiting threads, power; and its options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from calibrations import MACHINE, calibration, written
from qjoule.cli import cli
from qjoule.commands import calibrate_quick
from qjoule.commands.calibrate_quick import Quick, known_before
from qjoule.errors import QjouleError, UsageError
from qjoule.machine.guard import Guard, Limits, LoadRose, Reading, own_cpu_s, read_stat
from qjoule.machine.load import Running
from qjoule.machine.steps import IDLE, Step
from qjoule.model.coefficients import Coefficients
from qjoule.session import quick_calibrating
from qjoule.session.calibrating import Done
from qjoule.session.power_watch import PowerWatch
from qjoule.session.quick_calibrating import Bounds, QuickRun

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


def watched(machine: Machine) -> Guard:
    guard = Guard(LIMITS, machine.read)
    use = guard.begin(2.0, machine.sleep)
    assert use.busy_cpus == pytest.approx(machine.foreign)
    return guard


def looks(machine: Machine, guard: Guard, seconds: float) -> None:
    for _ in range(round(seconds / 0.1)):
        machine.sleep(0.1)
        guard.check()


def test_our_own_load_is_no_rise() -> None:
    machine = Machine()
    guard = watched(machine)
    machine.own = 2.0
    looks(machine, guard, 5.0)


def test_a_rise_ends_it_within_a_second() -> None:
    machine = Machine()
    guard = watched(machine)
    looks(machine, guard, 1.0)
    machine.foreign = 3.0
    begin_s = machine.t_s
    with pytest.raises(LoadRose, match=r"use 2\.\d CPUs, and used 1\.0"):
        looks(machine, guard, 5.0)
    assert machine.t_s - begin_s <= 1.0


def test_a_short_burst_does_not() -> None:
    machine = Machine()
    guard = watched(machine)
    looks(machine, guard, 1.0)
    machine.foreign = 3.0
    looks(machine, guard, 0.1)
    machine.foreign = 1.0
    looks(machine, guard, 2.0)


def test_waiting_threads_end_it() -> None:
    machine = Machine()
    guard = watched(machine)
    machine.runnable = CPUS + 5
    with pytest.raises(LoadRose, match=r"threads wait for a CPU, and 0\.0 did"):
        looks(machine, guard, 5.0)


def test_threads_that_waited_before_are_no_rise() -> None:
    machine = Machine()
    machine.runnable = CPUS + 5
    guard = watched(machine)
    machine.runnable = CPUS + 6
    looks(machine, guard, 3.0)


# ---- /proc/stat ----------------------------------------------------------------------------------

STAT = (
    "cpu  30 0 10 900 60 0 0 0 0 0\ncpu0 10 0 10 400 30 0 0 0 0 0\n"
    "cpu1 20 0 0 500 30 0 0 0 0 0\nintr 5\nprocs_running 3\n"
)


def test_a_kernels_text() -> None:
    busy_s, runnable = read_stat(STAT)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert busy_s == {0: pytest.approx(20 * tick_s), 1: pytest.approx(20 * tick_s)}
    assert runnable == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cpu  1 2 3 4 5\n",
        "cpu0 1 2 3 4 5\n",
        "procs_running 3\n",
        STAT.replace("400", "x"),
        "cpu0 1 2\nprocs_running 3\n",
        "cpu0 1 2 3 4 5\nprocs_running\n",
    ],
)
def test_no_such_text(text: str) -> None:
    with pytest.raises(QjouleError, match="/proc/stat"):
        read_stat(text)


def test_the_time_of_our_own_processes(tmp_path: Path) -> None:
    base = own_cpu_s(())
    (tmp_path / "7").mkdir()
    fields = " ".join(map(str, range(3, 30)))
    (tmp_path / "7/stat").write_text(f"7 (a ) b) {fields}\n")
    ticks = 14 + 15  # utime and stime, fields 14 and 15 of proc(5)
    found = own_cpu_s((7, 8), tmp_path)
    assert found - base == pytest.approx(ticks / os.sysconf("SC_CLK_TCK"), abs=0.02)
    (tmp_path / "7/stat").write_text("garbage")
    assert own_cpu_s((7,), tmp_path) - base < 0.02


# ---- power ---------------------------------------------------------------------------------------


def readings(*rows: tuple[float, int | None], **changes: object) -> dict[str, pa.Table]:
    """(seconds, joules) of a counter of 1 mJ that wraps at 100 J."""
    fixed = {"package": 0, "domain": "package", "unit_j": 1e-3, "range": 100_000} | changes
    made = [
        {"t_ns": round(t_s * 1e9), "raw": None if joules is None else joules * 1000 % 100_000}
        | fixed
        for t_s, joules in rows
    ]
    return {"energy": pa.Table.from_pylist(made)}


def test_power_above_the_start() -> None:
    watch = PowerWatch()
    assert watch.above_w() is None
    watch.see(readings((0, 0), (1, 30), (2, 60)))
    assert watch.start_w == pytest.approx(30.0)
    watch.begun()
    watch.see(readings((3, 110), (4, 160)))  # it wraps
    assert watch.last_w == pytest.approx(50.0)
    assert watch.above_w() == pytest.approx(20.0)
    watch.see({})
    assert watch.above_w() == pytest.approx(20.0)


def test_readings_that_tell_nothing() -> None:
    watch = PowerWatch()
    watch.see(readings((0, None), (1, None)))
    watch.see(readings((1, 1)))
    watch.see(readings((2, 5), (3, 9), domain="dram"))
    assert watch.last_w is None
    watch.see(readings((4, 90), (5, 3), range=None, package=1))  # it went back
    assert watch.last_w == 0.0


def test_packages_add_up_and_the_platform_does_not() -> None:
    watch = PowerWatch()
    tables = [readings((0, 0), (1, 10))["energy"] for _ in range(3)]
    second = readings((0, 0), (1, 10), package=1)["energy"]
    platform = readings((0, 0), (1, 90), domain="psys")["energy"]
    watch.see({"energy": pa.concat_tables([tables[0], second, platform])})
    assert watch.last_w == pytest.approx(20.0)


# ---- a run ---------------------------------------------------------------------------------------

STEPS = [Step(IDLE if i % 2 == 0 else "integer", (), False, 0.4) for i in range(21)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()

    @contextmanager
    def running(step: Step) -> Iterator[Running]:
        one.own = 0.0 if step.kernel == IDLE else 1.0
        try:
            yield Running(True, (1,))
        finally:
            one.own = 0.0

    monkeypatch.setattr(quick_calibrating, "running", running)
    return one


def a_run(machine: Machine, power: PowerWatch, most_w: float | None = None) -> QuickRun:
    bounds = Bounds(LIMITS, most_w)
    run = QuickRun(bounds, power, lambda: None, machine.read, machine.sleep)
    run.begin(1.0)
    return run


def nothing(_done: Done) -> None:
    pass


def rises_after(machine: Machine, seconds: float) -> None:
    at_s = machine.t_s + seconds

    def later() -> None:
        machine.foreign = 3.0 if machine.t_s > at_s else 1.0

    machine.on_sleep = later


def test_a_whole_run(machine: Machine) -> None:
    run, seen = a_run(machine, PowerWatch()), list[Done]()
    done, why = run.run(STEPS, seen.append)
    assert [one.step for one in done] == STEPS
    assert seen == done
    assert not why


def test_a_rise_late_in_a_run_keeps_what_was_measured(machine: Machine) -> None:
    run = a_run(machine, PowerWatch())
    rises_after(machine, 8.0)
    done, why = run.run(STEPS, nothing)
    assert len(STEPS) / 2 < len(done) < len(STEPS)
    assert "stopped after" in why
    assert machine.own == 0.0, "the load has ended"


def test_a_rise_early_in_a_run_leaves_nothing(machine: Machine) -> None:
    run = a_run(machine, PowerWatch())
    rises_after(machine, 2.0)
    with pytest.raises(LoadRose, match=r"stopped after \d of 10 loads"):
        run.run(STEPS, nothing)
    assert machine.own == 0.0


def test_power_ends_a_run(machine: Machine) -> None:
    power = PowerWatch()
    power.see(readings((0, 0), (1, 30)))
    run = a_run(machine, power, most_w=10.0)
    machine.on_sleep = lambda: power.see(readings((2, 60), (3, 130)))
    with pytest.raises(LoadRose, match=r"W more than at the start are drawn, and 10 W are allowed"):
        run.run(STEPS, nothing)


def test_a_recording_that_failed_ends_a_run(machine: Machine) -> None:
    def failed() -> None:
        if machine.t_s > 103:
            raise QjouleError("the recording was cut off")

    run = QuickRun(Bounds(LIMITS), PowerWatch(), failed, machine.read, machine.sleep)
    run.begin(1.0)
    with pytest.raises(QjouleError, match="cut off"):
        run.run(STEPS, nothing)
    assert machine.own == 0.0


# ---- options -------------------------------------------------------------------------------------


def calibrate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seconds", "30"),
        ("--rise", "10"),
        ("--waiting", "1"),
        ("--most-cores", "2"),
        ("--most-watts", "5"),
        ("--anew",),
        ("--quick", "--short"),
        ("--quick", "--busy"),
        ("--quick", "--seconds", "5"),
        ("--quick", "--rise", "0"),
        ("--quick", "--rise", "nan"),
        ("--quick", "--most-cores", "0"),
        ("--quick", "--most-watts", "0"),
    ],
)
def test_options_that_make_no_sense(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    result = calibrate(*arguments)
    assert result.exit_code == 2 or isinstance(result.exception, UsageError)


QUICK = Quick(60.0, 15.0, 2.0, None, None, anew=False)


def test_what_was_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.json"
    monkeypatch.setattr(calibrate_quick, "machine_file", lambda: file)
    assert known_before(QUICK, MACHINE) == (Coefficients(), ())
    made = calibration()
    written(file, made)
    known, notes = known_before(QUICK, MACHINE)
    assert known == made.coefficients
    assert notes == (f"refines the calibration of {made.origin}",)
    assert known_before(replace(QUICK, anew=True), MACHINE) == (Coefficients(), ())
    known, notes = known_before(QUICK, replace(MACHINE, cpu="Another"))
    assert known == Coefficients()
    assert "not used: it is of another CPU" in notes[0]
    file.write_text("{")
    known, notes = known_before(QUICK, MACHINE)
    assert known == Coefficients()
    assert "is no calibration" in notes[0]
