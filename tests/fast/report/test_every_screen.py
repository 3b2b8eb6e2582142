# SPDX-License-Identifier: Apache-2.0
"""Every screen and every file of results must show the same basic facts.

That figures add up to what was measured, how certain the total is, who gets the idle energy, and
what was lost.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
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
from qjoule.reporters.parquet_report import to_table, write_parquet
from qjoule.reporters.table import render
from qjoule.snapshots import Controls, Snapshot
from qjoule.trace.arrow import pq

GRADES = ("measured", "estimated", "simulated")
Rows = list[dict[str, Any]]


def _snapshot(of: Attribution) -> Snapshot:
    return Snapshot(of, of, 2.0, ended=True)


def _view(of: Attribution) -> ViewState:
    state = ViewState()
    state.accept(_snapshot(of))
    return state


def _json_rows(of: dict[str, Any]) -> Rows:
    text = json.dumps(of)
    found = json.loads(text, parse_float=Decimal)
    return [*found["rows"], *found["fixed"]]


def _csv_rows(text: str) -> Rows:
    rows = list(csv.DictReader(io.StringIO(text)))
    return [{**row, "energy_j": Decimal(row["energy_j"])} for row in rows]


def _live_csv(of: Attribution) -> str:
    return "".join(csv_lines(FakeSource(_snapshot(of)), Controls(), None))


def _live_json(of: Attribution) -> dict[str, Any]:
    (line,) = json_lines(FakeSource(_snapshot(of)), Controls(), None)
    interval: dict[str, Any] = json.loads(line)["interval"]
    return interval


def _parquet_rows(of: Attribution) -> Rows:
    rows: Rows = to_table(of).to_pylist()
    return [{**row, "energy_j": Decimal(repr(row["energy_j"]))} for row in rows]


ROWS: dict[str, Callable[[Attribution], Rows]] = {
    "json": lambda of: _json_rows(document(of)),
    "csv": lambda of: _csv_rows(to_csv(of)),
    "parquet": _parquet_rows,
    "live json": lambda of: _json_rows(_live_json(of)),
    "live csv": lambda of: _csv_rows(_live_csv(of)),
    "exported screen": lambda of: _json_rows(screen_document(_view(of))["interval"]),
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
    found = sum(round(row["energy_j"] * 10**9) for row in ROWS[form](whole))
    assert found == whole.main.measured_nj == sum(energies) + sum(rest)


@pytest.mark.parametrize("grade", GRADES)
@pytest.mark.parametrize("policy", ["separate", "even"])
def test_figures_in_files_say_what_they_are_worth(grade: str, policy: str) -> None:
    loss = {"PUMP": 1234, "SWITCH": 5}
    whole = typical(grade=grade, loss=loss, complete=False)
    whole = replace(whole, policy={**whole.policy, "idle": policy})
    for text in (to_csv(whole), _live_csv(whole)):
        for row in _csv_rows(text):
            assert (row["grade"], row["idle_policy"]) == (grade, policy)
            assert (row["loss"], row["complete"]) == ("pump=1234 switch=5", "no")
    for found in (document(whole), _live_json(whole), screen_document(_view(whole))["interval"]):
        assert found["energy_source"]["grade"] == grade
        assert found["policy"]["idle"] == policy
        assert found["trace"]["loss"] == loss
        assert found["trace"]["complete"] is False
    table = to_table(whole)
    head = json.loads(table.schema.metadata[b"qjoule.attribution/1"])
    assert (head["energy_source"]["grade"], head["policy"]["idle"]) == (grade, policy)
    assert head["trace"]["loss"] == loss
    assert set(table.column("loss").to_pylist()) == {"pump=1234 switch=5"}


@pytest.mark.parametrize("grade", GRADES)
@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
def test_figures_on_screens_say_what_they_are_worth(grade: str, width: int) -> None:
    whole = typical(grade=grade, loss={"SWITCH": 1234})
    whole = replace(whole, policy={**whole.policy, "idle": "even"})
    live = "\n".join(line.plain() for line in compose(_view(whole), width, 24))
    assert f"TOTAL {grade}" in live
    assert "idle even" in live
    assert "lost: 1,234" in live
    printed = " ".join(render(whole, width=width).split())
    assert f"TOTAL {grade}" in printed
    assert "spread evenly" in printed
    assert "1,234 context switches not shown by the kernel" in printed


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
    for found in (document(whole), _live_json(whole), screen_document(_view(whole))["interval"]):
        gone, hides = found["trace"]["changes"]
        assert (gone["what"], gone["name"], gone["energy_j"]) == ("exited", "mariadb:3306", None)
        assert (hides["what"], hides["pid"], hides["energy_j"]) == ("untraced", 7, 2.0)
        assert hides["cpu_ns"] == whole.fixed[0].cpu_ns
    for text in (to_csv(whole), _live_csv(whole)):
        for row in _csv_rows(text):
            assert "mariadb:3306 exited at 2026-11-21T03:31:07Z; " in row["servers_not_seen"]
            assert "mariadbd (process 7) ran untraced since" in row["servers_not_seen"]
    head = json.loads(to_table(whole).schema.metadata[b"qjoule.attribution/1"])
    assert len(head["trace"]["changes"]) == 2
    compared = run_forms(whole, "a").problems
    assert any("ran untraced" in problem for problem in compared)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_servers_that_nobody_sees_are_on_every_screen(width: int) -> None:
    whole = _dark()
    live = "\n".join(line.plain() for line in compose(_view(whole), width, 24))
    assert "mariadb:3306 exited, mariadbd runs untraced 2.00 J" in live
    printed = " ".join(render(whole, width=width).split())
    assert "complete yes · BUT mariadb:3306 exited, mariadbd runs untraced 2.00 J" in printed
    assert "mariadbd (process 7) ran untraced since 2026-11-21T03:31:09Z" in printed
    assert "2.00 J (1.80 J to 2.20 J) are among the other processes" in printed


def test_what_was_lost_is_told_in_words_where_there_is_room() -> None:
    whole = typical(loss={"SWITCH": 1234})
    wide, narrow = (
        "\n".join(line.plain() for line in compose(_view(whole), width, 24)) for width in (200, 80)
    )
    assert "lost: 1,234 context switches not shown by the kernel" in wide
    assert "lost: 1,234 · not calibrated · coverage 98.2 %" in narrow
    assert "lost: none" in "\n".join(line.plain() for line in compose(_view(typical()), 80, 24))


def test_what_commits_took_is_a_number_in_every_file(tmp_path: Path) -> None:
    row = query_row(10**9, keys={"transaction": "a; b"}, commit_nj=5 * 10**8, commit_ns_mean=1.5e6)
    whole = attribution((row,), {"idle": 5})
    whole = replace(whole, policy={**whole.policy, "by": "transaction"})
    write_parquet(whole, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["commit_j"], row["commit_ns_mean"]) for row in found] == [
        (0.5, 1.5e6),
        (None, None),
    ]
    (first, _) = _csv_rows(to_csv(whole))
    assert (first["commit_j"], first["commit_ns_mean"]) == ("0.5", "1500000.0")
