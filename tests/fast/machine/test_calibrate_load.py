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
from pathlib import Path
from typing import Any

import pytest

from qjoule.errors import QjouleError
from qjoule.machine import load
from qjoule.machine.cpu import Cpu, CpuInfo
from qjoule.machine.guard import Limits, LoadRose
from qjoule.machine.load import BusyWatch, running
from qjoule.machine.steps import IDLE, KERNELS, WAKEUP_RATES, Step, plan_steps, wakeup_rate
from qjoule.session.calibrating import Done
from qjoule.session.power_watch import PowerWatch
from qjoule.session.quick_calibrating import Bounds, QuickRun

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
    assert ready["ready"] is True
    assert ready["threads"] == 1
    assert (report["kernel"], report["cpu"]) == (kernel.partition(":")[0], CPU)
    found: dict[str, Any] = report
    return found


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


def next_line(line: int, lines: int) -> int:
    return (line * 0x2C9277B5 + 0x3C6EF35F) % lines


def test_chase() -> None:
    report = run("chase", 3, *SANITIZE)
    lines = 1 << ((report["bytes"] // LINE).bit_length() - 1)
    at = 0
    for _ in range(3 * 4096):
        at = next_line(at, lines)
    assert report["operations"] == 3 * 4096
    assert report["result"] == at


@pytest.mark.parametrize("lines", [16, 1024, 4096])
def test_a_chase_visits_every_line(lines: int) -> None:
    seen, at = set(), 0
    for _ in range(lines):
        at = next_line(at, lines)
        seen.add(at)
    assert len(seen) == lines


def test_memory_is_farther_than_the_cache() -> None:
    """Memory is farther than the cache: a load that waits for memory against one in the L2.

    Measured in CPU time on the same CPU. The ratio is about a hundred where nothing disturbs it.
    """
    cache, chase = run("cache", 300), run("chase", 40)
    assert chase["bytes"] > 4 * cache["bytes"]
    per_access = [report["cpu_ns"] / report["operations"] for report in (cache, chase)]
    assert per_access[1] > 4 * per_access[0]


def switches_of(program: Path, rate: int, seconds: float) -> tuple[dict[str, Any], int, float]:
    """A run's report, its thread's voluntary context switches per second as /proc counts them,
    and the share of the time during which the thread waited for a CPU.
    """
    command = [str(program), f"wakeups:{rate}", str(CPU), "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
        tasks = Path(f"/proc/{process.pid}/task")
        worker = max(int(path.name) for path in tasks.iterdir())
        status, waits = tasks / str(worker) / "status", tasks / str(worker) / "schedstat"
        before, waited_ns, begin_s = voluntary(status), waiting_ns(waits), time.monotonic()
        time.sleep(seconds)
        counted, length_s = voluntary(status) - before, time.monotonic() - begin_s
        waited_s = (waiting_ns(waits) - waited_ns) / 1e9
        process.terminate()
        report = json.loads(process.communicate(timeout=WAIT_S)[0])
    return report, round(counted / length_s), waited_s / length_s


def waiting_ns(schedstat: Path) -> int:
    """How long a thread has waited for a CPU (Documentation/scheduler/sched-stats.rst)."""
    return int(schedstat.read_text().split()[1])


def voluntary(status: Path) -> int:
    lines = status.read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt")).split()[1])


@pytest.mark.parametrize(("rate", "least"), [(100, 0.8), (1000, 0.8), (10000, 0.4)])
def test_the_kernel_counts_the_wake_ups(rate: int, least: float) -> None:
    """Each wake-up is one voluntary switch. A thread that is late does not sleep, and on a busy
    machine many are late if they come every 100 us. None comes while the thread waits for a CPU.
    """
    report, counted, waiting = switches_of(build(), rate, 1.5)
    assert least * rate * (1 - waiting) <= counted <= 1.1 * rate + 20
    assert report["switches"] <= report["wakeups"] + 1


def test_a_wake_up_computes_for_twenty_microseconds() -> None:
    report = run("wakeups:500", 200, *SANITIZE)
    assert report["wakeups"] == 200
    assert report["rate"] == 500
    # The work ends by the clock, so less CPU time means that something else had the CPU.
    assert 5_000 <= report["cpu_ns"] / report["wakeups"] <= 500_000


def test_wake_ups_are_not_in_step_with_a_clock() -> None:
    """Two runs at the same rate do not wake after equal times: their results differ."""
    assert run("wakeups:1000", 50)["result"] != run("wakeups:1000", 50)["result"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("wakeups", "0", "1"),
        ("wakeups:", "0", "1"),
        ("wakeups:0", "0", "1"),
        ("wakeups:-5", "0", "1"),
        ("wakeups:20001", "0", "1"),
        ("wakeups:99999999999999999999", "0", "1"),
        ("wakeups:10x", "0", "1"),
        ("integer", "0"),
        ("prime", "0", "1"),
        ("integer", "", "1"),
        ("integer", "0,", "1"),
        ("integer", "3-1", "1"),
        ("integer", "99999", "1"),
        ("integer", "0", "0"),
        ("integer", "0", "-1"),
        ("integer", "0", "nan"),
        ("integer", "0", "1x"),
        ("integer", "0", "1", "0"),
        ("integer", "0", "1", "2", "3"),
    ],
)
def test_a_wrong_command_line(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(build(*SANITIZE)), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: qjoule-load KERNEL CPUS SECONDS")


def test_a_cpu_that_is_not_there() -> None:
    done = subprocess.run(
        [str(build(*SANITIZE)), "integer", "1023", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "CPU 1023" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told(number: signal.Signals) -> None:
    command = [str(build(*SANITIZE)), "cache", str(CPU), "3600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
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
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + WAIT_S
    while _runs(pid):
        assert time.monotonic() < deadline, "it outlives its parent"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# ---- what calibrate does with it ----------------------------------------------------------------


def machine(packages: int, cores: int, threads: int) -> CpuInfo:
    """Numbers siblings as Linux does: all first threads, then all second threads."""
    total = packages * cores
    return CpuInfo(
        *("GenuineIntel", 6, 85, 7, "Example", False),
        tuple(
            Cpu(
                n,
                n % total // cores,
                n % cores,
                tuple(n % total + i * total for i in range(threads)),
            )
            for n in range(total * threads)
        ),
    )


def widths(steps: list[Step]) -> list[tuple[int, bool]]:
    loads = (step for step in steps if step.kernel in KERNELS)
    return list(dict.fromkeys((len(step.cpus), step.smt) for step in loads))


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (machine(1, 1, 1), [(1, False)]),
        (machine(1, 2, 1), [(1, False), (2, False)]),
        (machine(1, 8, 2), [(1, False), (4, False), (8, False), (2, True), (16, True)]),
        (machine(2, 4, 2), [(2, False), (4, False), (8, False), (4, True), (16, True)]),
        (machine(1, 1, 2), [(1, False), (2, True)]),
    ],
)
def test_the_phases_of_a_machine(info: CpuInfo, expected: list[tuple[int, bool]]) -> None:
    steps = plan_steps(info)
    assert widths(steps) == expected
    assert steps[0].kernel == steps[-1].kernel == IDLE
    assert steps[0].seconds == max(step.seconds for step in steps)
    loads = [step for step in steps if step.kernel in KERNELS]
    for cpus, smt in {(step.cpus, step.smt) for step in loads}:
        of = [one for one in info.cpus if one.cpu in cpus]
        assert {step.kernel for step in loads if step.cpus == cpus} == set(KERNELS)
        assert {one.package for one in of} == set(info.packages), "every package has work"
        siblings = {one.siblings for one in of}
        assert len(cpus) == len(siblings) * (len(of[0].siblings) if smt else 1)
    assert 30 <= sum(step.seconds for step in steps) <= 100
    assert sum(step.seconds for step in plan_steps(info, short=True)) <= 25


@pytest.mark.parametrize("info", [machine(1, 1, 2), machine(1, 2, 1), machine(2, 4, 2)])
def test_wake_ups_at_every_rate(info: CpuInfo) -> None:
    steps = [step for step in plan_steps(info) if wakeup_rate(step.kernel)]
    cores = {one.cpu: one.siblings for one in info.cpus}
    several = info.cores > len(info.packages)
    names = [
        f"wakeups_{rate}{end}" for rate in WAKEUP_RATES for end in ("", "_beside")[: 1 + several]
    ]
    assert sorted(step.kernel for step in steps) == sorted(names)
    for step in steps:
        assert len(step.cpus) == 1
        assert step.seconds == 1.0
        assert bool(step.beside) is step.kernel.endswith("_beside")
        for busy in step.beside:
            assert step.cpus[0] not in cores[busy], "the busy CPU is no sibling"
    kernels = [step.kernel for step in plan_steps(info)]
    apart = [i for i, kernel in enumerate(kernels) if wakeup_rate(kernel)]
    assert max(apart) - min(apart) > len(apart), "they lie between the other phases"


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        *(("wakeups_100", 100), ("wakeups_10000_beside", 10000)),
        *(("wakeups_", None), ("wakeups_0", None), ("wakeups_100_", None), ("integer", None)),
        *(("wakeups_999999", None), ("wakeups_1\n", None), ("idle", None)),
    ],
)
def test_the_rate_in_a_name(name: str, rate: int | None) -> None:
    assert wakeup_rate(name) == rate


def test_wake_ups_beside_a_busy_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs run, and both end. (On one CPU here: it may be the only one.)"""
    monkeypatch.setattr(load, "installed_program", lambda _: build())
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())
    with running(Step("wakeups_1000_beside", (CPU,), False, 1.0, (CPU,))):
        mine = [Path(f"/proc/{pid}/cmdline") for pid in set(children.read_text().split()) - before]
        kernels = {path.read_bytes().split(b"\0")[1] for path in mine}
    assert kernels == {b"wakeups:1000", b"integer"}
    assert not [path for path in mine if path.exists()]


def test_a_step_runs_as_long_as_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "installed_program", lambda _: build())
    watch = BusyWatch()
    with running(Step("integer", (CPU,), False, 1.0)) as started:
        assert started.exceeds_cache
        busy_s = watch._busy_s
        while watch._read() < busy_s + 0.2:  # it alone keeps a CPU busy, whatever else runs
            time.sleep(0.01)
    assert watch.cpus() > 0


def test_a_load_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load, "installed_program", lambda _: build())
    with pytest.raises(QjouleError, match="CPU 1023"), running(Step("cache", (1023,), False, 1.0)):
        pytest.fail("it started")
    monkeypatch.setattr(load, "installed_program", lambda _: tmp_path / "absent")
    with pytest.raises(QjouleError, match="cannot start"), running(Step("cache", (0,), False, 1.0)):
        pytest.fail("it started")


def test_a_load_that_ends_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "load"
    program.write_text('#!/bin/sh\necho \'{"ready": true, "exceeds_cache": true}\'\n')
    program.chmod(0o755)
    monkeypatch.setattr(load, "installed_program", lambda _: program)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())  # servers of other tests
    with (
        pytest.raises(QjouleError, match="ended by itself"),
        running(Step("cache", (0,), False, 1.0)),
    ):
        deadline = time.monotonic() + WAIT_S
        while any(_runs(int(pid)) for pid in set(children.read_text().split()) - before):
            assert time.monotonic() < deadline
            time.sleep(0.01)


# ---- a quick run ---------------------------------------------------------------------------------


def test_a_quick_run_ends_when_other_programs_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real loads and a real rise; no process of ours is left."""
    monkeypatch.setattr(load, "installed_program", lambda _: build())
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())
    cpus = os.cpu_count() or 1
    run = QuickRun(Bounds(Limits(1e9, 0.5 + cpus)), PowerWatch(), lambda: None)
    run.begin(0.5)
    steps = [Step("integer", (CPU,), False, 0.3) for _ in range(40)]
    spinners: list[subprocess.Popen[bytes]] = []

    def others_begin(_done: Done) -> None:
        if not spinners:
            command = ["sh", "-c", "while :; do :; done"]
            spinners.extend(subprocess.Popen(command) for _ in range(3 * cpus + 3))

    begin_s = time.monotonic()
    try:
        with pytest.raises(LoadRose, match="threads wait for a CPU"):
            run.run(steps, others_begin)
        assert time.monotonic() - begin_s < WAIT_S
        mine = {str(one.pid) for one in spinners}
        assert not set(children.read_text().split()) - before - mine
    finally:
        for one in spinners:
            one.kill()
            one.wait()
