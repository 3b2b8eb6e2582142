# SPDX-License-Identifier: Apache-2.0
"""docs/servers.md and docs/cost.md show the measured figures, which are read with care."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.servers import cost_page, support_table
from qjoule.servers.measured import (
    MeasuredCost,
    known_costs,
    read_costs,
    write_costs,
)
from qjoule.servers.mysql.find import SIGNATURES
from qjoule.servers.registry import flavours
from qjoule.servers.supported import documented

DOCS = Path(__file__).parents[3] / "docs"
COST = MeasuredCost(
    *("postgres", "15.14", "symbol", 2345, 2100, 2600, 3456, 3210, 3800),
    *("SELECT 1", "a CPU", "6.18.5", "2026-11-21"),
)


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2345", "fast", "row 1: invalid literal"),
        ("6.18.5", "", "row 1: not as many values"),
        ("cost_ns", "cost", "its columns are not"),
    ],
)
def test_a_damaged_file_is_an_error(old: str, new: str, message: str) -> None:
    text = write_costs([COST])
    assert read_costs(text) == {COST.key: COST}
    with pytest.raises(QjouleError, match=message):
        read_costs(text.replace(old, new))
