# SPDX-License-Identifier: Apache-2.0
"""`qjoule cap`: what may be set, what is put back however it ends, and what its intervals say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from energy_probe.probe import INTEL_MAX_UJ, limited, zone
from fake_study import BASE, parse_plan
from qjoule.cli import cli
from qjoule.errors import QjouleError, UsageError
from qjoule_studies.capped import Estimate, Level, Measured, levels_of, table
from qjoule_studies.commands import cap
from qjoule_studies.cpufreq import CpuFrequency
from qjoule_studies.plan import Plan


def packages(root: Path, *watts: float, most_w: float | None = 150.0) -> list[Path]:
    """Makes packages; returns the files of their limits."""
    files = []
    for number, limit_w in enumerate(watts):
        name = f"intel-rapl:{number}"
        folder = zone(root, name, f"package-{number}", 0, INTEL_MAX_UJ).parent
        files.append(limited(folder, limit_w, most_w=most_w))
    zone(root, "intel-rapl:0:0", "core", 0, INTEL_MAX_UJ)
    return files


def cpus(tmp_path: Path) -> CpuFrequency:
    return CpuFrequency(tmp_path / "saved.json", tmp_path / "none", tmp_path / "powercap")


def plan(levels: str) -> Plan:
    return parse_plan(BASE + f"factors = {{power_limit_w = {levels}}}\n", "p.toml")


def now(files: list[Path]) -> list[str]:
    return [file.read_text().strip() for file in files]


def test_every_package_is_limited_and_has_its_own_limit_back(tmp_path: Path) -> None:
    files = packages(tmp_path / "powercap", 120.0, 110.0)
    ours = cpus(tmp_path)
    ours.check(plan("[60, 80.5]"))
    with pytest.raises(QjouleError, match="not one and the same here now: 110, 120"):
        ours.present("power_limit_w")
    ours.set({"power_limit_w": 60})
    ours.set({"power_limit_w": 80.5})
    assert now(files) == ["80500000"] * 2
    cpus(tmp_path).restore_from_before()
    assert now(files) == ["120000000", "110000000"]
    assert not (tmp_path / "saved.json").exists()


@pytest.mark.parametrize(
    ("levels", "most_w", "says"),
    [
        ("[60, 200]", 150.0, "200 W cannot be set: the hardware has 0 to 150 W"),
        ("[60, 200]", None, ""),
        ("[300]", 150.0, ""),  # as it is: a firmware may have set more than it says
    ],
)
def test_levels_outside_of_the_hardwares_limits_are_refused(
    levels: str, most_w: float | None, says: str, tmp_path: Path
) -> None:
    files = packages(tmp_path / "powercap", 300.0, most_w=most_w)
    if says:
        with pytest.raises(UsageError, match=says):
            cpus(tmp_path).check(plan(levels))
    else:
        cpus(tmp_path).check(plan(levels))
    assert now(files) == ["300000000"]


def test_a_machine_without_a_limit_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="shows no RAPL package in powercap"):
        cpus(tmp_path).check(plan("[60]"))
    counter = zone(tmp_path / "powercap", "intel-rapl:0", "package-0", 0, INTEL_MAX_UJ)
    (counter.parent / "enabled").write_text("1")
    with pytest.raises(QjouleError, match="has no long-term limit"):
        cpus(tmp_path).check(plan("[60]"))
    limited(counter.parent, 100.0, most_w=None, enabled=False)
    with pytest.raises(QjouleError, match="is not enabled, so its limit has no effect"):
        cpus(tmp_path).check(plan("[60]"))


def test_a_limit_that_the_firmware_holds_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(tmp_path / "powercap", 120.0)
    monkeypatch.setattr(Path, "write_text", lambda _path, text: len(text))
    with pytest.raises(QjouleError, match="to 60000000: it stays 120000000"):
        cpus(tmp_path).set({"power_limit_w": 60})


def test_a_greatest_frequency_leaves_the_least_as_it_is(tmp_path: Path) -> None:
    policy = tmp_path / "cpu0" / "cpufreq"
    policy.mkdir(parents=True)
    files = {"scaling_governor": "powersave", "scaling_min_freq": "800000"}
    files |= {"scaling_max_freq": "3600000", "cpuinfo_min_freq": "400000"}
    for name, value in {**files, "cpuinfo_max_freq": "3600000"}.items():
        (policy / name).write_text(value)
    ours = CpuFrequency(tmp_path / "saved.json", tmp_path)
    assert ours.present("max_frequency_mhz") == 3600.0
    parsed = parse_plan(BASE + "factors = {max_frequency_mhz = [500]}\n", "p.toml")
    with pytest.raises(UsageError, match="500 MHz cannot be set: cpu0 has 800 to 3600 MHz"):
        ours.check(parsed)
    ours.set({"max_frequency_mhz": 1200})
    assert (policy / "scaling_max_freq").read_text() == "1200000"
    assert (policy / "scaling_min_freq").read_text() == "800000"
    ours.restore()
    assert (policy / "scaling_max_freq").read_text() == "3600000"


# ---- however it ends -----------------------------------------------------------------------------

#: A run that prints `ready` once its limit is set, and then does what the test wants.
PROGRAM = """
import json, os, sys, time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from qjoule.cli import main
from qjoule_studies import capped, recording
from qjoule_studies.client import ClientReport
from qjoule_studies.commands import bench_run, cap
from qjoule_studies.rows import Figures
from qjoule_studies.runner import figures
from qjoule_studies.workload import Outcome, Target
import qjoule_studies.runner as runner

cap.PLACE = Path(sys.argv[1]) / "run"
os.geteuid = lambda: 0
does = sys.argv[2]
host = SimpleNamespace(
    ready=lambda levels: (Target("redis"), False), has_ended=False, close=lambda: None
)

def run(job, pid, trace, limit_s):
    if does == "fails":
        raise RuntimeError("a defect")
    if does == "waits":
        print("ready", flush=True)
        while True:  # a signal that comes just before a sleep is seen after it
            time.sleep(0.1)
    return ClientReport(Outcome(0, 0, 1.0, "none"), 0, 1)

def measured(trace, idle, replication, level, power_w):
    return capped_measured(replication, level, 100.0, level * 1e-3, 1e6, level, "measured")

capped_measured = capped.Measured
capped.measured = measured
bench_run._host = lambda plan: host
bench_run.recorded = lambda how: run
runner.figures = lambda *of: Figures()
import qjoule.api.traces
qjoule.api.traces.Trace = lambda path: None
sys.argv[:] = ["qjoule", "cap", *sys.argv[3:]]
main()
"""


class Machine:
    """A machine whose package has a limit of 120 W."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.saved = directory / "run" / "limits.json"
        self.started: list[subprocess.Popen[str]] = []
        (self.limit,) = packages(directory / "powercap", 120.0)

    def start(self, does: str, *arguments: str) -> subprocess.Popen[str]:
        if not arguments:
            arguments = (
                "redis",
                "--watts",
                "60",
                "--watts",
                "80",
                "-o",
                str(self.directory / "caps"),
            )
            arguments += ("--replications", "2", "--settle-seconds", "0", "--json", "--seed", "2")
        arguments += ("--energy", f"powercap:{self.directory}/powercap")
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.directory), does, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, does: str, *arguments: str) -> tuple[int, str, str]:
        process = self.start(does, *arguments)
        out, messages = process.communicate(timeout=120)
        return process.returncode, out, messages

    def waiting(self) -> subprocess.Popen[str]:
        """With a limit of the study's."""
        process = self.start("waits")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        assert now([self.limit]) != ["120000000"], "another seed begins with another level"
        return process

    @property
    def is_as_before(self) -> bool:
        return now([self.limit]) == ["120000000"] and not (self.saved).exists()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    simulated = Machine(tmp_path)
    yield simulated
    for process in simulated.started:
        process.kill()
        process.communicate()


def test_at_its_end_the_limit_is_as_before_and_the_levels_are_told(machine: Machine) -> None:
    code, out, messages = machine.run("ends")
    assert code == 0, messages
    assert machine.is_as_before
    printed = json.loads(out)
    assert (printed["factor"], printed["reference"]) == ("power_limit_w", 120.0)
    assert [level["level"] for level in printed["levels"]] == [120.0, 80.0, 60.0]
    assert [level["runs"] for level in printed["levels"]] == [2, 2, 2]
    assert printed["levels"][0]["saved"] is None
    saved = [level["saved"]["mean"] for level in printed["levels"][1:]]
    assert saved == pytest.approx([0.04, 0.06])


def test_a_defect_of_ours_leaves_no_limit(machine: Machine) -> None:
    code, _, messages = machine.run("fails")
    assert code != 0
    assert "a defect" in messages
    assert machine.is_as_before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_limit(machine: Machine, number: signal.Signals) -> None:
    process = machine.waiting()
    process.send_signal(number)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 128 + number, messages
    assert machine.is_as_before


@pytest.mark.parametrize("arguments", [("--restore",), ()])
def test_what_a_killed_one_left_is_put_back(machine: Machine, arguments: tuple[str, ...]) -> None:
    """By `--restore`, and by the next one, which goes on."""
    process = machine.waiting()
    process.kill()
    process.communicate()
    assert now([machine.limit]) != ["120000000"]
    code, _, messages = machine.run("ends", *arguments)
    assert code == 0, messages
    assert machine.is_as_before


def test_a_second_one_is_refused(machine: Machine) -> None:
    first = machine.waiting()
    try:
        code, _, messages = machine.run("ends", "--restore")
        assert code == 1
        assert "another qjoule cap works in" in messages
        assert not machine.is_as_before, "the first one's file is there"
    finally:
        first.terminate()
        first.communicate()
    assert machine.is_as_before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--watts", "60"], "give SERVER"),
        (["redis", "-o", "x"], "give SERVER"),
        (["redis", "-o", "x", "--watts", "60", "--max-mhz", "900"], "give SERVER"),
        (["sap", "-o", "x", "--watts", "60"], "target.flavour: must be one of"),
        (["redis", "-o", "x", "--watts", "60,low"], "is not a valid float"),
        (["redis", "-o", "x", "--watts", "0"], "must be numbers from 1 to 100000"),
        (["redis", "-o", "x", "--watts", "nan"], "must be numbers from 1 to 100000"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cap, "PLACE", tmp_path / "run")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    result = CliRunner().invoke(cli, ["cap", *arguments])
    assert isinstance(result.exception, UsageError) or result.exit_code == 2
    assert message in f"{result.exception}{result.output}"


def test_without_root_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(cli, ["cap", "redis", "--watts", "60", "-o", "x"])
    assert "only root may set limits" in str(result.exception)


# ---- what intervals say --------------------------------------------------------------------------


def runs(level: float, *j_per_call: float | None, grade: str = "measured") -> list[Measured]:
    return [
        Measured(number, level, 50.0, joules, 2e6, 70.0, grade)
        for number, joules in enumerate(j_per_call, 1)
    ]


REFERENCE = (1.00, 1.21, 0.93, 1.10)
LESS = (0.90, 1.10, 0.84, 1.00)  # by 0.1 each, whatever else changed
ALIKE = (1.02, 1.15, 0.99, 1.09)


def test_savings_are_of_replications_and_hold_together() -> None:
    levels = levels_of([*runs(120, *REFERENCE), *runs(80, *LESS), *runs(60, *ALIKE)], 120.0)
    assert [level.level for level in levels] == [120.0, 80.0, 60.0]
    reference, less, alike = levels
    assert reference.saved is None
    differences = np.subtract(REFERENCE, LESS)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(1 - 0.05 / 2)
    assert less.saved is not None and alike.saved is not None
    assert less.saved.mean == pytest.approx((expected.low + expected.high) / 2)
    assert less.saved.half_width == pytest.approx((expected.high - expected.low) / 2)
    assert less.saved.excludes_0
    assert not alike.saved.excludes_0
    text = table(levels, "W")
    assert "saves 0.1 ± 0.01" in text
    assert text.count("saves") == 1
    assert "no difference shown" in text and "(as it is now)" in text


def test_what_is_not_measured_is_no_saving() -> None:
    for grade in ("estimated", "none"):
        levels = levels_of([*runs(120, *REFERENCE), *runs(80, *LESS, grade=grade)], 120.0)
        assert [level.saved for level in levels] == [None, None]
        assert "saves" not in table(levels, "W")


def test_unknown_figures_and_single_runs_say_nothing() -> None:
    levels = levels_of([*runs(120, 1.0, None), *runs(80, 0.5, 0.5)], 120.0)
    assert levels[1].saved == Estimate(0.5, None)
    assert not levels[1].saved.excludes_0
    assert levels[0].j_per_call == Estimate(1.0, None)
    assert "no difference shown (0.5 ± ?)" in levels[1].verdict
    empty = Level(80.0, 0, None, None, None, None, None, "unknown")
    assert table([empty], "W").count("unknown") == 5
