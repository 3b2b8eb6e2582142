"""The benchmark of rungs: its pairs, its rows, and what it saves."""

from __future__ import annotations

from typing import Any

import pytest
from bench import bench_rungs
from bench.rungs import pairs as measuring
from bench.rungs.pairs import Pairs, Size, turn
from bench.rungs.targets import TARGETS

from qjoule.contract import Rung
from qjoule.servers.measured import read_costs, write_costs
from qjoule.servers.types import Flavour

(MARIADB,) = (one for one in TARGETS if one.name == "mariadb:socket")


def test_a_traced_turn_is_held_against_both_sides() -> None:
    pairs = Pairs("10.11")
    pairs.add(before=9000.0, during=10_500.0, after=11_000.0)
    assert (pairs.untraced, pairs.added) == ([10_000.0], [500.0])


def test_a_slice_that_is_hit_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        tgids = (1, 2)

    queries, spent_ns = 0, [0]

    def query() -> None:
        nonlocal queries
        queries += 1
        spent_ns[0] += 1_000_000 if queries == 15 else 700

    monkeypatch.setattr(measuring, "cpu_ns", lambda pids: spent_ns[0] if pids == (1, 2) else -1)
    server: Any = Server()
    assert turn(server, query, Size(1, slices=5, queries=10)) == 700.0
    assert queries == 50


@pytest.mark.parametrize(
    ("added", "verdict"),
    [(400.0, "met"), (1400.0, "missed")],
)
def test_a_row_says_what_its_target_is(added: float, verdict: str) -> None:
    pairs = Pairs("10.11.6", [added + i for i in range(12)], [9000.0] * 12, {"query": 1200})
    row = bench_rungs.line(MARIADB, pairs)
    assert row.startswith("mariadb:socket")
    assert f"≤ 1 µs: {verdict}; lost records: 1,200 query" in row


def test_what_is_saved_is_what_was_measured() -> None:
    cost = bench_rungs.cost(MARIADB, Pairs("10.11.6", [600.0, 500.0, 900.0], [9000.0] * 3))
    assert (cost.cost_ns, cost.low_ns, cost.high_ns) == (600, 500, 900)
    assert (cost.server, cost.version, cost.rung) == ("mariadb", "10.11.6", "socket")
    assert read_costs(write_costs([cost])) == {cost.key: cost}


def test_each_target_is_there_once() -> None:
    names = [target.name for target in TARGETS]
    assert len(set(names)) == len(names)
    for flavour in (Flavour.MARIADB, Flavour.MYSQL, Flavour.POSTGRES):
        assert {one.rung for one in TARGETS if one.flavour is flavour} == {
            Rung.SOCKET,
            Rung.SYMBOL,
        }
