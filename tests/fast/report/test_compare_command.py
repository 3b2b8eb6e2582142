# SPDX-License-Identifier: Apache-2.0
"""`qjoule compare`: speedup, greenup and powerup, refusals, gates and their JUnit report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import attribute_trace as hand
from qjoule.commands.attribute import command as attribute_command
from qjoule.commands.compare import command
from qjoule.errors import QjouleError, UsageError
from qjoule.model.compared import ONE_RUN
from qjoule.model.gpsup import Form, category, compare, match
from qjoule.model.repeated import RunForms
from simulated_runs import MADE_WITH, Workload, write_runs

HOSTILE = "select '\x1b[2J\x00<b>&\"]]>\ud800\ufffe' -- \u202e" + "x" * 5000
GATE = ("--gate", "J/call <= 1.05")


def run(*arguments: object, code: int | None = 0) -> Result:
    result = CliRunner().invoke(
        command, [str(argument) for argument in arguments], standalone_mode=False
    )
    if code is not None:
        assert result.exception is None, result.exception
        assert (result.return_value or 0) == code, result.output
    return result


def compared(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).output)


def error(*arguments: object) -> str:
    raised = run(*arguments, code=None).exception
    assert isinstance(raised, QjouleError)
    assert "\n" not in str(raised)
    return str(raised)


def two_sides(
    tmp_path: Path, runs: int = 5, factor: float = 1.0, spread: float = 0.02
) -> tuple[list[Path], list[Path]]:
    rng = np.random.default_rng(3)
    workload = Workload(spread=spread)
    a = workload.runs(rng, runs)
    b = workload.runs(rng, runs, factor=factor, side="b")
    return write_runs(tmp_path, a), write_runs(tmp_path, b)


# ---- two forms of a query ------------------------------------------------------------------------


def form(name: str, joules: float | None, latency_ns: float | None, spread: float = 0.1) -> Form:
    ends = None if joules is None else (joules * (1 - spread), joules * (1 + spread))
    return Form(name, "", 1, joules, ends, latency_ns)


def test_powerup_is_speedup_over_greenup() -> None:
    comparison = compare(form("a", 6.0, 8e6), form("b", 2.0, 2e6))
    assert (comparison.speedup, comparison.greenup) == (4.0, 3.0)
    assert comparison.powerup == pytest.approx(4 / 3)
    assert comparison.greenup_ci95 == pytest.approx((5.4 / 2.2, 6.6 / 1.8))
    low, high = comparison.powerup_ci95 or (0, 0)
    assert low < 4 / 3 < high
    assert comparison.category == "green: faster, more power"


def test_unknown_and_unbounded_ratios() -> None:
    unknown = compare(form("a", None, 1e6), form("b", 1.0, None))
    assert (unknown.speedup, unknown.greenup, unknown.powerup) == (None, None, None)
    unbounded = compare(form("a", 1.0, 1e6), form("b", 1.0, 1e6, 1.0))
    assert unbounded.greenup_ci95 == (0.45, float("inf"))
    overlapping = compare(form("a", 1.0, 1e6, 0.3), form("b", 0.9, 1e6, 0.3))
    assert overlapping.category == "energy not separable"


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


def test_forms_match_by_name_or_by_pair() -> None:
    old, new = [form("x", 1, 1), form("y", 1, 1)], [form("y", 2, 2), form("z", 2, 2)]
    assert [(a.name, b.name) for a, b in match(old, new)] == [("y", "y")]
    assert [(a.name, b.name) for a, b in match(old, new, [("x", "z")])] == [("x", "z")]
    with pytest.raises(KeyError):
        match(old, new, [("z", "x")])


# ---- two traces ----------------------------------------------------------------------------------


def test_a_trace_and_its_json_compare_as_one(tmp_path: Path) -> None:
    trace, exported = hand.write(tmp_path / "t"), tmp_path / "a.json"
    arguments = [str(trace), "--format", "json", "-o", str(exported)]
    assert CliRunner().invoke(attribute_command, arguments).exit_code == 0
    rows = compared(trace, exported)["rows"]
    assert [row["base"]["name"] for row in rows] == ["aaaa", "bbbb"]
    assert {row["greenup"] for row in rows} == {1.0}
    table = run(trace, trace, "--pair", "aaaa=bbbb").output
    assert "select a" in table
    assert "simulated (A)" in table
    for pair in ("aaaa", "aaaa=none", "=b"):
        error(trace, trace, "--pair", pair)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', "[" * 100_000, '{"schema": "x/2"}'])
def test_a_file_that_is_no_attribution_is_refused(tmp_path: Path, text: str) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(text)
    error(broken, broken)
    error(tmp_path / "none", broken)


def test_statements_and_traces_without_a_partner(tmp_path: Path) -> None:
    traces = [
        hand.write(tmp_path / f"t{i}", meta={"realtime_offset_ns": i * 10**9}) for i in range(2)
    ]
    queries = [hand.query(*row) for row in hand.QUERIES if row[3] != "bbbb"]
    without = hand.write(tmp_path / "one", queries=queries, meta={"realtime_offset_ns": 9 * 10**9})
    unmatched = compared(*traces, "--vs", without)["unmatched"]
    assert [form["name"] for form in unmatched["base"]] == ["bbbb"]
    assert "not in B: select b" in run(traces[0], without).output
    empty = hand.write(tmp_path / "empty", queries=[], segments=[])
    assert "has no queries" in error(traces[0], empty)


# ---- several runs a side -------------------------------------------------------------------------


def test_several_runs_have_a_verdict_and_all_ratios(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, factor=0.7)
    comparison = compared(*a, "--vs", *b)
    assert comparison["schema"] == "qjoule.comparison/2"
    assert [len(comparison["runs"][side]) for side in ("base", "new")] == [5, 5]
    for row in (*comparison["rows"], comparison["total"]):
        low, high = row["greenup_ci95"]
        assert 1.3 < low < row["greenup"] < high < 1.6
        assert row["category"].startswith("green")
        assert row["words"].startswith("saves energy")
        assert row["edp_gain"] == pytest.approx(row["speedup"] * row["greenup"])
        assert row["powerup"] == pytest.approx(row["speedup"] / row["greenup"])
    table = run(*a, "--vs", *b).output
    for word in ("5 of A, 5 of B", "estimated (A), estimated (B)", "separate", "EDP gain"):
        assert word in table


def test_a_row_that_is_not_separable_says_how_many_more_runs_it_needs(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=3, factor=1.03, spread=0.04)
    row = compared(*a, "--vs", *b)["rows"][0]
    assert row["category"] == "energy not separable"
    assert row["energy_differs"] is None
    assert row["more_runs"] >= 1
    assert row["detectable"] > 1.05
    assert "would settle it" in " ".join(run(*a, "--vs", *b).output.split())


def test_the_table_fits_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    a, b = two_sides(tmp_path, runs=2)
    output = run(*a, "--vs", *b, *GATE, code=None).output
    assert max(map(cell_len, output.splitlines())) <= 60
    assert "not separable" in " ".join(output.split())


def test_statements_of_some_runs_or_unknown_energy_are_flagged(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a, b = Workload().runs(rng, 4), Workload().runs(rng, 4, side="b")
    a[1] = replace(a[1], forms=a[1].forms[1:])
    b[2] = replace(b[2], forms=[*b[2].forms[:4], replace(b[2].forms[4], j_per_call=None)])
    comparison = compared(*write_runs(tmp_path, a), "--vs", *write_runs(tmp_path, b))
    rows = {row["base"]["name"]: row for row in comparison["rows"]}
    assert rows["fp0"]["flags"] == ["in 3 of 4 runs of A"]
    assert rows["fp4"]["greenup"] is not None
    assert comparison["not_in_total"] == ["fp0", "fp4"]


def test_joules_unknown_everywhere_are_unknown(tmp_path: Path) -> None:
    forms = [Form("f", "select 1", 10, None, None, 1e6)]
    sides = [
        [RunForms(f"{side}{i}", forms, MADE_WITH, f"{side}{i}") for i in range(2)] for side in "ab"
    ]
    a, b = (write_runs(tmp_path, runs) for runs in sides)
    comparison = compared(*a, "--vs", *b, *GATE, code=3)
    assert comparison["rows"][0]["category"] == "unknown"
    assert comparison["gates"][0]["reason"].endswith("is unknown")


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"energy_source": {"grade": "measured"}}, "grade"),
        ({"energy_source": {"name": "perf"}}, "energy source"),
        ({"policy": {"idle": "even"}}, "idle policy"),
        ({"policy": {"where": "tag:a=b"}}, "selection"),
        ({"trace": {"host": "other"}}, "machine"),
        ({"model": {"calibration": "of other, 2025"}}, "calibration"),
    ],
)
def test_sides_that_are_not_comparable_are_refused_or_flagged(
    tmp_path: Path, changed: dict[str, Any], difference: str
) -> None:
    rng = np.random.default_rng(4)
    a = write_runs(tmp_path, Workload().runs(rng, 3))
    b = write_runs(tmp_path, Workload().runs(rng, 3, side="b"), **changed)
    assert difference in error(*a, "--vs", *b)
    report = tmp_path / "junit.xml"
    across = [*a, "--vs", *b, "--across", *GATE, "--junit", report]
    comparison = compared(*across, code=3)
    assert [flag["what"] for flag in comparison["across"]] == [difference]
    assert "ACROSS" in run(*across, code=3).output
    assert "ACROSS" in report.read_text()
    low, high = comparison["rows"][0]["greenup_ci95"]
    assert low < 0.4
    assert high > 2, "no error is common: both sides' own intervals count"


def test_two_single_recordings_have_all_their_errors(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=1)
    low, high = compared(*a, *b)["rows"][0]["greenup_ci95"]
    assert low < 0.42 / 1.5
    assert high > 1.58 / 0.45
    same = compared(*a, *a, "--pair", "fp0=fp1")["rows"][0]
    high = same["greenup_ci95"][1]
    assert high / same["greenup"] < 2.2, "the error of one recording's total cancels"


def test_a_run_counts_once(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=3)
    copy = tmp_path / "copy.json"
    copy.write_bytes(a[0].read_bytes())
    assert "one recording" in error(*a, copy, "--vs", *b)
    assert "on both sides" in error(*a, "--vs", *b, copy)
    without = write_runs(tmp_path, [RunForms("none", [], MADE_WITH, "2026")])
    assert "has no queries" in error(*a, "--vs", *without)


# ---- gates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "gate", "code", "status"),
    [
        (1.0, "J/call <= 1.2", 0, "passes"),
        (1.3, "J/call <= 1.1", 1, "regressed"),
        (1.1, "J/call <= 1.1", 3, "not separable"),
    ],
)
def test_gates_and_their_exit_codes(
    tmp_path: Path, factor: float, gate: str, code: int, status: str
) -> None:
    a, b = two_sides(tmp_path, factor=factor)
    run(*a, "--vs", *b, "--gate", gate, "--gate-total", code=code)
    gates = compared(*a, "--vs", *b, "--gate", gate, code=code)["gates"]
    assert status in {verdict["status"] for verdict in gates}


def test_each_metric_has_its_own_limit(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, factor=1.3)
    gates = ["--gate", "J/call <= 1.1", "--gate", "latency<=1.1"]
    gates += ["--gate", "EDP <= 1.5", "--gate", " W <= 1.05 "]
    verdicts = compared(*a, "--vs", *b, *gates, code=1)["gates"]
    assert {(verdict["metric"], verdict["status"]) for verdict in verdicts} == {
        ("J/call", "regressed"),
        ("latency", "passes"),
        ("EDP", "passes"),
        ("W", "regressed"),
    }


def test_one_run_a_side_passes_no_gate(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=1, factor=3.0)
    for verdict in compared(a[0], b[0], *GATE, code=3)["gates"]:
        assert verdict["reason"] == ONE_RUN


@pytest.mark.parametrize(
    "gate",
    ["", "J/call < 1.05", "J/call <= -1", "J/call <= 0", "J/call <= nan", "J/call <= 1e9",
     "j/call <= 1", "J/call <= 1.05x", "watts <= 1", "J/call >= 1", "J/call <= 1.", "W <= ٣"],
)  # fmt: skip
def test_a_malformed_gate_is_a_usage_error(tmp_path: Path, gate: str) -> None:
    a, b = two_sides(tmp_path, runs=1)
    raised = run(*a, "--vs", *b, "--gate", gate, code=None).exception
    assert isinstance(raised, UsageError)
    assert "METRIC <= RATIO" in str(raised)


def test_wrong_arguments_are_usage_errors(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=2)
    twice = ["--gate", "W <= 1", "--gate", "W <= 2"]
    for arguments in (
        [*a, *b], [a[0]], [*a, "--vs"], ["--vs", *b], [*a, "--vs", b[0], "--vs", b[1]],
        [a[0], b[0], "--junit", tmp_path / "x"], [a[0], b[0], "--gate-total"], [a[0], b[0], *twice],
    ):  # fmt: skip
        assert isinstance(run(*arguments, code=None).exception, UsageError), arguments
    missing = tmp_path / "none" / "x.xml"
    assert "cannot write" in error(*a, "--vs", *b, *GATE, "--junit", missing)


def check_junit(root: ElementTree.Element) -> None:
    """Checks a report by the rules of Jenkins' junit-10.xsd."""
    assert root.tag == "testsuites"
    assert set(root.attrib) == {"name", "tests", "failures", "errors", "time"}
    suite = root.find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    names = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
    assert len(set(names)) == len(names) == int(suite.attrib["tests"])
    for state, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
        assert int(suite.attrib[state]) == len(suite.findall(f"testcase/{tag}"))
    assert next(child.tag for child in suite) == "properties"
    assert {child.tag for child in suite} <= {"properties", "testcase"}
    allowed = {"failure": {"type", "message"}, "skipped": {"message"}}
    for case in cases:
        assert set(case.attrib) == {"classname", "name", "time"}
        assert all(set(child.attrib) == allowed[child.tag] for child in case)


def test_junit_is_well_formed_whatever_the_statements_contain(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    sides = [Workload().runs(rng, 3), Workload().runs(rng, 3, factor=2.0, side="b")]
    for changed in (changed for runs in sides for changed in runs):
        changed.forms[:] = [replace(form, shape=HOSTILE) for form in changed.forms]
    a, b = (write_runs(tmp_path, runs) for runs in sides)
    report = tmp_path / "report.xml"
    gates = [*GATE, "--gate", "latency <= 1.0", "--junit", report]
    output = run(*a, "--vs", *b, *gates, code=1).output
    assert not {"\x1b", "\u202e"} & set(output)
    root = ElementTree.parse(report).getroot()
    check_junit(root)
    assert len(root.findall("testsuite/testcase/failure")) == 5
    assert len(root.findall("testsuite/testcase/skipped")) == 5
    text = report.read_text(encoding="utf-8")
    assert all(character.isprintable() for line in text.splitlines() for character in line)
    assert "<b>" not in text
