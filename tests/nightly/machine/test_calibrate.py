# SPDX-License-Identifier: Apache-2.0
"""`qjoule calibrate` as a whole, on a package whose power is known.

How precise the results can be depends on how quiet this machine is. What the calibration claims
must be true on any machine. On a quiet one it must make claims, with narrow intervals.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from qjoule.machine.calibration import load
from qjoule.machine.identity import this_machine
from qjoule.machine.steps import wakeup_rate
from qjoule.trace.reader import Trace
from servers.process import DatabaseServer
from tracing.animated_rapl import AnimatedRapl, animated_rapl
from tracing.recording import QJOULE, qjoule

pytestmark = pytest.mark.root
WAIT_S = 60.0
#: Below this busy share of the idle phases, idle and shared power can be separated.
QUIET = 0.2


@pytest.fixture(scope="module", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The temporary directory of every calibration here, used by nobody else."""
    folder = tmp_path_factory.mktemp("temporary")
    folder.chmod(0o1777)  # as /tmp
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def rapl() -> Iterator[AnimatedRapl]:
    with animated_rapl(idle_w=30.0, shared_w=12.0, cpu_w=9.0) as running:
        yield running


@pytest.fixture(scope="module")
def calibrated(
    rapl: AnimatedRapl, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """The calibration file, the kept trace, and the printed JSON."""
    folder = tmp_path_factory.mktemp("calibrate")
    file, trace = folder / "new" / "c.json", folder / "trace"
    options = ("--short", "--busy", "--json", "-o", str(file), "--keep", str(trace))
    done = qjoule("calibrate", "--energy", rapl.option, *options)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return file, trace, document


def test_the_known_powers_lie_about_the_printed_intervals(
    calibrated: tuple[Path, Path, dict[str, Any]], rapl: AnimatedRapl
) -> None:
    """Within twice the interval's width: of two intervals of 95 %, one run in ten misses, as
    expected.

    And within 2 % of the package's power, which an interval from scatter alone does not cover: a
    CPU that the host takes away is busy by one clock and not by another.
    """
    _, _, document = calibrated
    truth = {
        "idle_w.package.0": rapl.idle_w,
        "shared_w.package.0": rapl.shared_w,
    }
    for name, watts in truth.items():
        found = document["identified"][name]
        allowed_w = found["high"] - found["low"] + 0.02 * (rapl.idle_w + rapl.shared_w)
        assert abs(found["value"] - watts) <= allowed_w, (name, found)


def test_a_quiet_machine_tells_them_narrowly(
    calibrated: tuple[Path, Path, dict[str, Any]], rapl: AnimatedRapl
) -> None:
    _, _, document = calibrated
    idle = [phase for phase in document["phases"] if phase["kernel"] == "idle"]
    drawn_w = [phase["power_w"]["package.0"] for phase in idle]
    # Above idle, the package draws its shared and CPU power in proportion to how busy it is.
    busy = max(drawn_w) - rapl.idle_w
    if busy > QUIET * rapl.shared_w:
        pytest.skip(f"other programs run: an idle phase draws {max(drawn_w):.1f} W")
    found = document["identified"]["idle_w.package.0"]
    assert found["ok"]
    assert found["high"] - found["low"] < 0.3 * rapl.idle_w
    shared = document["identified"]["shared_w.package.0"]
    # One busy core, and all of them if there are two: saturation could explain as much.
    assert shared["high"] - shared["low"] < 2 * rapl.shared_w
    awake_w = rapl.idle_w + rapl.shared_w
    assert found["value"] + shared["value"] == pytest.approx(awake_w, rel=0.25)


def test_every_kernel_was_measured(
    calibrated: tuple[Path, Path, dict[str, Any]], rapl: AnimatedRapl
) -> None:
    _, trace, document = calibrated
    phases = document["phases"]
    kernels = {phase["kernel"] for phase in phases}
    steady = {kernel for kernel in kernels if wakeup_rate(kernel) is None}
    assert steady == {"idle", "integer", "floating_point", "cache", "stream", "chase"}
    assert {"wakeups_100", "wakeups_1000", "wakeups_10000"} <= kernels
    assert max(phase["threads"] for phase in phases) == len(psutil.Process().cpu_affinity() or [])
    for phase in phases:
        assert phase["windows"] > 0.2 * (phase["t1_ns"] - phase["t0_ns"]) / 20e6, phase
        assert phase["power_w"]["package.0"] > 0.9 * rapl.idle_w, phase
    loads = Trace(trace).pandas("owners")
    assert (loads["process_comm"] == "qjoule-load").any()


def test_the_file_is_of_this_machine(calibrated: tuple[Path, Path, dict[str, Any]]) -> None:
    file, _, document = calibrated
    made = load(file)
    assert made is not None
    assert json.loads(made.to_json()) == document == json.loads(file.read_text())
    assert made.identity == this_machine()
    assert made.coefficients.calibrated
    assert made.quick
    assert file.stat().st_mode & 0o444 == 0o444
    assert file.stat().st_uid == 0
    assert [one.name for one in file.parent.iterdir()] == ["c.json"]


@pytest.mark.server
def test_a_trace_takes_it_along(
    calibrated: tuple[Path, Path, dict[str, Any]],
    rapl: AnimatedRapl,
    mariadb: DatabaseServer,
    tmp_path: Path,
) -> None:
    options = ("-d", "1", "--pid", str(mariadb.pid), "--energy", rapl.option)
    done = qjoule(
        "record", "-o", str(tmp_path / "t"), *options, "--calibration", str(calibrated[0])
    )
    assert done.returncode == 0, done.stderr
    assert "calibrated 20" in done.stderr
    shown = qjoule("attribute", str(tmp_path / "t"), "--format", "json")
    model = json.loads(shown.stdout)["model"]
    assert model["calibrated"] is True
    assert model["calibration_flags"] == []
    live = (
        "-b",
        "-n",
        "1",
        "-d",
        "0.5",
        "--json",
        *options[2:],
        "--calibration",
        str(calibrated[0]),
    )
    shown = qjoule("top", *live)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["interval"]["model"]["calibrated"] is True


def test_without_energy_counters_it_says_so(tmp_path: Path) -> None:
    if Path("/sys/class/powercap/intel-rapl:0").exists():
        pytest.skip("this machine has RAPL")
    for energy in ("auto", "none", "estimated:10,20,30,40"):
        file = tmp_path / "c.json"
        done = qjoule("calibrate", "--energy", energy, "-o", str(file))
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "cannot calibrate" in done.stderr
        assert not file.exists()


def test_a_machine_in_use_is_calibrated_quickly(rapl: AnimatedRapl, tmp_path: Path) -> None:
    """Beside a program that keeps a third of one CPU busy, with a limit on cores and power."""
    file = tmp_path / "c.json"
    limits = ("--rise", "100", "--waiting", "1000", "--most-cores", "1", "--most-watts", "500")
    options = ("--energy", rapl.option, "--seconds", "25", "--anew", "--json", "-o", str(file))
    with working(0.33):
        done = qjoule("calibrate", "--quick", *limits, *options)
    if "cores are idle" in done.stderr:
        pytest.skip("other tests leave no core idle")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["quick"]
    assert any("beside other programs" in note for note in document["notes"])
    phases = document["phases"]
    assert {phase["kernel"] for phase in phases[::2]} == {"idle"}
    assert max(phase["threads"] for phase in phases) <= 2
    seconds = (phases[-1]["t1_ns"] - phases[0]["t0_ns"]) * 1e-9
    assert seconds <= 25 + WAIT_S / 10
    idle = document["identified"]["idle_w.package.0"]
    assert idle["low"] <= 1.1 * (rapl.idle_w + rapl.shared_w)
    made = load(file)
    assert made is not None
    assert made.coefficients.calibrated


def test_a_quick_run_stops_when_the_machine_gets_busy(rapl: AnimatedRapl, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    command = [QJOULE, "calibrate", "--quick", "--waiting", "1", "--energy", rapl.option]
    with subprocess.Popen(
        [*command, "-o", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        if not load_or_end(process):
            words = process.communicate(timeout=WAIT_S)[1]
            assert "cores are idle" in words or "stopped after" in words
            pytest.skip("other tests leave no core idle")
        with spinning(4 * (os.cpu_count() or 1)):
            words = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 1, words
    assert "stopped after" in words.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def load_or_end(process: subprocess.Popen[str]) -> bool:
    """Waits until the first load runs, or the calibration has ended; says whether one runs."""
    deadline = time.monotonic() + WAIT_S
    while process.poll() is None and time.monotonic() < deadline:
        family = psutil.Process(process.pid).children(recursive=True)
        if any(one.name() == "qjoule-load" for one in alive(family)):
            return True
        time.sleep(0.02)
    return False


@contextmanager
def working(share: float) -> Iterator[None]:
    """A program that is busy for this share of the time."""
    script = (
        "import time\n"
        "while True:\n"
        "    end = time.monotonic() + 0.01\n"
        "    while time.monotonic() < end: pass\n"
        f"    time.sleep({0.01 / share - 0.01})\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_machine_at_work_is_refused(rapl: AnimatedRapl, tmp_path: Path) -> None:
    cpus = os.cpu_count() or 1
    with spinning(cpus):
        options = ("--energy", rapl.option, "-o", str(tmp_path / "c.json"))
        done = qjoule("calibrate", "--short", *options)
    assert done.returncode == 1
    assert "not idle" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@contextmanager
def spinning(count: int) -> Iterator[None]:
    processes = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_half_way_it_leaves_nothing(
    rapl: AnimatedRapl, tmp_path: Path, how: signal.Signals
) -> None:
    scratch, file = tmp_path / "tmp", tmp_path / "c.json"
    scratch.mkdir(mode=0o1777)
    scratch.chmod(0o1777)
    process = subprocess.Popen(
        [QJOULE, "calibrate", "--busy", "--short", "--energy", rapl.option, "-o", str(file)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        family = until_load_runs(process.pid)
        process.send_signal(how)
        words = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == (-how if how == signal.SIGKILL else 130)
    assert "Traceback" not in words
    deadline = time.monotonic() + WAIT_S
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in alive(family)):
        assert time.monotonic() < deadline, f"still there: {alive(family)}"
        time.sleep(0.02)
    while list(scratch.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not file.exists()


def until_load_runs(pid: int) -> list[psutil.Process]:
    """Waits until the first load is among a calibration's processes; returns all of them."""
    deadline = time.monotonic() + WAIT_S
    while True:
        family = psutil.Process(pid).children(recursive=True)
        if any(one.name() == "qjoule-load" for one in alive(family)):
            assert len(family) >= 3, "the command, the tracer and the load"
            return family
        assert time.monotonic() < deadline, "no load was started"
        time.sleep(0.02)


def alive(family: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in family if one.is_running()]


def test_not_root() -> None:
    command = [QJOULE, "calibrate"]
    unprivileged = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    done = subprocess.run(
        [*unprivileged, *command], capture_output=True, text=True, check=False, cwd="/"
    )
    if "Permission denied" in done.stderr or "ModuleNotFound" in done.stderr:
        pytest.skip("other users may not read this checkout")
    assert done.returncode == 1
    assert "needs root" in done.stderr


def test_nothing_is_left_in_the_temporary_directory(temporary: Path) -> None:
    assert not list(temporary.iterdir())
