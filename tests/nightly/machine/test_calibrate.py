# SPDX-License-Identifier: Apache-2.0
"""`qjoule calibrate` as a whole, on a package whose power is known.

What the calibration claims must be true on any machine. How much it can claim depends on how quiet
this one is, so tests/fast/machine/test_calibrate_load.py demands that of simulated machines.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from qjoule.machine.calibration import load
from qjoule.machine.identity import this_machine
from tracing.animated_rapl import AnimatedRapl, animated_rapl
from tracing.recording import QJOULE, qjoule
from waiting import is_running, until

pytestmark = pytest.mark.root
WAIT_S = 60.0
#: Busy for a third of the time.
THIRD = """
import time
while True:
    end = time.monotonic() + 0.01
    while time.monotonic() < end: pass
    time.sleep(0.02)
"""


@pytest.fixture(scope="module", autouse=True)
def _temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The temporary directory of every calibration here; none leaves anything in it."""
    folder = tmp_path_factory.mktemp("temporary")
    folder.chmod(0o1777)  # as /tmp
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield
    assert not list(folder.iterdir())


@pytest.fixture(scope="module")
def rapl() -> Iterator[AnimatedRapl]:
    with animated_rapl(idle_w=30.0, shared_w=12.0, cpu_w=9.0) as running:
        yield running


@pytest.fixture(scope="module")
def calibration(rapl: AnimatedRapl, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a short calibration."""
    folder = tmp_path_factory.mktemp("calibrate")
    file = folder / "c.json"
    options = ("--short", "--busy", "--json", "-o", str(file))
    done = qjoule("calibrate", "--energy", rapl.option, *options)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout) == json.loads(file.read_text())
    return file


def test_the_known_powers_are_near_the_printed_intervals(
    calibration: Path, rapl: AnimatedRapl
) -> None:
    """Within twice the interval's width, and 2 % of the package's power: a CPU that the host takes
    away is busy by one clock and not by another.
    """
    document = json.loads(calibration.read_text())
    idle, shared = (document["identified"][f"{n}_w.package.0"] for n in ("idle", "shared"))
    for estimate, true_w in ((idle, rapl.idle_w), (shared, rapl.shared_w)):
        width_w = estimate["high"] - estimate["low"]
        allowed_w = width_w + 0.02 * (rapl.idle_w + rapl.shared_w)
        assert abs(estimate["value"] - true_w) <= allowed_w, estimate
    kernels = {phase["kernel"] for phase in document["phases"]}
    assert {"integer", "floating_point", "cache", "stream", "chase", "wakeups_10000"} < kernels
    for phase in document["phases"]:
        assert phase["windows"] > 0.2 * (phase["t1_ns"] - phase["t0_ns"]) / 20e6, phase
        assert phase["power_w"]["package.0"] > 0.9 * rapl.idle_w, phase


def test_the_file_is_of_this_machine_and_everybody_may_read_it(calibration: Path) -> None:
    loaded = load(calibration)
    assert loaded is not None
    assert loaded.identity == this_machine()
    assert loaded.coefficients.calibrated
    assert loaded.quick
    assert calibration.stat().st_mode & 0o444 == 0o444
    assert calibration.stat().st_uid == 0
    assert [path.name for path in calibration.parent.iterdir()] == ["c.json"]


def test_a_machine_in_use_is_calibrated_quickly(rapl: AnimatedRapl, tmp_path: Path) -> None:
    """Beside a program that keeps a third of one CPU busy, with a limit on cores and power."""
    file = tmp_path / "c.json"
    limits = ("--rise", "100", "--waiting", "1000", "--most-cores", "1", "--most-watts", "500")
    options = ("--energy", rapl.option, "--seconds", "25", "--anew", "--json", "-o", str(file))
    with working(1, sys.executable, "-c", THIRD):
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
    loaded = load(file)
    assert loaded is not None
    assert loaded.coefficients.calibrated


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_half_way_it_leaves_nothing(
    rapl: AnimatedRapl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    scratch.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(scratch))
    options = ("--busy", "--short", "--energy", rapl.option)
    with calibrating(tmp_path / "c.json", *options) as process:
        family = until_load_runs(process)
        assert len(family) >= 3, "the command, the tracer and the load"
        process.send_signal(ending)
        messages = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == (-ending if ending == signal.SIGKILL else 130)
    assert "Traceback" not in messages
    until(lambda: not any(is_running(process.pid) for process in family), f"the end of {family}")
    until(lambda: not list(scratch.iterdir()))
    assert not (tmp_path / "c.json").exists()


@contextmanager
def calibrating(file: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [QJOULE, "calibrate", *options, "-o", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process


def until_load_runs(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes of a calibration once its first load runs; none if it has ended before."""
    deadline = time.monotonic() + WAIT_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(psutil.NoSuchProcess):  # one that ended between two looks
            family = psutil.Process(process.pid).children(recursive=True)
            if any(process.name() == "qjoule-load" for process in family):
                return family
        time.sleep(0.02)
    return []


@contextmanager
def working(count: int, *command: str) -> Iterator[None]:
    """Runs other programs that keep the machine busy, for the block."""
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
