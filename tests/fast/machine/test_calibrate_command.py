# SPDX-License-Identifier: Apache-2.0
"""`qjoule calibrate` and `--calibration`: what they print, use and refuse."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import attribute_trace as hand
from calibrations import MACHINE, calibration, trace_meta, written
from cli_runner import invoke
from qjoule.cli import cli
from qjoule.commands import calibrate, calibrate_quick, calibrated_run
from qjoule.commands.calibrate_quick import prior_coefficients
from qjoule.commands.option_groups import Quick
from qjoule.errors import QjouleError, UsageError
from qjoule.machine import active_calibration
from qjoule.machine.calibration import Calibration, DomainName, FittedCoefficient
from qjoule.machine.identity import of_trace
from qjoule.machine.steps import IDLE, Step
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.fit.known_loads import Phase
from qjoule.reporters.calibration import render
from qjoule.session.calibrating import Done
from qjoule.trace.meta import DomainInfo, EnergyInfo
from qjoule.trace.reader import Trace

run = partial(invoke, cli)


@pytest.mark.parametrize(
    "options",
    [
        *("--speed 9", "-o /tmp", "--seconds 30", "--most-watts 5", "--quick --short"),
        *("--quick --seconds 5", "--quick --rise nan", "--quick --most-cores 0"),
    ],
)
def test_a_wrong_command_line(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    result = run("calibrate", *options.split())
    assert result.exit_code == 2 or isinstance(result.exception, UsageError)


def test_without_energy_there_is_nothing_to_fit(tmp_path: Path) -> None:
    recorded = Trace(hand.write(tmp_path / "t", energy=[], meta={"domains": ()}))
    with pytest.raises(QjouleError, match="no reading"):
        calibrated_run.summarise(recorded, MACHINE, [done(IDLE, 0.0)])


@pytest.mark.parametrize(
    ("energy", "reason"),
    [
        (EnergyInfo("powercap", "measured"), ""),
        (EnergyInfo("hwmon", "measured"), "psys of hwmon moves once in 1 s"),
        (EnergyInfo("estimated", "estimated", "powercap: no zones"), "powercap: no zones"),
        (EnergyInfo("none", "none"), "intel_rapl_msr"),
    ],
)
def test_only_a_counter_that_moves_within_windows_is_calibrated_on(
    energy: EnergyInfo, reason: str
) -> None:
    meta = trace_meta(energy=energy)
    if energy.source == "hwmon":
        slow = DomainInfo(0, "psys", 1e-9, None, None, 1_000_000_000, "power")
        meta = replace(meta, domains=(slow,))
    with pytest.raises(QjouleError, match=reason) if reason else nullcontext():
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


def test_the_table() -> None:
    text = render(calibration(), width=60)
    flat = " ".join(text.split())
    for phrase in ("idle_w.package.0", "21.0 W", "20.0 … 22.0", "held out", "4.0 %", "a note"):
        assert phrase in flat
    assert "cannot tell: the frequency did not vary" in flat.replace("GHz² ", "")
    assert max(map(len, text.splitlines())) <= 60
    identified = {"\x1b[1m": FittedCoefficient(1.0, 0.0, 2.0, False, "\x07")}
    hostile = calibration(
        replace(MACHINE, host="\x1b[31mred"), identified=identified, notes=("\x1b]",)
    )
    assert not {"\x1b", "\x07"} & set(render(hostile, width=60))


# ---- which one counts ----------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand.write(tmp_path / "t", meta={"realtime_offset_ns": time.time_ns()})


def fitting(trace: Path, **changes: Any) -> Calibration:
    """A calibration that fits the handmade trace."""
    meta = Trace(trace).meta
    domains = tuple(DomainName(domain.package, domain.name) for domain in meta.domains)
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


def test_a_trace_is_attributed_by_the_calibration_it_carries_or_that_is_asked_for(
    trace: Path, tmp_path: Path
) -> None:
    assert attributed(trace)["calibrated"] is False
    carried = fitting(trace)
    written(trace / "calibration.json", carried)
    model = attributed(trace)
    assert (model["calibrated"], model["calibration"]) == (True, carried.origin)
    assert model["calibration_flags"] == []
    assert model["held_out_errors"] == {"package": 0.04}
    assert float(model["totals"]["idle"]) > 0
    assert attributed(trace, "--calibration", "none")["calibrated"] is False
    result = run("top", "--replay", trace, "-b", "--json", "-d", "3600")
    assert json.loads(result.output.splitlines()[-1])["interval"]["model"]["calibrated"] is True
    old = written(tmp_path / "c.json", fitting(trace, date="2001-01-01T00:00:00Z"))
    model = attributed(trace, "--calibration", old)
    assert model["calibrated"] is True
    assert "days old" in model["calibration_flags"][0]


def test_of_another_machine_it_is_not_used_and_an_error_if_asked_for(
    trace: Path, tmp_path: Path
) -> None:
    meta = json.loads((trace / "meta.json").read_text()) | {"cpu": "This CPU"}
    (trace / "meta.json").write_text(json.dumps(meta))
    identity = replace(of_trace(Trace(trace).meta), cpu="Another CPU")
    theirs = replace(fitting(trace), identity=identity)
    written(trace / "calibration.json", theirs)
    model = attributed(trace)
    assert model["calibrated"] is False
    assert [note for note in model["notes"] if "not used: it is of another CPU" in note]
    file = written(tmp_path / "c.json", theirs)
    result = run("attribute", trace, "--calibration", file)
    assert (result.exit_code, type(result.exception)) == (1, QjouleError)
    assert "another CPU (Another CPU, not This CPU)" in str(result.exception)


def test_a_damaged_one(trace: Path, tmp_path: Path) -> None:
    (trace / "calibration.json").write_text("{")
    assert [note for note in attributed(trace)["notes"] if "is no calibration" in note]
    for wrong in (trace / "calibration.json", tmp_path / "absent"):
        result = run("attribute", trace, "--calibration", wrong)
        assert isinstance(result.exception, QjouleError)
        assert "no cal" in str(result.exception)


# ---- this machine --------------------------------------------------------------------------------


def test_the_machines_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, meta, own = tmp_path / "c.json", trace_meta(), calibration()
    monkeypatch.setattr(active_calibration, "machine_file", lambda: file)
    monkeypatch.setattr(active_calibration, "this_machine", lambda: MACHINE)
    assert active_calibration.for_machine()(meta).coefficients is None
    assert active_calibration.to_record() == (None, ())
    written(file, own)
    assert active_calibration.for_machine()(meta).coefficients == own.coefficients
    assert active_calibration.to_record() == (own, ())
    assert active_calibration.to_record("none") == (None, ())
    powersave = replace(MACHINE, governor="powersave")
    monkeypatch.setattr(active_calibration, "this_machine", lambda: powersave)
    flags = ("was made with governor performance, not powersave",)
    assert (
        active_calibration.to_record()[1] == active_calibration.for_machine()(meta).flags == flags
    )
    monkeypatch.setattr(active_calibration, "this_machine", lambda: replace(MACHINE, cpu="Another"))
    assert active_calibration.to_record()[0] is None
    assert "another CPU" in active_calibration.for_machine()(meta).notes[0]
    with pytest.raises(QjouleError, match="another CPU"):
        active_calibration.to_record(str(file))


def test_doctors_line(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    assert "none: " in active_calibration.check(MACHINE, file).detail
    written(file)
    changed = replace(MACHINE, governor="powersave")
    cases = ((MACHINE, True, "on db1, by powercap"), (changed, None, "governor"))
    for machine, ok, phrase in (*cases, (replace(MACHINE, cpu="Another"), False, "not used")):
        check = active_calibration.check(machine, file)
        assert (check.ok, phrase in check.detail, bool(check.fix)) == (ok, True, ok is not True)


def test_a_quick_run_refines_the_machines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Quick(60.0, 15.0, 2.0, None, None, anew=False)
    file, own = tmp_path / "c", calibration()
    monkeypatch.setattr(calibrate_quick, "machine_file", lambda: file)
    assert prior_coefficients(quick, MACHINE) == (Coefficients(), ())
    written(file, own)
    refined = (f"refines the calibration of {own.origin}",)
    assert prior_coefficients(quick, MACHINE) == (own.coefficients, refined)
    assert prior_coefficients(replace(quick, anew=True), MACHINE) == (Coefficients(), ())
    coefficients, (note,) = prior_coefficients(quick, replace(MACHINE, cpu="Another"))
    assert coefficients == Coefficients() and "not used: it is of another CPU" in note
