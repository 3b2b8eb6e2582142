# SPDX-License-Identifier: Apache-2.0
"""The calibration's file, and whether it fits a machine or a trace."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from calibrations import DOMAINS, MACHINE, MEASURED, calibration, trace_meta, written
from qjoule.errors import QjouleError
from qjoule.machine import calibration as module
from qjoule.machine.calibration import MAX_BYTES, load, machine_file, match, parse
from qjoule.machine.identity import Frequency, Identity, Package, of_trace, this_machine
from qjoule.trace.meta import DomainInfo, EnergyInfo


def test_the_file_holds_all_of_it(tmp_path: Path) -> None:
    made = calibration()
    assert load(written(tmp_path / "c.json", made)) == made
    assert json.loads(made.to_json())["schema"] == "qjoule.calibration/1"


def test_no_file_is_no_error(tmp_path: Path) -> None:
    assert load(tmp_path / "absent.json") is None


def test_unknown_keys_are_ignored() -> None:
    made = calibration()
    document = json.loads(made.to_json()) | {"colour": "blue"}
    document["identity"]["rack"] = 7
    assert parse(json.dumps(document).encode()) == made


def spoil(change: Callable[[dict[str, Any]], object]) -> bytes:
    document: dict[str, Any] = json.loads(calibration().to_json())
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"schema": "qjoule.calibration/2"}',
        spoil(lambda d: d.pop("coefficients")),
        spoil(lambda d: d.pop("identity")),
        spoil(lambda d: d.update(domains=7)),
        spoil(lambda d: d.update(domains=[])),
        spoil(lambda d: d.update(date="yesterday")),
        spoil(lambda d: d.update(date="0001-01-01T00:00:00+14:00")),
        spoil(lambda d: d["coefficients"].update(a=float("nan"))),
        spoil(lambda d: d["coefficients"].update(a=-1.0)),
        spoil(lambda d: d["coefficients"].update(a="much")),
        spoil(lambda d: d["coefficients"].update(shared_w=[{"package": 9}])),
        spoil(lambda d: d["coefficients"].update(surprise=1)),
        spoil(lambda d: d["held_out_error"].update(package=-0.1)),
        spoil(lambda d: d["held_out_error"].update(package=10**400)),
        spoil(lambda d: d["identified"]["v"].update(low=9.0)),
        spoil(lambda d: d.update(notes="a note")),
    ],
)
def test_damage_is_told_in_one_line(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c.json").write_bytes(text)
    with pytest.raises(QjouleError) as told:
        load(tmp_path / "c.json")
    assert "is no calibration" in str(told.value)
    assert len(str(told.value)) < 500
    assert "\n" not in str(told.value)


def test_an_infinity_written_as_a_number_is_damage() -> None:
    text = calibration().to_json().replace("0.9", "1e999")
    with pytest.raises(ValueError, match="not finite"):
        parse(text.encode())


def test_a_file_without_end_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(QjouleError, match="larger"):
        load(tmp_path / "c.json")
    with pytest.raises(QjouleError, match="cannot read"):
        load(tmp_path)


def test_it_fits_its_own_machine_and_its_traces() -> None:
    made = calibration()
    assert match(made, MACHINE) == module.Match()
    assert match(made, of_trace(trace_meta()), trace_meta()) == module.Match()


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (replace(MACHINE, cpu="Example CPU 7000"), "another CPU"),
        (replace(MACHINE, cpu="", signature="GenuineIntel 6-106-6"), "another CPU"),
        (replace(MACHINE, packages=(Package(0, 4, 8),)), "another topology"),
        (replace(MACHINE, packages=(Package(0, 4, 4), Package(1, 4, 4))), "another topology"),
    ],
)
def test_another_machine_is_refused(other: Identity, word: str) -> None:
    refused = match(calibration(), other).refused
    assert len(refused) == 1
    assert word in refused[0]


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (replace(MACHINE, machine="f" * 32, host="db2"), "another host (db1)"),
        (replace(MACHINE, machine="", host="db2"), "another host (db1)"),
        (replace(MACHINE, governor="powersave"), "governor performance, not powersave"),
        (replace(MACHINE, frequency=Frequency(1_000_000, 2_500_000, "off")), "1.00 to 2.50 GHz"),
        (replace(MACHINE, microcode="0x1"), "microcode"),
        (replace(MACHINE, kernel="7.2.0"), "kernel 6, not 7"),
    ],
)
def test_a_machine_that_changed_is_flagged(changed: Identity, word: str) -> None:
    found = match(calibration(), changed)
    assert not found.refused
    assert len(found.flagged) == 1
    assert word in found.flagged[0]


def test_what_is_not_known_is_no_difference() -> None:
    assert match(calibration(), Identity()) == module.Match()
    renamed = replace(MACHINE, host="db1.example.org")  # the same machine id
    assert match(calibration(), renamed) == module.Match()


def test_age() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    made = calibration(date=(now - timedelta(days=181)).isoformat())
    assert match(made, MACHINE, None, now).flagged == ("is 181 days old",)
    assert not match(made, MACHINE, None, now - timedelta(days=1)).flagged
    later = match(made, MACHINE, None, now - timedelta(days=500)).flagged
    assert later == ("was made 319 days later",)


def test_another_energy() -> None:
    made, machine = calibration(), of_trace(trace_meta())
    dram = (*trace_meta().domains, DomainInfo(1, "dram", 1e-6))
    refused = match(made, machine, trace_meta(domains=dram)).refused
    assert refused == ("it knows nothing of dram of package 1",)
    fewer = trace_meta(domains=trace_meta().domains[:1])
    assert match(made, machine, fewer) == module.Match()
    estimated = trace_meta(energy=EnergyInfo("estimated", "estimated"))
    assert "measured energy" in match(made, machine, estimated).refused[0]
    perf = trace_meta(energy=EnergyInfo("perf", "measured"))
    assert match(made, machine, perf).flagged == ("was made by powercap, not perf",)
    blind = trace_meta(counters=())
    assert "counters" in match(made, machine, blind).flagged[0]


def test_flags_of_the_recording_stay() -> None:
    made = calibration(flags=("was made with governor performance, not powersave",))
    assert match(made, of_trace(trace_meta()), trace_meta()).flagged == made.flags


def test_text_of_a_hostile_file_is_one_harmless_line() -> None:
    made = calibration(replace(MACHINE, host="\x1b[2J\nroot# " + "x" * 5000))
    assert "\x1b" not in made.origin
    assert "\n" not in made.origin
    (flag,) = match(made, replace(MACHINE, machine="a" * 32)).flagged
    assert "\x1b" not in flag
    assert len(flag) <= 200


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert machine_file() == Path("/var/lib/qjoule/calibration.json")
    (tmp_path / "qjoule").mkdir()
    own = written(tmp_path / "qjoule" / "calibration.json")
    assert machine_file() == own
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert machine_file() == Path("/var/lib/qjoule/calibration.json")


def test_a_home_that_cannot_be_entered_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv(
        "XDG_CONFIG_HOME", str(tmp_path / ("x" * 300))
    )  # ENAMETOOLONG, also for root
    assert machine_file() == Path("/var/lib/qjoule/calibration.json")


def test_identity_of_a_machine(tmp_path: Path) -> None:
    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")

    put("etc/machine-id", "0123456789abcdef0123456789abcdef")
    put("proc/sys/kernel/osrelease", "6.1.0")
    block = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\nstepping : 1\nmodel name : E\n"
    put("proc/cpuinfo", block + "microcode : 0xa0011d1")
    for cpu in (0, 1):
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        put(f"{folder}/topology/physical_package_id", "0")
        put(f"{folder}/topology/core_id", "0")
        put(f"{folder}/topology/thread_siblings_list", "0-1")
        put(f"{folder}/cpufreq/scaling_governor", ("performance", "powersave")[cpu])
        put(f"{folder}/cpufreq/scaling_min_freq", "1500000")
        put(f"{folder}/cpufreq/scaling_max_freq", str(3_000_000 + cpu))
    put("sys/devices/system/cpu/cpufreq/boost", "0")
    found = this_machine(tmp_path)
    assert found.packages == (Package(0, 1, 2),)
    assert found.governor == "performance,powersave"
    assert found.frequency == Frequency(1_500_000, 3_000_001, "off")
    assert (found.cpu, found.signature) == ("E", "AuthenticAMD 25-1-1")
    assert (found.microcode, found.kernel) == ("0xa0011d1", "6.1.0")
    assert len(found.machine) == 32
    assert found.machine != "0123456789abcdef0123456789abcdef", "the id itself is confidential"
    put("etc/machine-id", "uninitialized")
    assert this_machine(tmp_path).machine == ""


def test_domains_and_grade_are_said() -> None:
    assert calibration(energy=MEASURED, domains=DOMAINS).origin.endswith("by powercap (measured)")
