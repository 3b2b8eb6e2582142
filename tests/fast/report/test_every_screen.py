# SPDX-License-Identifier: Apache-2.0
"""Every screen and every file of results shows the same basic facts.

That figures add up to what was measured, how certain the total is, who gets the idle energy, what
was lost, and which servers nobody saw.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_attribution import attribution, fixed_row, query_row, typical
from fake_source import FakeSource
from qjoule.model.result import PARTS, Attribution, ServerChange
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.json_report import document, run_forms
from qjoule.reporters.live_lines import csv_lines, json_lines, screen_document
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.parquet_report import to_table
from qjoule.reporters.table import render
from qjoule.snapshots import Controls, Snapshot

GRADES = ("measured", "estimated", "simulated")
Rows = list[dict[str, Any]]


def _snapshot(of: Attribution) -> Snapshot:
    return Snapshot(of, of, 2.0, ended=True)


def _view(of: Attribution) -> ViewState:
    state = ViewState()
    state.accept(_snapshot(of))
    return state


def _screen(of: Attribution, width: int) -> str:
    return "\n".join(line.plain() for line in compose(_view(of), width, 24))


def _table(of: Attribution, width: int) -> str:
    """The printed table, as one line."""
    return " ".join(render(of, width=width).split())


def _json_rows(of: dict[str, Any]) -> Rows:
    parsed = json.loads(json.dumps(of), parse_float=Decimal)
    return [*parsed["rows"], *parsed["fixed"]]


def _csv_rows(text: str) -> Rows:
    rows = list(csv.DictReader(io.StringIO(text)))
    return [{**row, "energy_j": Decimal(row["energy_j"])} for row in rows]


def _live_csv(of: Attribution) -> str:
    return "".join(csv_lines(FakeSource(_snapshot(of)), Controls(), None))


def _live_json(of: Attribution) -> dict[str, Any]:
    (line,) = json_lines(FakeSource(_snapshot(of)), Controls(), None)
    interval: dict[str, Any] = json.loads(line)["interval"]
    return interval


def _exported(of: Attribution) -> dict[str, Any]:
    interval: dict[str, Any] = screen_document(_view(of))["interval"]
    return interval


def _parquet_rows(of: Attribution) -> Rows:
    rows: Rows = to_table(of).to_pylist()
    return [{**row, "energy_j": Decimal(repr(row["energy_j"]))} for row in rows]


def _parquet_head(of: Attribution) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(to_table(of).schema.metadata[b"qjoule.attribution/1"])
    return head


DOCUMENTS = (document, _live_json, _exported, _parquet_head)
FLAT: dict[str, Callable[[Attribution], Rows]] = {
    "csv": lambda of: _csv_rows(to_csv(of)),
    "live csv": lambda of: _csv_rows(_live_csv(of)),
    "parquet": _parquet_rows,
}
ROWS = FLAT | {
    "json": lambda of: _json_rows(document(of)),
    "live json": lambda of: _json_rows(_live_json(of)),
    "exported screen": lambda of: _json_rows(_exported(of)),
}


@pytest.mark.parametrize("form", ROWS)
@given(
    st.lists(st.integers(0, 10**14), max_size=12),
    st.lists(st.integers(0, 10**14), min_size=6, max_size=6),
)
def test_energies_add_up_to_the_last_digit(form: str, energies: list[int], rest: list[int]) -> None:
    """Nanojoules below 2^53 are what a double holds exactly in joules of nine decimals."""
    rows = tuple(query_row(energy, f"q{index}") for index, energy in enumerate(energies))
    whole = attribution(rows, dict(zip(PARTS[1:], rest, strict=True)))
    total = sum(round(row["energy_j"] * 10**9) for row in ROWS[form](whole))
    assert total == whole.main.measured_nj == sum(energies) + sum(rest)


@pytest.mark.parametrize("grade", GRADES)
@pytest.mark.parametrize("policy", ["separate", "even"])
def test_files_say_the_grade_the_idle_policy_and_the_loss(grade: str, policy: str) -> None:
    loss = {"PUMP": 1234, "SWITCH": 5}
    whole = typical(grade=grade, loss=loss, complete=False)
    whole = replace(whole, policy={**whole.policy, "idle": policy})
    for rows_of in FLAT.values():
        for row in rows_of(whole):
            assert (row["grade"], row["idle_policy"]) == (grade, policy)
            assert (row["loss"], row["complete"]) == ("pump=1234 switch=5", "no")
    for of in DOCUMENTS:
        assert of(whole)["energy_source"]["grade"] == grade
        assert of(whole)["policy"]["idle"] == policy
        assert of(whole)["trace"]["loss"] == loss
        assert of(whole)["trace"]["complete"] is False


@pytest.mark.parametrize("grade", GRADES)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_screens_say_the_grade_the_idle_policy_and_the_loss(grade: str, width: int) -> None:
    whole = typical(grade=grade, loss={"SWITCH": 1234}, complete=False, unattributed_windows=3)
    whole = replace(whole, policy={**whole.policy, "idle": "even"})
    live = _screen(whole, width)
    for words in (f"TOTAL {grade}", "idle even", "lost: 1,234"):
        assert words in live
    printed = _table(whole, width)
    for words in (
        f"TOTAL {grade}",
        "spread evenly",
        "1,234 context switches not shown by the kernel",
        "NO: the trace was cut off",
        "3 of 625",
        "mariadb:3306 symbol",
    ):
        assert words in printed


def test_a_screen_names_the_loss_where_there_is_room() -> None:
    whole = typical(loss={"SWITCH": 1234})
    assert "lost: 1,234 context switches not shown by the kernel" in _screen(whole, 200)
    assert "lost: 1,234 · not calibrated · coverage 98.2 %" in _screen(whole, 80)
    assert "lost: none" in _screen(typical(), 80)


def _dark() -> Attribution:
    """A traced server that exited, and one that runs untraced and used 2 J."""
    gone = ServerChange("exited", "mariadb:3306", since="2026-11-21T03:31:07.5Z")
    process = "mariadbd (untraced, pid 7)"
    hides = ServerChange(
        "untraced", "mariadbd", since="2026-11-21T03:31:09Z", pid=7, process=process
    )
    row = replace(fixed_row("other_processes", 2 * 10**9, 10**10), keys={"process": process})
    whole = attribution((query_row(10**9),), {"other_processes": 2 * 10**9})
    return replace(
        whole, trace=replace(whole.trace, changes=(gone, hides)), fixed=(row, *whole.fixed[1:])
    )


def test_servers_that_nobody_sees_are_in_every_file() -> None:
    whole = _dark()
    for of in DOCUMENTS:
        gone, hides = of(whole)["trace"]["changes"]
        assert (gone["what"], gone["name"], gone["energy_j"]) == ("exited", "mariadb:3306", None)
        assert (hides["what"], hides["pid"], hides["energy_j"]) == ("untraced", 7, 2.0)
        assert hides["cpu_ns"] == whole.fixed[0].cpu_ns
    for rows_of in FLAT.values():
        for row in rows_of(whole):
            assert "mariadb:3306 exited at 2026-11-21T03:31:07Z; " in row["servers_not_seen"]
            assert "mariadbd (process 7) ran untraced since" in row["servers_not_seen"]
    assert any("ran untraced" in problem for problem in run_forms(whole, "a").problems)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_servers_that_nobody_sees_are_on_every_screen(width: int) -> None:
    whole = _dark()
    words = "mariadb:3306 exited, mariadbd runs untraced 2.00 J"
    assert words in _screen(whole, width)
    printed = _table(whole, width)
    assert f"complete yes · BUT {words}" in printed
    assert "mariadbd (process 7) ran untraced since 2026-11-21T03:31:09Z" in printed
    assert "2.00 J (1.80 J to 2.20 J) are among the other processes" in printed


def test_energy_and_time_of_commits_are_in_every_file() -> None:
    row = query_row(10**9, keys={"transaction": "a; b"}, commit_nj=5 * 10**8, commit_ns_mean=1.5e6)
    whole = attribution((row,), {"idle": 5})
    whole = replace(whole, policy={**whole.policy, "by": "transaction"})
    for rows_of in FLAT.values():
        first, idle = rows_of(whole)
        assert (float(first["commit_j"]), float(first["commit_ns_mean"])) == (0.5, 1.5e6)
        assert not idle["commit_j"] and not idle["commit_ns_mean"]
