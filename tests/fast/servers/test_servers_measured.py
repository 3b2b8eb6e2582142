# SPDX-License-Identifier: Apache-2.0
"""The file of measured costs: what is written can be read, and broken files are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.servers.measured import (
    FILE,
    MeasuredCost,
    known_costs,
    read_costs,
    save_costs,
    write_costs,
)
from qjoule.servers.supported import documented

COST = MeasuredCost(
    "redis",
    "7.0.15",
    "socket",
    820,
    -40,
    1100,
    1300,
    900,
    1500,
    "GET k",
    "X, 2 GHz",
    "6.18.5",
    "2026-11-21",
)


def test_what_is_written_is_read() -> None:
    costs = [COST, replace(COST, server="mariadb", query="SELECT 'a,b'", programs_ns=410)]
    assert read_costs(write_costs(costs)) == {cost.key: cost for cost in costs}


def test_the_order_is_fixed() -> None:
    costs = [COST, replace(COST, rung="agent"), replace(COST, server="mysql")]
    assert write_costs(costs) == write_costs(reversed(costs))


def test_costs_are_saved_with_their_server(tmp_path: Path) -> None:
    mariadb, mysql = replace(COST, server="mariadb"), replace(COST, server="mysql")
    for name in ("mysql", "redis"):
        (tmp_path / name).mkdir()
    save_costs([mysql, COST], tmp_path)
    dearer = replace(mysql, cost_ns=900)
    save_costs([dearer, mariadb], tmp_path)
    assert list(known_costs(tmp_path).values()) == [mariadb, dearer, COST]
    assert read_costs((tmp_path / "redis" / FILE).read_text("utf-8")) == {COST.key: COST}


def test_the_package_has_such_a_file_of_servers_that_it_knows() -> None:
    known = {server.flavour for server in documented()}
    assert {cost.server for cost in known_costs().values()} <= known


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("820", "fast"), "row 1: invalid literal"),
        (("820,", ""), "row 1: "),
        (("2026-11-21,", "2026-11-21,dear"), "row 1: invalid literal"),
        (("2026-11-21,", "2026-11-21"), "row 1: not as many values"),
        (("GET k", "GET k,more"), "row 1: invalid literal"),
        (("2026-11-21,", "2026-11-21,,"), "row 1: not as many values"),
        (("6.18.5", ""), "row 1: not as many values"),
        (("cost_ns", "cost"), "its columns are not"),
    ],
)
def test_a_broken_file_is_refused(change: tuple[str, str], message: str) -> None:
    with pytest.raises(QjouleError, match=message):
        read_costs(write_costs([COST]).replace(*change))


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(QjouleError, match="columns"):
        read_costs("")
