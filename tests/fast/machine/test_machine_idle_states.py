# SPDX-License-Identifier: Apache-2.0
"""Idle states, from made-up files, from this machine's, and in a trace's meta.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from calibrations import calibration, trace_meta
from qjoule.machine.calibration import parse
from qjoule.machine.idle_states import MOST_STATES, check_idle_states, read_idle_states
from qjoule.trace.meta import IdleState, parse_meta

#: name, latency, residency, disable, usage, time
POLL = ("POLL", "0", "0", "0", "7", "21")
C1 = ("C1", "2", "2", "0", "100", "1000")
C6 = ("C6", "133", "600", "1", "50", "90000")
FILES = ("name", "latency", "residency", "disable", "usage", "time")


def state(root: Path, cpu: int, number: int, values: tuple[str | None, ...]) -> Path:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state{number}"
    folder.mkdir(parents=True)
    for file, value in zip(FILES, values, strict=True):
        if value is not None:
            (folder / file).write_text(value + "\n")
    return folder


def machine(root: Path) -> Path:
    for cpu in range(3):
        for number, values in enumerate((POLL, C1, C6)):
            state(root, cpu, number, values)
    (root / "sys/devices/system/cpu/cpuidle").mkdir()
    (root / "sys/devices/system/cpu/cpuidle/current_driver").write_text("intel_idle\n")
    return root


def test_the_states_of_a_machine(tmp_path: Path) -> None:
    assert read_idle_states(machine(tmp_path)) == (
        IdleState("POLL", 0, 0, cpus=3, disabled=0, usage=21, time_us=63),
        IdleState("C1", 2, 2, cpus=3, disabled=0, usage=300, time_us=3000),
        IdleState("C6", 133, 600, cpus=3, disabled=3, usage=150, time_us=270000),
    )
    line = check_idle_states(tmp_path)
    assert line.ok
    assert line.detail == "POLL 0 us, C1 2 us, C6 133 us, disabled (intel_idle)"


def test_cores_of_two_kinds(tmp_path: Path) -> None:
    state(tmp_path, 0, 0, C1)
    state(tmp_path, 1, 0, ("C1", "5", "5", "0", "1", "1"))
    assert [(one.latency_us, one.cpus) for one in read_idle_states(tmp_path)] == [(2, 1), (5, 1)]


def test_a_virtual_machine_shows_none(tmp_path: Path) -> None:
    assert read_idle_states(tmp_path) == ()
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    assert read_idle_states(tmp_path) == ()
    line = check_idle_states(tmp_path)
    assert line.ok is None
    assert "shows none" in line.detail


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # A kernel before 4.19 has no residency.
        (("C1", "2", None, "0", "1", "1"), IdleState("C1", 2, None, 1, 0, 1, 1)),
        (("C1", "2", "x", "", "-3", "1e5"), IdleState("C1", 2, None, 1, 0, None, None)),
        (("C1", "2", "9" * 30, "2", "9" * 19, "1"), IdleState("C1", 2, None, 1, 1, None, 1)),
        (("C1", "99999999999", "1", "0", "1", "1"), None),
        (("C1", "", "1", "0", "1", "1"), None),
        (("C1", "²", "1", "0", "1", "1"), None),
        ((None, "2", "1", "0", "1", "1"), None),
        (("", "2", "1", "0", "1", "1"), None),
    ],
)
def test_garbage_in_the_files(
    tmp_path: Path, values: tuple[str | None, ...], expected: IdleState | None
) -> None:
    state(tmp_path, 0, 0, values)
    assert read_idle_states(tmp_path) == ((expected,) if expected else ())


def test_names_are_safe_to_show(tmp_path: Path) -> None:
    state(tmp_path, 0, 0, ("\x1b[31m" + "C" * 5000, *C1[1:]))
    (one,) = read_idle_states(tmp_path)
    assert "\x1b" not in one.name
    assert len(one.name) <= 40
    assert "\x1b" not in check_idle_states(tmp_path).detail


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (state(tmp_path, 0, 0, C1) / "latency").write_bytes(b"\xff\xfe\x00")
    assert read_idle_states(tmp_path) == ()


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    folder = state(tmp_path, 0, 0, (*C1[:4], None, "5"))
    (folder / "usage").mkdir()
    assert read_idle_states(tmp_path) == (IdleState("C1", 2, 2, 1, 0, None, 5),)


def test_their_number_is_bounded(tmp_path: Path) -> None:
    for cpu in range(20):
        for number in range(5):
            state(tmp_path, cpu, number, (f"C{cpu}-{number}", *C1[1:]))
    assert len(read_idle_states(tmp_path)) == MOST_STATES


def test_other_folders_are_none_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu"
    state(tmp_path, 0, 0, C1).rename(folder / "cpu0/cpuidle/stateless")
    state(tmp_path, 0, 1, C1)
    (folder / "cpu0").rename(folder / "cpufreq")
    assert read_idle_states(tmp_path) == ()


def test_this_machines() -> None:
    for one in read_idle_states():
        assert one.cpus >= 1
        assert one.name


# ---- in files ------------------------------------------------------------------------------------

STATES = (IdleState("C1", 2, 2, 4, 0, 9, 9), IdleState("C6", 133, None, 4, 4))


def test_a_trace_takes_them_along() -> None:
    meta = trace_meta(idle_states=STATES)
    assert parse_meta(meta.to_json().encode()) == meta
    assert "idle_states" not in trace_meta().to_json(), "an unknown is left out"
    assert parse_meta(trace_meta().to_json().encode()).idle_states == ()


def test_a_calibration_takes_them_along() -> None:
    made = replace(calibration(), idle_states=STATES)
    assert parse(made.to_json().encode()) == made
    old = json.loads(calibration().to_json())
    del old["idle_states"]
    assert parse(json.dumps(old).encode()).idle_states == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "C1"},
        {"name": 1, "latency_us": 2},
        {"name": "C1", "latency_us": -1},
        {"name": "C1", "latency_us": 10**12},
        {"name": "C1", "latency_us": 2.5},
        {"name": "C1", "latency_us": True},
        {"name": "C1", "latency_us": 2, "residency_us": -1},
        {"name": "C1", "latency_us": 2, "cpus": -1},
        {"name": "C1", "latency_us": 2, "usage": 10**30},
        {"name": "C" * 5000, "latency_us": 2},
        [],
        None,
    ],
)
def test_a_hostile_file(wrong: object) -> None:
    document = json.loads(trace_meta().to_json()) | {"idle_states": [wrong]}
    with pytest.raises(ValueError, match=r"idle|lacks|wrong type"):
        parse_meta(json.dumps(document).encode())


def test_too_many_in_a_file() -> None:
    document = json.loads(trace_meta(idle_states=STATES).to_json())
    document["idle_states"] *= 100
    with pytest.raises(ValueError, match="idle states"):
        parse_meta(json.dumps(document).encode())
