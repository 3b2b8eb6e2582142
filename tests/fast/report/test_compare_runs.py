# SPDX-License-Identifier: Apache-2.0
"""`qjoule compare` with several runs a side: its output, its refusals, and its gates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import attribute_trace as hand
from qjoule.commands.compare import command
from qjoule.errors import QjouleError, UsageError
from qjoule.model.compared import ONE_RUN
from qjoule.model.gpsup import Form
from qjoule.model.repeated import RunForms
from simulated_runs import MADE_WITH, Workload, write_runs


def run(*arguments: object, code: int | None = 0) -> Result:
    result = CliRunner().invoke(
        command, [str(argument) for argument in arguments], standalone_mode=False
    )
    if code is not None:
        assert result.exception is None, result.exception
        assert (result.return_value or 0) == code, result.output
    return result


def error(*arguments: object) -> str:
    found = run(*arguments, code=None).exception
    assert isinstance(found, QjouleError)
    assert "\n" not in str(found)
    return str(found)


def two_sides(
    tmp_path: Path, runs: int = 5, factor: float = 1.0, spread: float = 0.02
) -> tuple[list[Path], list[Path]]:
    rng = np.random.default_rng(3)
    workload = Workload(spread=spread)
    a = workload.runs(rng, runs)
    b = workload.runs(rng, runs, factor=factor, side="b")
    return write_runs(tmp_path, a), write_runs(tmp_path, b)


def test_several_runs_have_a_verdict_and_all_of_gps_up(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, factor=0.7)
    found = json.loads(run(*a, "--vs", *b, "--json").output)
    assert found["schema"] == "qjoule.comparison/2"
    assert [len(found["runs"][side]) for side in ("base", "new")] == [5, 5]
    assert found["across"] == found["gates"] == found["unmatched"]["base"] == []
    for row in (*found["rows"], found["total"]):
        low, high = row["greenup_ci95"]
        assert 1.3 < low < row["greenup"] < high < 1.6
        assert row["category"].startswith("green")
        assert row["words"].startswith("saves energy")
        assert row["edp_gain"] == pytest.approx(row["speedup"] * row["greenup"])
        assert row["powerup"] == pytest.approx(row["speedup"] / row["greenup"])
    table = run(*a, "--vs", *b).output
    for word in ("5 of A, 5 of B", "estimated (A), estimated (B)", "separate", "EDP gain"):
        assert word in table


def test_what_is_not_separable_says_how_many_more_runs_would_settle_it(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=3, factor=1.03, spread=0.04)
    row = json.loads(run(*a, "--vs", *b, "--json").output)["rows"][0]
    assert row["category"] == "energy not separable"
    assert row["energy_differs"] is None
    assert row["more_runs"] >= 1
    assert row["detectable"] > 1.05
    table = " ".join(run(*a, "--vs", *b).output.split())
    assert "would settle it" in table


def test_of_many_statements_those_that_differ_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    count = 200
    workload = Workload((0.01,) * count, (1e6,) * count, together=0.0, spread=0.001)
    rng = np.random.default_rng(11)
    a, b = workload.runs(rng, 3), workload.runs(rng, 3, side="b")
    for one in b:
        changed = one.forms[-1]
        one.forms[-1] = replace(changed, j_per_call=2 * (changed.j_per_call or 0.0))
    arguments = [
        *write_runs(tmp_path, a),
        "--vs",
        *write_runs(tmp_path, b),
        "--gate",
        "J/call <= 1.5",
    ]
    output = run(*arguments, code=1).output
    assert output.index(f"select {count - 1}") < output.index("select 0")
    assert len(output.splitlines()) < 150
    assert "180 statements are not shown: --json has all" in output
    assert "199 passes, 1 regressed" in output


@pytest.mark.parametrize("width", [60, 72, 80, 120])
def test_the_table_fits_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    a, b = two_sides(tmp_path, runs=2)
    output = run(*a, "--vs", *b, "--gate", "J/call <= 1.05", code=None).output
    assert max(map(cell_len, output.splitlines())) <= width
    assert "not separable" in " ".join(output.split())


@pytest.mark.parametrize(
    ("factor", "gate", "code"),
    [(1.0, "J/call <= 1.2", 0), (1.3, "J/call <= 1.1", 1), (1.1, "J/call <= 1.1", 3)],
)
def test_gates_and_their_exit_codes(tmp_path: Path, factor: float, gate: str, code: int) -> None:
    a, b = two_sides(tmp_path, factor=factor)
    for more in ([], ["--gate-total"]):
        run(*a, "--vs", *b, "--gate", gate, *more, code=code)
    found = json.loads(run(*a, "--vs", *b, "--gate", gate, "--json", code=code).output)
    states = {one["status"] for one in found["gates"]}
    assert {0: "passes", 1: "regressed", 3: "not separable"}[code] in states


def test_each_metric_has_its_own_limit(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, factor=1.3)
    gates = [
        word
        for gate in ("J/call <= 1.1", "latency<=1.1", "EDP <= 1.5", " W <= 1.05 ")
        for word in ("--gate", gate)
    ]
    found = json.loads(run(*a, "--vs", *b, *gates, "--json", code=1).output)["gates"]
    states = {
        metric: {one["status"] for one in found if one["metric"] == metric}
        for metric in ("J/call", "latency", "EDP", "W")
    }
    assert states == {
        "J/call": {"regressed"},
        "latency": {"passes"},
        "EDP": {"passes"},
        "W": {"regressed"},
    }


@pytest.mark.parametrize(
    "gate",
    ["", "J/call < 1.05", "J/call <= -1", "J/call <= 0", "J/call <= nan", "J/call <= 1e9",
     "j/call <= 1", "J/call <= 1.05x", "watts <= 1", "J/call >= 1", "J/call <= 1.", "W <= ٣"],
)  # fmt: skip
def test_what_is_no_gate_is_a_usage_error(tmp_path: Path, gate: str) -> None:
    a, b = two_sides(tmp_path, runs=2)
    found = run(*a, "--vs", *b, "--gate", gate, code=None).exception
    assert isinstance(found, UsageError)
    assert "METRIC <= RATIO" in str(found)


def test_usage(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=2)
    twice = ["--gate", "W <= 1", "--gate", "W <= 2"]
    for arguments in (
        [*a, *b], [a[0]], [*a, "--vs"], ["--vs", *b], [*a, "--vs", b[0], "--vs", b[1]],
        [a[0], b[0], "--junit", tmp_path / "x"], [a[0], b[0], "--gate-total"], [a[0], b[0], *twice],
    ):  # fmt: skip
        assert isinstance(run(*arguments, code=None).exception, UsageError), arguments


def test_one_run_a_side_passes_no_gate(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=1, factor=3.0)
    output = run(a[0], b[0], "--gate", "J/call <= 1.5", "--json", code=3).output
    for one in json.loads(output)["gates"]:
        assert one["reason"] == ONE_RUN


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"energy_source": {"grade": "measured"}}, "grade"),
        ({"energy_source": {"name": "perf"}}, "energy source"),
        ({"policy": {"idle": "even"}}, "idle policy"),
        ({"policy": {"where": "tag:a=b"}}, "selection"),
        ({"trace": {"host": "other"}}, "machine"),
        ({"model": {"calibration": "of other, 2025"}}, "calibration"),
    ],
)
def test_what_is_not_comparable_is_refused_or_flagged(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    rng = np.random.default_rng(4)
    a = write_runs(tmp_path, Workload().runs(rng, 3))
    b = write_runs(tmp_path, Workload().runs(rng, 3, side="b"), **changed)
    assert said in error(*a, "--vs", *b)
    flagged = [*a, "--vs", *b, "--across", "--gate", "J/call <= 1.05"]
    report = tmp_path / "junit.xml"
    found = json.loads(run(*flagged, "--json", "--junit", report, code=3).output)
    assert [one["what"] for one in found["across"]] == [said]
    assert "ACROSS" in run(*flagged, code=3).output
    assert "ACROSS" in report.read_text()
    low, high = found["rows"][0]["greenup_ci95"]
    assert low < 0.4
    assert high > 2, "no error is common: both sides' own intervals count"


def test_two_single_recordings_have_all_their_errors(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=1)
    low, high = json.loads(run(*a, *b, "--json").output)["rows"][0]["greenup_ci95"]
    assert low < 0.42 / 1.5
    assert high > 1.58 / 0.45
    same = json.loads(run(*a, *a, "--pair", "fp0=fp1", "--json").output)["rows"][0]
    value, (low, high) = same["greenup"], same["greenup_ci95"]
    assert high / value < 2.2, "one recording has one total: its error is no part of the ratio"


def test_a_run_counts_once(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=3)
    copy = tmp_path / "copy.json"
    copy.write_bytes(a[0].read_bytes())
    assert "one recording" in error(*a, copy, "--vs", *b)
    assert "on both sides" in error(*a, "--vs", *b, copy)
    without = write_runs(tmp_path, [RunForms("none", [], MADE_WITH, "2026")])
    assert "has no queries" in error(*a, "--vs", *without)


def test_a_trace_without_queries_says_so(tmp_path: Path) -> None:
    empty = hand.write(tmp_path / "empty", queries=[], segments=[])
    assert "has no queries" in error(hand.write(tmp_path / "t"), empty)


def test_traces_themselves_and_what_has_no_partner(tmp_path: Path) -> None:
    traces = [
        hand.write(tmp_path / f"t{i}", meta={"realtime_offset_ns": i * 10**9}) for i in range(4)
    ]
    found = json.loads(run(*traces[:2], "--vs", *traces[2:], "--json").output)
    assert {row["base"]["name"] for row in found["rows"]} == {"aaaa", "bbbb"}
    alone = [row for row in hand.QUERIES if row[3] != "bbbb"]
    without = hand.write(
        tmp_path / "one", queries=[hand.query(*row) for row in alone],
        meta={"realtime_offset_ns": 9 * 10**9},
    )  # fmt: skip
    output = run(traces[0], without, "--json").output
    assert [form["name"] for form in json.loads(output)["unmatched"]["base"]] == ["bbbb"]
    assert "not in B: select b" in run(traces[0], without).output


def test_a_statement_of_some_runs_and_one_of_unknown_energy(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a, b = Workload().runs(rng, 4), Workload().runs(rng, 4, side="b")
    a[1] = replace(a[1], forms=a[1].forms[1:])
    b[2] = replace(b[2], forms=[*b[2].forms[:4], replace(b[2].forms[4], j_per_call=None)])
    arguments = [*write_runs(tmp_path, a), "--vs", *write_runs(tmp_path, b)]
    found = json.loads(run(*arguments, "--json").output)
    rows = {row["base"]["name"]: row for row in found["rows"]}
    assert rows["fp0"]["flags"] == ["in 3 of 4 runs of A"]
    assert rows["fp4"]["greenup"] is not None
    assert found["not_in_total"] == ["fp0", "fp4"]


def test_joules_unknown_everywhere_are_unknown(tmp_path: Path) -> None:
    forms = [Form("f", "select 1", 10, None, None, 1e6)]
    sides = [
        [RunForms(f"{side}{i}", forms, MADE_WITH, f"{side}{i}") for i in range(2)] for side in "ab"
    ]
    a, b = (write_runs(tmp_path, runs) for runs in sides)
    found = json.loads(run(*a, "--vs", *b, "--gate", "J/call <= 2", "--json", code=3).output)
    assert found["rows"][0]["category"] == "unknown"
    assert found["gates"][0]["reason"].endswith("is unknown")


def test_a_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    a, b = two_sides(tmp_path, runs=2)
    missing = tmp_path / "none" / "x.xml"
    assert "cannot write" in error(*a, "--vs", *b, "--gate", "W <= 9", "--junit", missing)
