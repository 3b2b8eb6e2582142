# SPDX-License-Identifier: Apache-2.0
"""`qjoule calibrate` and `--calibration`: what they print, use and refuse."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import attribute_trace as hand
from calibrations import MACHINE, calibration, trace_meta, written
from qjoule.cli import cli
from qjoule.commands import calibrate, calibrated_run
from qjoule.errors import QjouleError, UsageError
from qjoule.machine import in_force
from qjoule.machine.calibration import Calibration, DomainName, Found
from qjoule.machine.identity import Identity, of_trace
from qjoule.machine.steps import IDLE, Step
from qjoule.model.coefficients import THETA, Coefficients, PowerInterval
from qjoule.model.fit.known_loads import Phase
from qjoule.reporters.calibration import render
from qjoule.session.calibrating import Done
from qjoule.trace.meta import DomainInfo, EnergyInfo
from qjoule.trace.reader import Trace


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_help_has_examples_and_the_list_has_it() -> None:
    assert "sudo qjoule calibrate --short" in run("calibrate", "--help").output
    names = [line.split()[0] for line in run("--help").output.splitlines() if line.startswith("  ")]
    assert names.index("doctor") < names.index("record") < names.index("calibrate")


@pytest.mark.parametrize(
    "arguments", [("--speed", "9"), ("--keep",), ("somewhere",), ("-o", "/tmp")]
)
def test_a_wrong_command_line(arguments: tuple[str, ...]) -> None:
    assert run("calibrate", *arguments).exit_code == 2


def test_it_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = run("calibrate")
    assert result.exit_code == 1
    assert "sudo" in str(result.exception)


@pytest.mark.parametrize(
    ("energy", "allowed"),
    [
        (EnergyInfo("powercap", "measured"), True),
        (EnergyInfo("perf", "measured"), True),
        (EnergyInfo("host", "estimated"), True),
        (EnergyInfo("replay", "simulated"), True),
        (EnergyInfo("estimated", "estimated", "powercap: no zones"), False),
        (EnergyInfo("none", "none"), False),
    ],
)
def test_a_made_up_figure_is_no_ground_to_calibrate_on(energy: EnergyInfo, allowed: bool) -> None:
    meta = trace_meta(energy=energy)
    if allowed:
        calibrated_run.check_source(meta)
        return
    with pytest.raises(QjouleError, match="cannot calibrate") as told:
        calibrated_run.check_source(meta)
    assert "intel_rapl_msr" in str(told.value)
    assert energy.reason in str(told.value)


def test_a_meter_slower_than_windows_is_no_ground_to_calibrate_on() -> None:
    slow = DomainInfo(0, "psys", 1e-9, None, None, 1_000_000_000, "power")
    meta = replace(trace_meta(energy=EnergyInfo("hwmon", "measured")), domains=(slow,))
    with pytest.raises(QjouleError, match="psys of hwmon moves once in 1 s"):
        calibrated_run.check_source(meta)


def done(kernel: str, busy_share: float, exceeds: bool = True) -> Done:
    busy = busy_share * (os.cpu_count() or 1)
    return Done(Step(kernel, (), False, 1.0), Phase(kernel, 0, 1, 0, False), busy, exceeds)


def test_a_machine_that_works_is_not_idle() -> None:
    calibrate.check_quiet(done(IDLE, 0.01), False)
    calibrate.check_quiet(done("integer", 1.0), False)
    calibrate.check_quiet(done(IDLE, 0.9), True)
    with pytest.raises(QjouleError, match=r"90% of it busy.*--busy"):
        calibrate.check_quiet(done(IDLE, 0.9), False)


def test_what_is_noted(tmp_path: Path) -> None:
    trace = Trace(hand.write(tmp_path / "t"))
    first = calibration().phases[0]
    phases = (first, replace(first, kernel="chase"), replace(first, power_w={"package.0": 25.0}))
    run_of = [done(IDLE, 0.1), done("chase", 1.0, exceeds=False), done(IDLE, 0.0)]
    text = "; ".join(calibrated_run.notes(trace, run_of, phases))
    assert "10% busy while it should have been idle" in text
    assert "too little memory" in text
    assert "idle package.0 drifted from 21.00 W to 25.00 W" in text
    assert "simulated" in text
    assert "no hardware counters" in text


# ---- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table(width: int) -> None:
    text = render(calibration(), width=width)
    flat = " ".join(text.split())
    for words in ("idle_w.package.0", "21.0 W", "20.0 … 22.0", "held out", "4.0 %", "a note"):
        assert words in flat
    assert "cannot tell: the frequency did not vary" in flat.replace("GHz² ", "")
    assert max(map(len, text.splitlines())) <= width


def test_every_coefficient_has_a_meaning() -> None:
    identified = {f"{name}.package": Found(1.0, 0.5, 1.5, True) for name in THETA}
    assert "identified" not in render(calibration(identified=identified), width=100)


def test_the_table_carries_no_escape_sequence() -> None:
    hostile = calibration(
        replace(MACHINE, host="\x1b[31mred"),
        identified={"\x1b[1m": Found(1.0, 0.0, 2.0, False, "\x07")},
        notes=("\x1b]0;title\x07",),
    )
    assert "\x1b" not in render(hostile, width=100)
    assert "\x07" not in render(hostile, width=100)


# ---- which one counts ----------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand.write(tmp_path / "t", meta={"realtime_offset_ns": time.time_ns()})


def fitting(trace: Path, **changes: Any) -> Calibration:
    """A calibration that fits the handmade trace."""
    meta = Trace(trace).meta
    domains = tuple(DomainName(one.package, one.name) for one in meta.domains)
    idle = {(domains[0].package, "package"): PowerInterval(10.0, 9.0, 11.0)}
    fields: dict[str, Any] = {
        "energy": meta.energy,
        "domains": domains,
        "counters": meta.counters,
        "coefficients": Coefficients(idle_w=idle, calibrated=True, weight_error=0.05),
    }
    return calibration(of_trace(meta), **fields | changes)


def attributed(trace: Path, *options: object) -> dict[str, Any]:
    result = run("attribute", trace, "--format", "json", *options)
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    model: dict[str, Any] = document["model"] | {"totals": document["totals_j"]}
    return model


def test_a_trace_is_attributed_by_the_calibration_it_carries(trace: Path) -> None:
    assert attributed(trace)["calibrated"] is False
    made = fitting(trace)
    written(trace / "calibration.json", made)
    model = attributed(trace)
    assert model["calibrated"] is True
    assert model["calibration"] == made.origin
    assert model["calibration_flags"] == []
    assert model["held_out_errors"] == {"package": 0.04}
    assert float(model["totals"]["idle"]) > 0
    assert attributed(trace, "--calibration", "none")["calibrated"] is False


def test_a_calibration_that_is_asked_for(trace: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "c.json", fitting(trace, date="2001-01-01T00:00:00Z"))
    model = attributed(trace, "--calibration", file)
    assert model["calibrated"] is True
    assert len(model["calibration_flags"]) == 1
    assert "days old" in model["calibration_flags"][0]


def elsewhere(trace: Path) -> Calibration:
    identity = replace(of_trace(Trace(trace).meta), cpu="Another CPU")
    return replace(fitting(trace), identity=identity)


@pytest.fixture
def other_cpu(trace: Path) -> Path:
    """The trace states the CPU on which it was recorded."""
    meta = json.loads((trace / "meta.json").read_text()) | {"cpu": "This CPU"}
    (trace / "meta.json").write_text(json.dumps(meta))
    return trace


def test_of_another_machine_it_is_not_used_and_the_report_says_so(other_cpu: Path) -> None:
    written(other_cpu / "calibration.json", elsewhere(other_cpu))
    model = attributed(other_cpu)
    assert model["calibrated"] is False
    assert [note for note in model["notes"] if "not used: it is of another CPU" in note]


def test_of_another_machine_it_is_an_error_if_asked_for(other_cpu: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "c.json", elsewhere(other_cpu))
    for arguments in (("attribute", other_cpu), ("compare", other_cpu, other_cpu)):
        result = run(*arguments, "--calibration", file)
        assert result.exit_code == 1
        assert isinstance(result.exception, QjouleError)
        assert "another CPU (Another CPU, not This CPU)" in str(result.exception)


def test_a_damaged_one(trace: Path, tmp_path: Path) -> None:
    (trace / "calibration.json").write_text("{")
    assert [note for note in attributed(trace)["notes"] if "is no calibration" in note]
    for wrong, word in ((trace / "calibration.json", "no calibration"), (tmp_path / "x", "no cal")):
        result = run("attribute", trace, "--calibration", wrong)
        assert isinstance(result.exception, QjouleError)
        assert word in str(result.exception)
    with pytest.raises(UsageError, match="directory"):
        in_force.for_trace(Trace(trace), str(tmp_path))


def test_a_replay_uses_it_too(trace: Path) -> None:
    written(trace / "calibration.json", fitting(trace))
    result = run("top", "--replay", trace, "-b", "--json", "-d", "3600")
    assert result.exit_code == 0
    last = json.loads(result.output.splitlines()[-1])
    assert last["interval"]["model"]["calibrated"] is True


# ---- this machine --------------------------------------------------------------------------------


def test_the_machines_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.json"
    monkeypatch.setattr(in_force, "machine_file", lambda: file)
    monkeypatch.setattr(in_force, "this_machine", lambda: MACHINE)
    meta = trace_meta()
    assert in_force.for_machine()(meta).coefficients is None
    assert in_force.to_record() == (None, ())
    made = calibration()
    written(file, made)
    assert in_force.for_machine()(meta).coefficients == made.coefficients
    assert in_force.for_machine("none")(meta).coefficients is None
    assert in_force.to_record() == (made, ())
    assert in_force.to_record("none") == (None, ())
    powersave = replace(MACHINE, governor="powersave")
    monkeypatch.setattr(in_force, "this_machine", lambda: powersave)
    assert in_force.to_record()[1] == ("was made with governor performance, not powersave",)
    assert in_force.for_machine()(meta).flags == in_force.to_record()[1]
    monkeypatch.setattr(in_force, "this_machine", lambda: replace(MACHINE, cpu="Another"))
    assert in_force.to_record()[0] is None
    assert "another CPU" in in_force.for_machine()(meta).notes[0]
    with pytest.raises(QjouleError, match="another CPU"):
        in_force.for_machine(str(file))
    with pytest.raises(QjouleError, match="another CPU"):
        in_force.to_record(str(file))


@pytest.mark.parametrize(
    ("machine", "text", "ok", "words"),
    [
        (MACHINE, None, False, "none: "),
        (MACHINE, calibration().to_json(), True, "on db1, by powercap"),
        (replace(MACHINE, governor="powersave"), calibration().to_json(), None, "governor"),
        (replace(MACHINE, packages=()), calibration().to_json(), True, "on db1"),
        (replace(MACHINE, cpu="Another"), calibration().to_json(), False, "not used"),
        (MACHINE, "{}", False, "is no calibration"),
    ],
)
def test_doctors_line(
    tmp_path: Path, machine: Identity, text: str | None, ok: bool | None, words: str
) -> None:
    if text is not None:
        (tmp_path / "c.json").write_text(text)
    found = in_force.check(machine, tmp_path / "c.json")
    assert found.ok is ok
    assert words in found.detail
    assert bool(found.fix) is (ok is not True)
