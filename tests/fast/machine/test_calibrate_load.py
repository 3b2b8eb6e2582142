# SPDX-License-Identifier: Apache-2.0
"""`qjoule-load`: every kernel does its work, on the requested CPUs, and ends when asked."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.accuracy.machine import Topology
from bench.accuracy.quick_run import cpu_info

from qjoule.errors import QjouleError
from qjoule.machine import load
from qjoule.machine.load import BusyWatch, running
from qjoule.machine.steps import IDLE, KERNELS, WAKEUP_RATES, Step, plan_steps, wakeup_rate

SOURCES = Path(__file__).parents[3] / "tracer" / "load"
SANITIZE = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
WAIT_S = 60.0
MASK = 2**64 - 1
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
    found: dict[str, Any] = report
    return found


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The program with sanitizers, once it says that it is ready."""
    command = [str(build(*SANITIZE)), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
        yield process


def test_integer() -> None:
    chain = [0x9E3779B97F4A7C15 * (i + 1) & MASK for i in range(4)]
    for step in range(8192):
        for i in range(4):
            mixed = (chain[i] * 0xD1342543DE82EF95 + 1) & MASK
            chain[i] ^= ((mixed << 23 | mixed >> 41) + step) & MASK
    report = run("integer", 1, *SANITIZE)
    assert report["operations"] == 4 * 8192
    assert report["result"] == chain[0] ^ chain[1] ^ chain[2] ^ chain[3]


@pytest.mark.parametrize("flags", [SANITIZE, ()])
def test_floating_point(flags: tuple[str, ...]) -> None:
    """Each element moves a quarter of the remaining distance towards 1, 32 times per piece."""
    report = run("floating_point", 1, *flags)
    count = report["bytes"] // 8
    assert report["operations"] == 32 * count
    expected = sum(1 + (i - 1) * 0.75**32 for i in range(count))
    assert abs(report["result"] - expected) <= 1
    assert run("floating_point", 20, *flags)["result"] == count


def test_cache() -> None:
    report = run("cache", 3, *SANITIZE)
    lines = report["bytes"] // LINE
    memory, total = [0] * lines, 0
    for _ in range(3):
        for i in range(lines):
            total = (total + memory[i]) & MASK
            memory[i] = total ^ (i * 8)
    assert report["operations"] == 3 * lines
    assert report["result"] == total


def test_stream() -> None:
    report = run("stream", 5, *SANITIZE)
    assert report["operations"] == report["result"] == 5 * 4096


def test_chase_visits_every_line() -> None:
    report = run("chase", 3, *SANITIZE)
    lines = 1 << ((report["bytes"] // LINE).bit_length() - 1)

    def next_line(line: int, lines: int) -> int:
        return (line * 0x2C9277B5 + 0x3C6EF35F) % lines

    at = 0
    for _ in range(3 * 4096):
        at = next_line(at, lines)
    assert (report["operations"], report["result"]) == (3 * 4096, at)
    visited = set()
    for _ in range(4096):
        visited.add(at := next_line(at, 4096))
    assert len(visited) == 4096


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
        *("", "wakeups 0 1", "wakeups: 0 1", "wakeups:0 0 1", "wakeups:-5 0 1", "prime 0 1"),
        *("wakeups:20001 0 1", "wakeups:99999999999999999999 0 1", "wakeups:10x 0 1"),
        *("integer 0", "integer 0, 1", "integer 3-1 1", "integer 99999 1", "integer 0 0"),
        *("integer 0 -1", "integer 0 nan", "integer 0 1x", "integer 0 1 0", "integer 0 1 2 3"),
    ],
)
def test_a_wrong_command_line(arguments: str) -> None:
    command = [str(build(*SANITIZE)), *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: qjoule-load KERNEL CPUS SECONDS")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told(number: signal.Signals) -> None:
    with started("cache", str(CPU), "3600") as process:
        process.send_signal(number)
        assert json.loads(process.communicate(timeout=WAIT_S)[0])["kernel"] == "cache"
        assert process.returncode == 0


def test_it_ends_with_its_parent() -> None:
    program = str(build(*SANITIZE))
    script = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen([{program!r}, 'integer', '{CPU}', '3600'], stdout=-1)\n"
        "p.stdout.readline()\nprint(p.pid)\nsys.stdout.flush()\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- what calibrate does with it ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ((1, 1, 1), [(1, False)]),
        ((1, 2, 1), [(1, False), (2, False)]),
        ((1, 8, 2), [(1, False), (4, False), (8, False), (2, True), (16, True)]),
        ((2, 4, 2), [(2, False), (4, False), (8, False), (4, True), (16, True)]),
        ((1, 1, 2), [(1, False), (2, True)]),
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
        of = [one for one in info.cpus if one.cpu in cpus]
        assert {step.kernel for step in loads if step.cpus == cpus} == set(KERNELS)
        assert {one.package for one in of} == set(info.packages), "every package has work"
        siblings = {one.siblings for one in of}
        assert len(cpus) == len(siblings) * (len(of[0].siblings) if smt else 1)
    assert 30 <= sum(step.seconds for step in steps) <= 100
    assert sum(step.seconds for step in plan_steps(info, short=True)) <= 25


@pytest.mark.parametrize("topology", [(1, 1, 2), (1, 2, 1), (2, 4, 2)])
def test_wake_ups_at_every_rate_between_the_other_phases(topology: tuple[int, int, int]) -> None:
    info = cpu_info(Topology(*topology))
    steps = [step for step in plan_steps(info) if wakeup_rate(step.kernel)]
    cores = {one.cpu: one.siblings for one in info.cpus}
    ends = ("", "_beside") if info.cores > len(info.packages) else ("",)
    names = [f"wakeups_{rate}{end}" for rate in WAKEUP_RATES for end in ends]
    assert sorted(step.kernel for step in steps) == sorted(names)
    for step in steps:
        assert (len(step.cpus), step.seconds) == (1, 1.0)
        assert bool(step.beside) is step.kernel.endswith("_beside")
        assert not [cpu for cpu in step.beside if step.cpus[0] in cores[cpu]], "no sibling"
    apart = [i for i, step in enumerate(plan_steps(info)) if wakeup_rate(step.kernel)]
    assert max(apart) - min(apart) > len(apart)


def test_the_rate_in_a_name() -> None:
    assert wakeup_rate("wakeups_100") == 100
    assert wakeup_rate("wakeups_10000_beside") == 10000
    others = ("wakeups_", "wakeups_0", "wakeups_100_", "integer", "wakeups_1\n", "wakeups_999999")
    assert not any(map(wakeup_rate, others))


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
        wait_until(lambda: watch._read() > watch._busy_s)
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
        wait_until(lambda: not any(map(is_running, load_running.pids)))
