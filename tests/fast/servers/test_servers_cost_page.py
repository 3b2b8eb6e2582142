# SPDX-License-Identifier: Apache-2.0
"""docs/cost.md matches the measured figures; their files are read with care."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.servers import cost_page
from qjoule.servers.cost_page import NOT_MEASURED, document
from qjoule.servers.overhead import (
    FILE,
    MeasuredOverhead,
    known_overheads,
    read_overheads,
    save_overheads,
    write_overheads,
)

PAGE = Path(__file__).parents[3] / "docs/cost.md"
ONE = MeasuredOverhead(
    server="postgres",
    version="15.14",
    workload="small",
    mode="record",
    rung="socket",
    options="",
    load="saturated",
    figure="throughput_lost_ppm",
    median=12_345,
    low=-2_000,
    high=31_000,
    rounds=15,
    queries_per_s=40_000,
    load_average="2.10",
    cpu="2 x a CPU",
    kernel="6.18.5",
    date="2026-11-23",
    tree="abc1234",
)


def known(monkeypatch: pytest.MonkeyPatch, *figures: MeasuredOverhead) -> None:
    monkeypatch.setattr(cost_page, "known_overheads", lambda: {one.key: one for one in figures})


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == document(), "run 'make docs'"


def test_a_cell_without_a_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, ONE)
    minus = "\N{MINUS SIGN}"
    none = " | ".join([NOT_MEASURED] * 3)
    row = f"| small, PostgreSQL | socket | 1.2 % [{minus}0.2, 3.1] | {none} | 15 |"
    assert row in document().splitlines()
    elsewhere = next(line for line in document().splitlines() if line.startswith("| MariaDB, "))
    assert elsewhere.endswith(f", any other process | {NOT_MEASURED} |  |  |  |  |  |")
    assert "PostgreSQL" not in elsewhere
    assert f"| small, PostgreSQL | {NOT_MEASURED} |  |  |  |  |  |" in document().splitlines()
    assert "| 2 x a CPU, Linux 6.18.5 | abc1234 | 2026-11-23 | 2.10 |" in document()


def test_an_option_is_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def inside(options: str, programs: int, tracer: int, reader: int) -> list[MeasuredOverhead]:
        names = {"programs_ns": programs, "tracer_ns": tracer, "reader_ns": reader}
        row = replace(ONE, load="inside", options=options)
        return [replace(row, figure=name, median=ns) for name, ns in names.items()]

    known(monkeypatch, *inside("", 800, 200, 90), *inside("--ids", 950, 190, 95))
    lines = document().splitlines()
    assert "| `--ids` | small, PostgreSQL, socket | +150 | -10 | +5 |" in lines
    assert f"| `--agent` | {NOT_MEASURED} |  |  |  |" in lines
    assert "| small, PostgreSQL | `record` | socket | 800 | 200 | 90 | 290 (≤ 300: met) |" in lines


def test_saving_keeps_other_figures(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    save_overheads([ONE, replace(ONE, mode="top")], tmp_path)
    save_overheads([replace(ONE, median=1)], tmp_path)
    found = known_overheads(tmp_path)
    assert [(one.mode, one.median) for one in found.values()] == [("record", 1), ("top", 12_345)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("median,low", "low,median"),
        ("12345", "many"),
        ("12345", ""),
        (",abc1234", ""),
        (",abc1234", ",abc1234,more"),
    ],
)
def test_a_damaged_file_is_an_error(old: str, new: str) -> None:
    text = write_overheads([ONE])
    assert read_overheads(text) == {ONE.key: ONE}
    with pytest.raises(QjouleError, match=FILE):
        read_overheads(text.replace(old, new))
