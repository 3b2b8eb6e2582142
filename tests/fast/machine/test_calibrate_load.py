# SPDX-License-Identifier: Apache-2.0
"""`qjoule-load`: every kernel does its work, on the requested CPUs, and ends when asked. Also:
what a quick calibration beside a running load finds.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from studies.bench.accuracy.engine_run import attribute, calibrated, meta_of, phases_and_windows
from studies.bench.accuracy.machine import Topology
from studies.bench.accuracy.outcomes import shape_error
from studies.bench.accuracy.quick_run import cpu_info, own_groups, quick_calibrate
from studies.bench.accuracy.recording import Case
from studies.bench.accuracy.scenarios import make_case

from qjoule.engine.accounts import idle_table
from qjoule.errors import QjouleError
from qjoule.machine import load
from qjoule.machine.load import BusyWatch, running
from qjoule.machine.steps import (
    IDLE,
    KERNELS,
    LOAD_S,
    QUICK_SETTLE_S,
    REST_S,
    WAKEUP_RATES,
    Step,
    Use,
    loaded_cores,
    plan_quick,
    plan_steps,
    wakeup_rate,
)
from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.known_loads import CalibrationFit, MachineInUse, fit_calibration
from waiting import is_running, until

SOURCES = Path(__file__).parents[3] / "tracer" / "load"
SANITIZE = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LINE = 64
CPU = min(os.sched_getaffinity(0))


@functools.cache
def build(*flags: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="qjoule-load-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "qjoule-load"
    fixed = ("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
    sources = map(str, sorted(SOURCES.glob("*.c")))
    subprocess.run([*fixed, *(flags or ("-O3",)), *sources, "-o", str(program)], check=True)
    return program


def run(kernel: str, pieces: int, *flags: str) -> dict[str, Any]:
    command = [str(build(*flags)), kernel, str(CPU), "1", str(pieces)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    ready, report = map(json.loads, done.stdout.splitlines())
    assert (ready["ready"], ready["threads"]) == (True, 1)
    assert (report["kernel"], report["cpu"]) == (kernel.partition(":")[0], CPU)
    result: dict[str, Any] = report
    return result


@pytest.mark.parametrize(
    ("kernel", "operations"),
    [
        ("integer", lambda _: 4 * 8192),
        ("floating_point", lambda size: 32 * size // 8),
        ("cache", lambda size: size // LINE),
        ("stream", lambda _: 4096),
        ("chase", lambda _: 4096),
    ],
)
def test_a_kernel_does_its_work(kernel: str, operations: Callable[[int], int]) -> None:
    report = run(kernel, 3, *SANITIZE)
    assert report["operations"] == 3 * operations(report["bytes"])
    assert report["result"]


def test_a_wake_up_is_a_voluntary_switch_and_computes_for_twenty_microseconds() -> None:
    """A thread that is late does not sleep. The work ends by the clock, so less CPU time means that
    something else had the CPU.
    """
    report = run("wakeups:500", 200, *SANITIZE)
    assert (report["wakeups"], report["rate"]) == (200, 500)
    assert 20 <= report["switches"] <= 201
    assert 5_000 <= report["cpu_ns"] / report["wakeups"] <= 500_000


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "prime 0 1", "wakeups: 0 1", "wakeups:20001 0 1", "wakeups:10x 0 1", "integer 0"),
        *("integer 0, 1", "integer 3-1 1", "integer 99999 1", "integer 0 nan", "integer 0 1 2 3"),
    ],
)
def test_a_wrong_command_line(arguments: str) -> None:
    command = [str(build(*SANITIZE)), *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: qjoule-load KERNEL CPUS SECONDS")


# ---- what calibrate does with it ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ((1, 1, 1), [(1, False)]),
        ((1, 8, 2), [(1, False), (4, False), (8, False), (2, True), (16, True)]),
        ((2, 4, 2), [(2, False), (4, False), (8, False), (4, True), (16, True)]),
    ],
)
def test_the_phases_of_a_machine(
    topology: tuple[int, int, int], expected: list[tuple[int, bool]]
) -> None:
    info = cpu_info(Topology(*topology))
    steps = plan_steps(info)
    loads = [step for step in steps if step.kernel in KERNELS]
    assert list(dict.fromkeys((len(step.cpus), step.smt) for step in loads)) == expected
    assert steps[0].kernel == steps[-1].kernel == IDLE
    assert steps[0].seconds == max(step.seconds for step in steps)
    for cpus, smt in {(step.cpus, step.smt) for step in loads}:
        of = [cpu for cpu in info.cpus if cpu.cpu in cpus]
        assert {step.kernel for step in loads if step.cpus == cpus} == set(KERNELS)
        assert {cpu.package for cpu in of} == set(info.packages), "every package has work"
        siblings = {cpu.siblings for cpu in of}
        assert len(cpus) == len(siblings) * (len(of[0].siblings) if smt else 1)
    assert 30 <= sum(step.seconds for step in steps) <= 100
    assert sum(step.seconds for step in plan_steps(info, short=True)) <= 25
    rates = {wakeup_rate(step.kernel) for step in steps}
    assert rates == {None, *WAKEUP_RATES}


def children() -> set[str]:
    """Process ids; servers of other tests may be among them."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_step_runs_as_long_as_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "installed_program", lambda _: build())
    watch, before = BusyWatch(), children()
    with running(Step("wakeups_1000_beside", (CPU,), False, 1.0, (CPU,))) as step:
        assert step.exceeds_cache
        mine = [Path(f"/proc/{pid}/cmdline") for pid in children() - before]
        kernels = {path.read_bytes().split(b"\0")[1] for path in mine}
        until(lambda: watch._read() > watch._busy_s)
    assert kernels == {b"wakeups:1000", b"integer"}
    assert not [path for path in mine if path.exists()]
    assert watch.cpus() > 0


def test_a_load_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for program, cpu, reason in ((build(), 1023, "CPU 1023"), (tmp_path / "absent", 0, "start")):
        monkeypatch.setattr(load, "installed_program", lambda _, program=program: program)
        with pytest.raises(QjouleError, match=reason), running(Step("cache", (cpu,), False, 1.0)):
            pytest.fail("it started")


def test_a_load_that_ends_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "load"
    program.write_text('#!/bin/sh\necho \'{"ready": true, "exceeds_cache": true}\'\n')
    program.chmod(0o755)
    monkeypatch.setattr(load, "installed_program", lambda _: program)
    step = Step("cache", (0,), False, 1.0)
    with pytest.raises(QjouleError, match="ended by itself"), running(step) as load_running:
        until(lambda: not any(map(is_running, load_running.pids)))


# ---- what a quick calibration beside a running load finds, on simulated machines -----------------

SCENARIO, SEED, FOREIGN = "noisy_neighbours", 2, 0.3


@cache
def cases() -> tuple[Case, Case]:
    """The same machine, calibrated while idle, and by a quick run beside 30 % of other load."""
    quick = make_case(SCENARIO, SEED, partial(quick_calibrate, foreign=FOREIGN))
    return make_case(SCENARIO, SEED), quick


def fit(quick: Case, before: Coefficients) -> CalibrationFit:
    """A quick run's calibration, on a machine of which `before` was known before."""
    assert quick.calibration is not None
    table = idle_table(meta_of(quick.calibration))
    around = MachineInUse(own_groups(quick.calibration), before, idle_table=table)
    return fit_calibration(*phases_and_windows(quick), around)


def error(case: Case, coefficients: Coefficients) -> float:
    ledger = attribute(case.recording, coefficients, refit=True)
    ledger.grow(len(case.recording.groups))
    return shape_error(case, ledger.domains["package"].energy_nj.astype(np.float64))


def test_a_full_run_on_an_idle_machine_tells_its_power_at_rest_within_a_few_percent() -> None:
    case, _ = cases()
    estimate, true_w = calibrated(case).idle_w[0, "package"], case.truth.idle_w[0, "package"]
    assert estimate.low_w <= true_w <= estimate.high_w
    assert estimate.high_w - estimate.low_w < 0.06 * true_w


def test_power_at_rest_is_as_uncertain_as_it_changed_between_the_rests_of_a_run() -> None:
    """The same machine, steady and with fans that move all of its power."""
    for seed in (1, 3):
        steady, moved = (
            make_case(f"{kind}collinear", seed) for kind in ("", "warming_and_wander/")
        )
        narrow, wide = (calibrated(case).idle_w[0, "package"] for case in (steady, moved))
        assert wide.sigma_w > 2.0 * narrow.sigma_w
        assert wide.low_w <= moved.truth.idle_w[0, "package"] <= wide.high_w


def test_it_is_nearly_as_good_as_a_full_one_and_refines_it() -> None:
    case, quick = cases()
    full = calibrated(case)
    alone, refined = fit(quick, Coefficients()), fit(quick, full)
    alone_error = error(case, alone.coefficients)
    assert alone_error < 0.5 * error(case, Coefficients())
    assert alone_error < error(case, full) + 0.015
    assert error(case, refined.coefficients) < 0.03
    before, after = (
        coefficients.idle_w[0, "package"] for coefficients in (full, refined.coefficients)
    )
    assert after.sigma_w <= 1.05 * before.sigma_w + 0.02 * before.value_w
    assert not alone.notes
    assert [note for note in refined.notes if "refined" in note and "package" in note]


# ---- the plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "threads", "busy", "allowed"),
    [
        *((4, 1, 0.0, 2), (4, 1, 0.5, 1), (8, 1, 0.25, 3), (64, 2, 0.1, 26)),
        *((1, 1, 0.0, 0), (4, 1, 0.9, 0)),
    ],
)
def test_at_most_half_of_the_idle_cores(
    cores: int, threads: int, busy: float, allowed: int
) -> None:
    info = cpu_info(Topology(1, cores, threads))
    use = Use({cpu.cpu: busy for cpu in info.cpus})
    if not allowed:
        with pytest.raises(QjouleError, match=r"cores are idle"):
            loaded_cores(info, use)
        return
    assert len(loaded_cores(info, use)) == allowed
    assert len(loaded_cores(info, use, 1)) == 1
    use = Use({0: 0.9, 1: 0.05, 2: 0.8, 3: 0.0, 5: 0.0, 7: 0.3})
    assert loaded_cores(cpu_info(Topology(1, 4, 2)), use) == [(1, 5)], "the quietest"


@pytest.mark.parametrize("topology", [Topology(1, 2, 1), Topology(2, 16, 2)])
@pytest.mark.parametrize("seconds", [60.0, 20.0])
def test_every_load_is_beside_rests(topology: Topology, seconds: float) -> None:
    info = cpu_info(topology)
    cores = loaded_cores(info, Use({cpu.cpu: 0.1 for cpu in info.cpus}))
    steps = plan_quick(info, cores, seconds, Random(1))
    assert steps == plan_quick(info, cores, seconds, Random(1))
    assert topology.cores == 2 or steps != plan_quick(info, cores, seconds, Random(2))
    assert sum(step.seconds + QUICK_SETTLE_S for step in steps) <= seconds
    assert {step.kernel for step in steps[::2]} == {IDLE}
    loads = steps[1::2]
    assert IDLE not in {step.kernel for step in loads}
    assert {step.seconds for step in steps} == {LOAD_S, REST_S}
    if seconds == 60.0:
        assert set(KERNELS) < {step.kernel for step in loads}
        often = {rate for rate in WAKEUP_RATES if rate >= 100}
        assert {wakeup_rate(step.kernel) for step in loads} == {None, *often}
    allowed = {cpu for core in cores for cpu in core}
    for step in loads:
        assert {*step.cpus, *step.beside} <= allowed
        assert not {*step.cpus} & {*step.beside}
