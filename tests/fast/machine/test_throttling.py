# SPDX-License-Identifier: Apache-2.0
"""Heat that throttled CPUs while something was recorded: read from the kernel, told in results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from captured_trace import captured_trace, eventful
from qjoule.commands import attribute
from qjoule.machine.throttling import ThrottleCounts
from qjoule.spool.convert import convert
from qjoule.trace.meta import MOST_THROTTLED, Meta, Throttled, parse_meta

#: What files may hold: nothing, no number, a number that no counter shows.
HOSTILE = ("", "-3", "3.5", "1e9", "0x10", "\x1b[31m7", "9" * 40, "12 34", "٣", "\0" * 9)


def count(root: Path, cpu: int, kind: str, text: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kind}_throttle_count").write_text(text + "\n")


def between(root: Path, before: dict[int, str], after: dict[int, str]) -> Throttled | None:
    """What is found if the cores of these CPUs have the first texts, then the second."""
    for cpu, text in before.items():
        count(root, cpu, "core", text)
    counts = ThrottleCounts(root)
    for cpu, text in after.items():
        count(root, cpu, "core", text)
    return counts.since()


def test_events_of_a_package_are_counted_once(tmp_path: Path) -> None:
    for cpu in range(4):
        count(tmp_path, cpu, "core", "10")
        count(tmp_path, cpu, "package", "100")
    counts = ThrottleCounts(tmp_path)
    assert counts.since() == Throttled(core=0, package=0)
    for cpu in range(4):
        count(tmp_path, cpu, "package", "103")
    count(tmp_path, 2, "core", "17")
    assert counts.since() == Throttled(core=7, package=3)


def test_a_kernel_without_counts_says_nothing(tmp_path: Path) -> None:
    assert ThrottleCounts(tmp_path).since() is None
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    assert ThrottleCounts(tmp_path).since() is None
    assert between(tmp_path, {}, {1: "5"}) is None, "a CPU that came later has no earlier count"


def test_counts_that_vanish_or_jump_are_not_believed(tmp_path: Path) -> None:
    assert between(tmp_path, {0: "50", 1: "7"}, {0: "2", 1: "9"}) == Throttled(core=2)
    assert between(tmp_path, {0: "0", 1: "9"}, {0: str(2**63), 1: "9"}) == Throttled(core=0)
    assert between(tmp_path, {0: "5", 1: "x"}, {0: "x", 1: "5"}) is None


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_file_breaks_a_recording(tmp_path: Path, text: str) -> None:
    assert between(tmp_path, {0: text, 1: "1"}, {0: "4", 1: "4"}) == Throttled(core=3)
    assert between(tmp_path, {0: "4", 1: "1"}, {0: text, 1: "4"}) == Throttled(core=3)


@given(st.integers(), st.integers())
def test_a_trace_holds_only_possible_numbers(core: int, package: int) -> None:
    possible = all(0 <= one <= MOST_THROTTLED for one in (core, package))
    text = json.loads(Meta().to_json()) | {"throttled": {"core": core, "package": package}}
    if possible:
        assert parse_meta(json.dumps(text).encode()).throttled == Throttled(core, package)
        return
    with pytest.raises(ValueError, match="throttled"):
        parse_meta(json.dumps(text).encode())


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Throttled(core=1_200, package=3), "(events of a core: 1,200, of a package: 3)"),
        (Throttled(package=1), "itself (events of a package: 1)"),
        (Throttled(0, 0), ""),
        (None, ""),
    ],
)
def test_a_result_tells_it(tmp_path: Path, found: Throttled | None, told: str) -> None:
    trace = tmp_path / "trace"
    captured_trace(trace, eventful(1.6), throttled=lambda: found)
    assert convert(trace).meta.throttled == found
    arguments = [str(trace), "--format", "json", "--calibration", "none"]
    result = CliRunner().invoke(attribute.command, arguments)
    notes = [one for one in json.loads(result.output)["model"]["notes"] if "throttled" in one]
    assert len(notes) == bool(told) and told in "".join(notes)
