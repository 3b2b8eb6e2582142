# SPDX-License-Identifier: Apache-2.0
"""`qjoule physical`, plain and `--full`: screen, JSON, file, what it prepares and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import attribute_trace
from physical_kit_cases import SimulatedHost, host
from qjoule.engine.attribute import attribute
from qjoule.errors import QjouleError, UsageError
from qjoule.machine.facts import Check
from qjoule.trace.reader import Trace
from qjoule_studies.commands import physical, physical_full, physical_plain
from qjoule_studies.physical.experiment import Experiment, Plan
from qjoule_studies.physical.judgement import Round, Verdict, judge
from qjoule_studies.physical.kit.document import parse

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
    for phrase in (
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
        assert phrase in text
    assert "under twice" not in screen(ROUNDS, replace(done, cache_bytes=32 * MIB))
    same = replace(ROUND, alone_a_w=100.0, alone_b_w=100.0)
    text = screen([same, same, replace(same, together_w=100.3)], done)
    assert "cannot be judged:" in text
    assert "more or longer rounds" in text


def test_json_has_every_figure_and_nulls_for_infinities(done: Experiment) -> None:
    printed = json.loads(json.dumps(physical_plain.to_json(judge(ROUNDS), done), allow_nan=False))
    assert (printed["schema"], printed["verdict"]) == ("qjoule.physical/1", "agrees")
    assert printed["residual_w"]["value"] == pytest.approx(75)
    assert printed["loads"]["A"]["physical_share"]["value"] == pytest.approx(0.56)
    assert printed["loads"]["B"]["error"]["value"] == pytest.approx(0.45 / 0.44 - 1)
    flat = [replace(ROUND, alone_a_w=50.0, alone_b_w=50.0, together_w=50.0)] * 3
    printed = physical_plain.to_json(judge(flat), done)
    assert json.loads(json.dumps(printed, allow_nan=False))["loads"]["A"]["error"]["low"] is None
    assert printed["verdict"] == Verdict.CANNOT_TELL


def test_without_a_counter_or_rights_it_says_so_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Check("powercap", False, "no zones")
    monkeypatch.setattr(physical_plain, "powercap_tree", lambda: nothing)
    monkeypatch.setattr(physical_plain, "perf_pmu", lambda: nothing)
    monkeypatch.setattr(physical_plain, "experiment", lambda *_: pytest.fail("it started"))
    for user, message in ((0, "cannot test: this needs an energy counter"), (1000, "sudo")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        with pytest.raises(QjouleError, match=message):
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


SHORT = ["--seconds-per-run", "0.5", "--rounds", "3", "--energy", "powercap:x"]


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.chdir(tmp_path)


def run(*options: str) -> Result:
    return CliRunner().invoke(physical.command, ["--full", *options])


Use = Callable[[SimulatedHost], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Replaces this machine and its servers by a simulated host."""

    def replace(on: SimulatedHost) -> None:
        @contextmanager
        def simulated(_energy: str, _say: object) -> Iterator[SimulatedHost]:
            yield on

        monkeypatch.setattr(physical_full, "this_host", simulated)

    return replace


def test_it_writes_one_file_and_says_how_long_it_takes(tmp_path: Path, use: Use) -> None:
    use(host(tmp_path, ["mariadb"]))
    result = run(*SHORT, "-o", "here.html", "--calibration", "none")
    assert result.exit_code == 0, result.output
    document = parse((tmp_path / "here.html").read_bytes())
    assert document.complete
    assert len(document.runs) == 21
    assert "about 1:00 min to start servers" in result.output
    assert "mariadb computing (A) + mariadb memory (B): differs" in result.output
    assert "here.html has 21 runs: look at it before you share it" in result.output
    assert [path.name for path in tmp_path.glob(".qjoule*")] == []


def test_what_was_measured_is_kept_when_it_ends_early(tmp_path: Path, use: Use) -> None:
    def end(number: int) -> None:
        if number == 4:
            raise QjouleError("the recording failed: no room")

    use(host(tmp_path, ["mariadb"], before=end))
    result = run(*SHORT)
    assert result.exit_code == 1
    document = parse((tmp_path / "qjoule-physical.html").read_bytes())
    assert not document.complete
    assert len(document.runs) == 4
    assert "not complete" in result.output


def test_where_nothing_was_measured_no_file_is_made_or_replaced(tmp_path: Path, use: Use) -> None:
    def fail(_number: int) -> None:
        raise QjouleError("the recording did not start: no BTF")

    use(host(tmp_path, ["mariadb"], before=fail))
    assert "no BTF" in str(run(*SHORT).exception)
    assert not list(tmp_path.glob("*.html"))
    assert not list(tmp_path.glob(".qjoule*"))
    old = tmp_path / "qjoule-physical.html"
    old.write_text("old")
    run(*SHORT)
    assert old.read_text() == "old"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--budget", "5"], "--budget is of the full physical test: add --full"),
        (["--full", "--seconds", "3"], "--seconds has no effect with --full"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: list[str], says: str) -> None:
    result = CliRunner().invoke(physical.command, options)
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)
