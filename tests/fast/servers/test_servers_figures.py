# SPDX-License-Identifier: Apache-2.0
"""docs/servers.md and docs/cost.md show the measured figures, which are read with care."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qjoule.errors import QjouleError
from qjoule.servers import cost_page, support_table
from qjoule.servers.measured import (
    MeasuredCost,
    known_costs,
    read_costs,
    save_costs,
    write_costs,
)
from qjoule.servers.mysql.signatures import SIGNATURES
from qjoule.servers.overhead import (
    MeasuredOverhead,
    known_overheads,
    read_overheads,
    save_overheads,
    write_overheads,
)
from qjoule.servers.registry import flavours
from qjoule.servers.supported import documented

DOCS = Path(__file__).parents[3] / "docs"
COST = MeasuredCost(
    *("postgres", "15.14", "symbol", 2345, 2100, 2600, 3456, 3210, 3800),
    *("SELECT 1", "a CPU", "6.18.5", "2026-11-21"),
)
OVERHEAD = MeasuredOverhead(
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


def cost_lines(monkeypatch: pytest.MonkeyPatch, *figures: MeasuredOverhead) -> list[str]:
    """docs/cost.md if these figures were all that is known."""
    monkeypatch.setattr(cost_page, "known_overheads", lambda: {row.key: row for row in figures})
    return cost_page.document().splitlines()


def test_the_pages_are_up_to_date() -> None:
    assert (DOCS / "servers.md").read_text("utf-8") == support_table.document(), "run 'make docs'"
    assert (DOCS / "cost.md").read_text("utf-8") == cost_page.document(), "run 'make docs'"


def test_every_server_and_signature_is_listed() -> None:
    page = support_table.document()
    assert {server.flavour for server in documented()} == set(flavours())
    assert all(f"\n| {server.name} | " in page for server in documented())
    assert all(server.tested for server in documented() if server.flavour != "generic")
    assert all(page.count(f"`{name}`") == 1 for _, name, _ in SIGNATURES)
    assert {cost.server for cost in known_costs().values()} <= set(flavours())


def test_a_measured_cost_is_only_in_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_table, "known_costs", lambda: {COST.key: COST})
    shown = "2.35 µs (2.10 to 2.60), whole 3.46 µs (3.21 to 3.80)"
    *rows, last = [line for line in support_table.document().splitlines() if shown in line]
    assert [row.split(" | ")[2] for row in rows] == ["TLS possible", "configuration unknown"]
    assert all(row.startswith("| PostgreSQL | 15, 17, 18 | ") for row in rows)
    assert last.endswith("| `SELECT 1` | a CPU, Linux 6.18.5, 2026-11-21 |")


def test_what_was_not_measured_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = cost_lines(monkeypatch, OVERHEAD)
    row = "| small, PostgreSQL | socket | `record` | 1.2 % [\N{MINUS SIGN}0.2, 3.1] |  | 15 |"
    assert [line for line in lines if line.startswith("| small, PostgreSQL | socket")] == [row]
    assert any("| 2 x a CPU, Linux 6.18.5 | abc1234 | 2026-11-23 | 2.10 |" in one for one in lines)


def test_the_cost_of_an_option_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def inside(options: str, programs: int, tracer: int, reader: int) -> list[MeasuredOverhead]:
        figures = {"programs_ns": programs, "tracer_ns": tracer, "reader_ns": reader}
        row = replace(OVERHEAD, load="inside", options=options)
        return [replace(row, figure=name, median=ns) for name, ns in figures.items()]

    lines = cost_lines(monkeypatch, *inside("", 800, 200, 90), *inside("--ids", 950, 190, 95))
    assert "| `--ids` | small, PostgreSQL, socket | +150 | -10 | +5 |" in lines
    assert not any(line.startswith("| `--agent` |") for line in lines)
    assert "| small, PostgreSQL | `record` | socket | 800 | 200 | 90 | 290 (≤ 300: met) |" in lines


def test_saving_replaces_equal_figures_and_keeps_others(tmp_path: Path) -> None:
    for name in ("mysql", "postgres"):
        (tmp_path / name).mkdir()
    mysql, mariadb = replace(COST, server="mysql"), replace(COST, server="mariadb")
    dearer = replace(mysql, cost_ns=900, query="SELECT 'a,b'", programs_ns=410)
    save_costs([mysql, COST], tmp_path)
    save_costs([dearer, mariadb], tmp_path)
    assert list(known_costs(tmp_path).values()) == [mariadb, dearer, COST]
    top, again = replace(OVERHEAD, mode="top"), replace(OVERHEAD, median=1)
    save_overheads([OVERHEAD, top], tmp_path)
    save_overheads([again], tmp_path)
    assert list(known_overheads(tmp_path).values()) == [again, top]


@pytest.mark.parametrize(
    ("read", "text", "old", "new", "message"),
    [
        (read_costs, write_costs([COST]), "2345", "fast", "row 1: invalid literal"),
        (read_costs, write_costs([COST]), "2026-11-21,", "2026-11-21", "not as many values"),
        (read_costs, write_costs([COST]), "2026-11-21,", "2026-11-21,,", "not as many values"),
        (read_costs, write_costs([COST]), "6.18.5", "", "row 1: not as many values"),
        (read_costs, write_costs([COST]), "cost_ns", "cost", "its columns are not"),
        (read_costs, "", "", "", "columns"),
        (read_overheads, write_overheads([OVERHEAD]), "median,low", "low,median", "columns"),
        (read_overheads, write_overheads([OVERHEAD]), "12345", "many", "row 1: invalid literal"),
    ],
)
def test_a_damaged_file_is_an_error(
    read: Callable[[str], Any], text: str, old: str, new: str, message: str
) -> None:
    with pytest.raises(QjouleError, match=message):
        read(text.replace(old, new))
