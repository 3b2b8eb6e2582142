# SPDX-License-Identifier: Apache-2.0
"""The energy table: its appearance at four widths, its sums, and malicious text."""

from __future__ import annotations

import dataclasses
import os
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fake_attribution import attribution, query_row, typical
from qjoule.model.result import PARTS
from qjoule.reporters import format as fmt
from qjoule.reporters.table import render

GOLDEN = Path(__file__).parents[1] / "golden"
HOSTILE = (
    "\x1b[2J\x1b[31mSELECT",
    "[red]SELECT[/red] [link=http://x]y[/link]",
    "a\nb\rc\td\x00e\x7f\x9b31m",
    "\N{RIGHT-TO-LEFT OVERRIDE}evil\N{ZERO WIDTH SPACE}",
    "表" * 300,
    "x" * 100_000,
    "",
)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_golden(width: int) -> None:
    """Run with QJOULE_UPDATE_GOLDEN=1 to accept a changed table."""
    path = GOLDEN / f"table_{width}.txt"
    text = render(typical(loss={"SEGMENT": 12, "TEXT": 3}, complete=False), width=width)
    if os.environ.get("QJOULE_UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120, 200, 400])
@pytest.mark.parametrize("shape", HOSTILE)
def test_hostile_text_stays_on_its_line_and_is_shown_literally(shape: str, width: int) -> None:
    evil = query_row(10**9, shape, server=shape, rung="symbol", flags=("[bold]flag",))
    other = query_row(10**8, "SELECT ?", server="b")
    table = attribution((evil, other), {"idle": 5 * 10**9})
    host = dataclasses.replace(table.trace, host=shape)
    text = render(dataclasses.replace(table, trace=host), width=width)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert all(cell_len(line) <= max(40, width) for line in text.splitlines())
    assert "[bold]flag" in text
    if shape.startswith("[red]") and width >= 100:
        assert "[red]SELECT[/red]" in text


def _energy_cells(text: str) -> list[Decimal]:
    """The energy column of the table, located by its heading; the total is last."""
    lines = text.splitlines()
    top = next(index for index, line in enumerate(lines) if "energy " in line and "query" in line)
    found = re.search(r"energy \S?J", lines[top])
    assert found
    end = found.end()
    figures = []
    for line in lines[top + 1 :]:
        if not line:
            break
        if not line.startswith("─"):
            figures.append(Decimal(line[:end].split()[-1].replace(",", "")))
    return figures


@given(
    st.lists(st.integers(0, 10**14), max_size=30),
    st.lists(st.integers(0, 10**14), min_size=6, max_size=6),
    st.integers(0, 25),
)
def test_what_is_printed_adds_up(energies: list[int], fixed: list[int], limit: int) -> None:
    rows = tuple(query_row(energy, f"q{index}") for index, energy in enumerate(energies))
    parts = dict(zip(PARTS[1:], fixed, strict=True))
    text = render(attribution(rows, parts), width=120, limit=limit)
    *lines, total = _energy_cells(text)
    assert sum(lines) == total
    expected = min(limit, len(rows)) + len(fixed)
    assert len(lines) in (expected, expected + 1)


def test_beyond_the_limit_there_is_one_row_for_the_others() -> None:
    text = render(typical(), width=120, limit=2)
    assert "other queries (3 groups)" in text
    assert "DELETE" not in text


def test_energy_that_no_row_has_is_not_hidden() -> None:
    whole = typical()
    main = dataclasses.replace(whole.main, measured_nj=whole.main.measured_nj + 7 * 10**9)
    text = render(dataclasses.replace(whole, domains=(main,)), width=120)
    assert re.search(r"NOT ACCOUNTED FOR +7\.000", text)


def test_many_rows_of_one_part_are_summed_up() -> None:
    whole = typical()
    role = next(row for row in whole.fixed if row.kind == "background")
    roles = tuple(
        dataclasses.replace(
            role, keys={"server": "s", "role": f"role{n}"}, energy_nj=role.energy_nj // (2 + n)
        )
        for n in range(6)
    )
    others = tuple(row for row in whole.fixed if row.kind != "background")
    text = render(dataclasses.replace(whole, fixed=roles + others), width=120)
    assert "server background: role0" in text
    assert "server background: others" in text
    assert "role5" not in text
    *lines, total = _energy_cells(text)
    assert sum(lines) == total


def test_no_energy_source_is_unknown_not_zero() -> None:
    rows = (query_row(0, "SELECT ?"),)
    text = render(attribution(rows, {}, grade="none"), width=120)
    assert "energies are unknown" in text
    row = next(line for line in text.splitlines() if line.startswith("SELECT"))
    assert row.count(fmt.UNKNOWN) >= 4
    assert not re.search(r"\b0\.000\b", text)


@pytest.mark.parametrize("grade", ["measured", "estimated", "simulated"])
def test_grade_policy_loss_and_gaps_are_on_every_table(grade: str) -> None:
    text = render(
        typical(grade=grade, loss={"PUMP": 7}, complete=False, unattributed_windows=3), width=60
    )
    flat = " ".join(text.split())
    assert f"TOTAL {grade}" in flat
    assert "idle separate" in flat
    assert "7 records read too late" in flat
    assert "NO: the trace was cut off" in flat
    assert "3 of 625" in flat
    assert "mariadb:3306 symbol" in flat


def test_flags_are_explained() -> None:
    row = query_row(10**9, flags=("below_resolution",))
    text = render(attribution((row,), {}), width=80)
    assert "a below_resolution" in text
    assert any(line.startswith("SELECT") and " a" in line for line in text.splitlines())


def test_colour_only_when_asked() -> None:
    assert "\x1b" not in render(typical(), width=80)
    assert "\x1b[" in render(typical(), width=80, color=True)
