# SPDX-License-Identifier: Apache-2.0
"""docs/servers.md matches the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers import support_table
from qjoule.servers.measured import MeasuredCost
from qjoule.servers.mysql.signatures import SIGNATURES
from qjoule.servers.registry import flavours
from qjoule.servers.support_table import document
from qjoule.servers.supported import documented

PAGE = Path(__file__).parents[3] / "docs/servers.md"
COST = MeasuredCost(
    "postgres",
    "15.14",
    "symbol",
    2345,
    2100,
    2600,
    3456,
    3210,
    3800,
    "SELECT 1",
    "a CPU",
    "6.18.5",
    "2026-11-21",
)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == document(), "run 'make docs'"


@pytest.mark.parametrize(
    ("row", "end"),
    [
        (
            "| MariaDB | 10.11, 11.8 | plain text | socket | exact | ",
            "socket, exact | not traced |",
        ),
        ("| MySQL | 8.0.15, 9.7 | thread pool | symbol | exact | ", "not traced | not traced |"),
        ("| PostgreSQL | 15, 17, 18 | TLS possible | symbol | exact |", "not exact | not traced |"),
        ("| Redis | 7.0, 8.0 | plain text | socket | exact |", "not traced |"),
        ("| Redis | 7.0, 8.0 | io-threads that read | statistical | not exact |", "not traced |"),
        ("| VoltDB | 10.0 | all | symbol | exact |", "by thread, no queries |"),
        ("| any other process |  | all | by thread | no queries |", "by thread, no queries |"),
    ],
)
def test_rows_worked_out_by_hand(row: str, end: str) -> None:
    assert any(line.startswith(row) and line.endswith(end) for line in document().splitlines())


def test_every_server_has_a_row_and_what_is_traced_is_tested() -> None:
    assert [server.flavour for server in documented()].count("redis") == 1
    assert {server.flavour for server in documented()} == set(flavours())
    assert all(f"\n| {server.name} | " in document() for server in documented())
    assert all(server.tested for server in documented() if server.flavour != "generic")


def test_every_signature_is_listed_once() -> None:
    assert all(document().count(f"`{name}`") == 1 for _, name, _ in SIGNATURES)


def test_a_measured_cost_stands_in_its_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_table, "known_costs", lambda: {COST.key: COST})
    rows = [
        line
        for line in document().splitlines()
        if "2.35 µs (2.10 to 2.60), whole 3.46 µs (3.21 to 3.80)" in line
    ]
    assert [row.split(" | ")[2] for row in rows[:-1]] == ["TLS possible", "configuration unknown"]
    assert all(row.startswith("| PostgreSQL | 15, 17, 18 | ") for row in rows[:-1])
    assert rows[-1].endswith("| `SELECT 1` | a CPU, Linux 6.18.5, 2026-11-21 |")
