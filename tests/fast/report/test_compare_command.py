# SPDX-License-Identifier: Apache-2.0
"""Speedup, greenup, powerup, and the command that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import attribute_trace as hand
from qjoule.commands.attribute import command as attribute_command
from qjoule.commands.compare import command
from qjoule.errors import QjouleError
from qjoule.model.gpsup import Form, category, compare, match


def form(name: str, joules: float | None, latency_ns: float | None, spread: float = 0.1) -> Form:
    ends = None if joules is None else (joules * (1 - spread), joules * (1 + spread))
    return Form(name, "", 1, joules, ends, latency_ns)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_powerup_is_speedup_over_greenup() -> None:
    found = compare(form("a", 6.0, 8e6), form("b", 2.0, 2e6))
    assert (found.speedup, found.greenup) == (4.0, 3.0)
    assert found.powerup == pytest.approx(4 / 3)
    assert found.greenup_ci95 == pytest.approx((5.4 / 2.2, 6.6 / 1.8))
    low, high = found.powerup_ci95 or (0, 0)
    assert low < 4 / 3 < high
    assert found.category == "green: faster, more power"


@pytest.mark.parametrize(
    ("speedup", "greenup", "expected"),
    [
        (2.0, 3.0, "green: faster, less power"),
        (0.5, 2.0, "green: slower, less power"),
        (2.0, 0.5, "red: faster, more power"),
        (0.5, 0.9, "red: slower, less power"),
        (0.5, 0.2, "red: slower, more power"),
        (None, 1.0, "unknown"),
    ],
)
def test_categories(speedup: float | None, greenup: float | None, expected: str) -> None:
    assert category(speedup, greenup) == expected


def test_overlapping_intervals_are_not_separable() -> None:
    found = compare(form("a", 1.0, 1e6, 0.3), form("b", 0.9, 1e6, 0.3))
    assert found.category == "energy not separable"


def test_an_unknown_stays_unknown() -> None:
    found = compare(form("a", None, 1e6), form("b", 1.0, None))
    assert (found.speedup, found.greenup, found.powerup) == (None, None, None)


def test_a_lower_end_of_zero_leaves_the_ratio_unbounded() -> None:
    found = compare(form("a", 1.0, 1e6), form("b", 1.0, 1e6, 1.0))
    assert found.greenup_ci95 == (0.45, float("inf"))


def test_matching_is_by_name_or_by_pair() -> None:
    old, new = [form("x", 1, 1), form("y", 1, 1)], [form("y", 2, 2), form("z", 2, 2)]
    assert [(a.name, b.name) for a, b in match(old, new)] == [("y", "y")]
    assert [(a.name, b.name) for a, b in match(old, new, [("x", "z")])] == [("x", "z")]
    with pytest.raises(KeyError):
        match(old, new, [("z", "x")])


def test_a_trace_and_its_json_compare_as_one(tmp_path: Path) -> None:
    trace, exported = hand.write(tmp_path / "t"), tmp_path / "a.json"
    arguments = [str(trace), "--format", "json", "-o", str(exported)]
    assert CliRunner().invoke(attribute_command, arguments).exit_code == 0
    found = json.loads(run(trace, exported, "--json").output)
    assert [row["base"]["name"] for row in found["rows"]] == ["aaaa", "bbbb"]
    assert {row["greenup"] for row in found["rows"]} == {1.0}
    table = run(trace, trace, "--pair", "aaaa=bbbb").output
    assert "select a" in table
    assert "simulated (A)" in table


@pytest.mark.parametrize(
    "arguments", [["--pair", "aaaa"], ["--pair", "aaaa=none"], ["--pair", "=b"]]
)
def test_a_pair_that_is_none_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    trace = hand.write(tmp_path / "t")
    error = run(trace, trace, *arguments).exception
    assert isinstance(error, QjouleError)
    assert "\n" not in str(error)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', "[" * 100_000, '{"schema": "x/2"}'])
def test_a_file_that_is_no_attribution_is_one_line(tmp_path: Path, text: str) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(text)
    assert isinstance(run(broken, broken).exception, QjouleError)
    assert isinstance(run(tmp_path / "none", broken).exception, QjouleError)
