# SPDX-License-Identifier: Apache-2.0
"""`qjoule compare`: greenup and powerup, refusals, gates, JUnit; intervals of ratios over runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import stats

import attribute_trace as hand
from qjoule.commands.attribute import command as attribute_command
from qjoule.commands.compare import command
from qjoule.errors import QjouleError, UsageError
from qjoule.model.call_outcomes import Waits
from qjoule.model.compared import ONE_RUN
from qjoule.model.gate import Gate, exit_code, judge
from qjoule.model.gpsup import Form, category, compare
from qjoule.model.repeated import RunForms
from qjoule.model.run_ratios import log_ratios
from simulated_runs import MADE_WITH, Workload, mispricing, says_different, write_runs
from simulated_runs import compared as compared_runs

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
    assert category(0.5, 2.0) == "green: slower, less power"
    assert category(0.5, 0.2) == "red: slower, more power"


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


def test_documents_by_several_keys_compare_row_by_row(tmp_path: Path) -> None:
    paths, by = [tmp_path / "a.json", tmp_path / "b.json"], "fingerprint,user,database"
    for second, path in enumerate(paths):
        trace = hand.write(tmp_path / f"{second}", meta={"realtime_offset_ns": second * 10**9})
        arguments = [str(trace), "--by", by, "--format", "json", "-o", str(path)]
        assert CliRunner().invoke(attribute_command, arguments).exit_code == 0
    names = {row["base"]["name"] for row in compared(*paths)["rows"]}
    assert {"aaaa/(none)/shop", "bbbb/ann/(none)"} <= names
    for columns in ("80", "200"):
        printed = CliRunner(env={"COLUMNS": columns}).invoke(command, [*map(str, paths)]).output
        assert re.search(r"select a +\(none\) +shop ", printed)
    assert "not comparable: keys: fingerprint," in error(paths[0], hand.write(tmp_path / "t"))


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


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"energy_source": {"grade": "measured"}}, "grade"),
        ({"energy_source": {"name": "perf"}}, "energy source"),
        ({"policy": {"idle": "even"}}, "idle policy"),
        ({"trace": {"host": "other"}}, "machine"),
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


def test_the_part_of_the_latency_that_changed_most(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=2)
    for path in (*a, *b):
        document = json.loads(path.read_text())
        for row in document["rows"][: 1 if path == b[1] else 2]:
            whole_ns, lock_ns = (10e6, 5e6) if path in a else (50e6, 37.5e6)
            row.update(dict.fromkeys((f"wait_{kind}_ns" for kind in Waits._fields[1:]), 0))
            row.update(latency_ns_mean=whole_ns, waits_latency_ns=3 * whole_ns)
            row.update(ran_ns=3 * (whole_ns - lock_ns), wait_lock_ns=3 * lock_ns)
        path.write_text(json.dumps(document))
    first, of_one_run, without = compared(*a, "--vs", *b)["rows"][:3]
    assert first["base"]["latency_parts_ns"]["wait_lock_ns"] == 5e6
    assert first["latency_change"] == {"part": "wait_lock_ns", "ns_per_call": 32.5e6}
    assert "latency_change" not in of_one_run
    assert "latency_parts_ns" not in of_one_run["new"]
    assert not {"latency_change", "latency_parts_ns"} & {*without, *without["base"]}
    arguments = [*map(str, a), "--vs", *map(str, b)]
    printed = CliRunner(env={"COLUMNS": "160"}).invoke(command, arguments).output
    assert re.findall("latency: .*", printed) == ["latency: mostly lock +32.5 ms/call"]


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


def test_one_run_a_side_passes_no_gate(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=1, factor=3.0)
    for verdict in compared(a[0], b[0], *GATE, code=3)["gates"]:
        assert verdict["reason"] == ONE_RUN


@pytest.mark.parametrize(
    "gate",
    ["", "J/call < 1.05", "J/call <= 0", "J/call <= nan", "watts <= 1", "J/call <= 1.05x"],
)
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
    (suite,) = root.findall("testsuite")
    counts = {state: int(suite.attrib[state]) for state in ("tests", "failures", "skipped")}
    assert counts == {"tests": len(suite.findall("testcase")), "failures": 5, "skipped": 5}
    assert [len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "skipped")] == [5, 5]
    text = report.read_text(encoding="utf-8")
    assert all(character.isprintable() for line in text.splitlines() for character in line)
    assert "<b>" not in text


# ---- intervals of ratios over runs ---------------------------------------------------------------

REPETITIONS = 100


def test_intervals_are_those_of_welchs_test() -> None:
    rng = np.random.default_rng(7)
    a, b = np.exp(rng.normal(0, 0.05, (1, 6))), np.exp(rng.normal(0.1, 0.02, (1, 4)))
    ratios = log_ratios(a, b)
    referee = stats.ttest_ind(np.log(b[0]), np.log(a[0]), equal_var=False)
    assert ratios.df[0] == pytest.approx(referee.df)
    for level in (0.95, 0.999):
        ends = referee.confidence_interval(level)
        low, high = ratios.interval(level)
        assert (low[0], high[0]) == pytest.approx((np.exp(ends.low), np.exp(ends.high)))


def test_runs_of_both_sides_at_once_are_paired() -> None:
    rng = np.random.default_rng(8)
    run = np.exp(rng.normal(0, 0.3, 8))
    a = (run * np.exp(rng.normal(0, 0.01, 8)))[None, :]
    b = (1.1 * run * np.exp(rng.normal(0, 0.01, 8)))[None, :]
    ratios = log_ratios(a, b, paired=True)
    ends = stats.ttest_rel(np.log(b[0]), np.log(a[0])).confidence_interval(0.95)
    low, high = ratios.interval()
    assert (low[0], high[0]) == pytest.approx((np.exp(ends.low), np.exp(ends.high)))
    assert high[0] - low[0] < 0.05 < float(np.ptp(log_ratios(a, b).interval()))


def test_a_common_error_widens_the_interval_and_is_not_averaged_away() -> None:
    rng = np.random.default_rng(9)
    a, b = np.exp(rng.normal(0, 0.01, (2, 1, 400)))
    slack = np.log([[1.2], [1.1]])
    low, high = log_ratios(a, b, slack=slack).interval()
    assert 0.82 < low[0] < 1 / 1.2
    assert 1.1 < high[0] < 1.12
    assert np.isinf(log_ratios(a, 1.05 * b, slack=slack).more_runs()[0])


@pytest.mark.parametrize("ratio", [1.03, 0.98])
def test_the_runs_advised_settle_it_in_four_of_five_cases(ratio: float) -> None:
    rng = np.random.default_rng(10)
    spread = 0.04
    observed = np.log(np.array([[1.0, 1.0]])) + spread * np.array([[-1.0, 1.0]]) / np.sqrt(2)
    ratios = log_ratios(np.exp(observed), ratio * np.exp(observed))
    runs = 2 + int(ratios.more_runs()[0])
    shape = (2000, runs)
    again = log_ratios(
        np.exp(rng.normal(0, spread, shape)), ratio * np.exp(rng.normal(0, spread, shape))
    )
    low, high = again.interval()
    assert 0.76 < float(((low > 1) | (high < 1)).mean()) < 0.86
    assert again.detectable().mean() == pytest.approx(max(ratio, 1 / ratio), rel=0.01)


def test_equal_workloads_are_hardly_ever_called_different() -> None:
    rng = np.random.default_rng(20260101)
    workload = Workload(spread=0.05, tail="skewed")
    different = regressed = 0
    for _ in range(REPETITIONS):
        wrong = mispricing(rng)
        a = workload.runs(rng, 3, mispriced=wrong)
        sides = compared_runs(a, workload.runs(rng, 3, mispriced=wrong, side="b"))
        different += says_different(sides)
        regressed += exit_code(judge([Gate("J/call", 1.0)], sides)) == 1
    assert different <= 0.05 * REPETITIONS
    assert regressed <= 0.05 * REPETITIONS
