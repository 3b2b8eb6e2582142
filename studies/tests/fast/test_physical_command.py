# SPDX-License-Identifier: Apache-2.0
"""`qjoule physical`: its screen, its JSON, what it prepares, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import attribute_trace
from qjoule.engine.attribute import attribute
from qjoule.errors import QjouleError
from qjoule.machine.facts import Check
from qjoule.trace.reader import Trace
from qjoule_studies.commands import physical, physical_plain
from qjoule_studies.physical.experiment import Experiment, Plan
from qjoule_studies.physical.judgement import Round, Verdict, judge

ROUND = Round(89.0, 86.0, 100.0, 55.0, 45.0, 20.0, 12.0, 19.9, 11.8)
ROUNDS = tuple(replace(ROUND, together_w=100.0 + x) for x in (-0.05, 0.0, 0.05))
MIB = 1 << 20


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(attribute_trace.write(tmp_path / "t"))


@pytest.fixture
def done(trace: Trace) -> Experiment:
    return Experiment(ROUNDS, 50.0, 64 * MIB, 256 * MIB, attribute(trace))


def screen(rounds: list[Round] | tuple[Round, ...], done: Experiment) -> str:
    text = "\n".join(click.unstyle(line) for line in physical_plain.render(judge(rounds), done))
    assert all(len(line) <= 80 for line in text.splitlines())
    return text


def test_the_screen_says_what_was_compared(done: Experiment) -> None:
    text = screen(ROUNDS, done)
    for words in (
        "A computes",
        "B reads memory",
        "R = A + B - both = 75.0 ± ",
        "at rest 50.0 W, so 25.0 W come with the first busy core",
        "52% : 48%",  # what subtracting rest would say
        "56.0%",
        "55.0%",
        "agrees with the machine within 11%.",
        "not calibrated",
        "under twice the cache",
    ):
        assert words in text
    assert "under twice" not in screen(ROUNDS, replace(done, cache_bytes=32 * MIB))
    same = replace(ROUND, alone_a_w=100.0, alone_b_w=100.0)
    text = screen([same, same, replace(same, together_w=100.3)], done)
    assert "cannot be judged:" in text
    assert "more or longer rounds" in text


def test_json_has_every_figure_and_nulls_for_infinities(done: Experiment) -> None:
    found = json.loads(json.dumps(physical_plain.to_json(judge(ROUNDS), done), allow_nan=False))
    assert (found["schema"], found["verdict"]) == ("qjoule.physical/1", "agrees")
    assert found["residual_w"]["value"] == pytest.approx(75)
    assert found["loads"]["A"]["physical_share"]["value"] == pytest.approx(0.56)
    assert found["loads"]["B"]["error"]["value"] == pytest.approx(0.45 / 0.44 - 1)
    flat = [replace(ROUND, alone_a_w=50.0, alone_b_w=50.0, together_w=50.0)] * 3
    found = physical_plain.to_json(judge(flat), done)
    assert json.loads(json.dumps(found, allow_nan=False))["loads"]["A"]["error"]["low"] is None
    assert found["verdict"] == Verdict.CANNOT_TELL


def test_without_a_counter_or_rights_it_says_so_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Check("powercap", False, "no zones")
    monkeypatch.setattr(physical_plain, "powercap_tree", lambda: nothing)
    monkeypatch.setattr(physical_plain, "perf_pmu", lambda: nothing)
    monkeypatch.setattr(physical_plain, "experiment", lambda *_: pytest.fail("it started"))
    for user, words in ((0, "cannot test: this needs an energy counter"), (1000, "sudo")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        with pytest.raises(QjouleError, match=words):
            physical_plain.physical(Plan(3, 1), threshold=0.11, as_json=False)


@pytest.mark.parametrize(("threshold", "code"), [("11", 0), ("0.5", 1)])
def test_the_threshold_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, done: Experiment, threshold: str, code: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(physical_plain, "experiment", lambda *_: done)
    options = ["--energy", "powercap:x", "--threshold", threshold, "--json"]
    result = CliRunner().invoke(physical.command, options, standalone_mode=False)
    assert result.return_value == code, result.output
    assert json.loads(result.stdout)["threshold"] == pytest.approx(float(threshold) / 100)
