# SPDX-License-Identifier: Apache-2.0
"""A fleet's sums: exact for any division of time and parts, and with the intervals of the rule.

The reference adds the same rows up in Python, from the Parquet files alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fleet.bench.simulator import coverage
from fleet.bench.simulator.population import Plan
from hypothesis import given, settings
from hypothesis import strategies as st

import fleet_dataset
from fleet_answers import BEGIN_S, top_of, totals
from fleet_dataset import Fleet, Host
from qjoule.agent.hourly_tables import ERRORS
from qjoule.agent.rollup_layout import HOUR_S
from qjoule.errors import UsageError
from qjoule.model.interval import Z95
from qjoule_fleet.questions import cells, parse_by
from qjoule_fleet.times import Range
from qjoule_fleet.top import Top

HOSTS = [
    Host("db1", servers=("mariadb", "redis")),
    Host("db2", grade="estimated"),
    Host("db3", grade="estimated", policy="even"),
    Host("db4"),
    Host("db4", "4" * 16, hours=(1,)),
    Host("old", schema="1", hours=(0, 2)),
]
FLEET = Fleet(HOSTS, shapes=3, minutes=(0, 7, 31, 59), tags=("alpha", "beta"))
BYS = ("shape", "host", "host,server", "grade", "release,shape", "tag:tenant", "database")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet_dataset.write(tmp_path_factory.mktemp("fleet"), FLEET)


@pytest.fixture(scope="module")
def rows(root: Path) -> list[dict[str, Any]]:
    """All rows by minute, with the parts' host ids."""
    result = []
    for path in sorted(root.glob("rollups/*/*/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        host = path.parent.name.removeprefix("host=")
        has_host_id = "host_id" in table.schema.names
        for row in table.to_pylist():
            base = row if has_host_id else {**row, "host_id": f"={host}", "policy": ""}
            result.append({**base, "host": host, "minute_s": int(row["minute"].timestamp())})
    return result


def sums(ranking: Top) -> dict[tuple[str, ...], tuple[int, int, int]]:
    return {
        (*row.keys.values(), row.grade, row.policy): (row.energy_nj, row.calls, row.cpu_ns)
        for row in ranking.rows
    }


def add(*parts: Mapping[Any, tuple[int, ...]]) -> dict[Any, tuple[int, ...]]:
    keys = {key for part in parts for key in part}
    return {
        key: tuple(map(sum, zip(*(part[key] for part in parts if key in part), strict=True)))
        for key in keys
    }


@settings(max_examples=5)
@given(
    st.lists(st.integers(-60, 4 * 3600), min_size=2, max_size=4, unique=True).map(sorted),
    st.sampled_from([by for by in BYS if "tag" not in by]),
)
def test_any_division_of_the_time_adds_up(root: Path, cuts: list[int], by: str) -> None:
    times = [BEGIN_S + cut for cut in cuts]
    try:
        undivided = top_of(root, by, Range(times[0], times[-1]), limit=None)
    except UsageError:  # it is within ten minutes of a past hour
        return
    pieces = []
    for begin_s, end_s in pairwise(times):
        with suppress(UsageError):
            pieces.append(top_of(root, by, Range(begin_s, end_s), limit=None))
    assert sums(undivided) == add(*map(sums, pieces))
    assert totals(undivided) == add(*map(totals, pieces))
    assert all(total.unaccounted_nj == 0 for piece in pieces for total in piece.totals)


@pytest.mark.parametrize(("by", "limit"), [*((by, None) for by in BYS), ("shape", 1)])
def test_rows_and_everything_else_are_what_was_measured(
    root: Path, rows: list[dict[str, Any]], by: str, limit: int | None
) -> None:
    ranking = top_of(root, by, Range(BEGIN_S + 5, BEGIN_S + 3 * HOUR_S), limit=limit)
    measured: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        of_node = (row["kind"], row["name"]) == ("node", fleet_dataset.MAIN)
        if of_node and row["minute_s"] >= ranking.range.begin_s:
            measured[row["grade"], row["policy"]] += row["energy_nj"]
    assert {(total.grade, total.policy): total.node_nj for total in ranking.totals} == measured
    for total in ranking.totals:
        assert total.unaccounted_nj == 0 and total.others_nj >= 0
        own = [
            row for row in ranking.rows if (row.grade, row.policy) == (total.grade, total.policy)
        ]
        assert total.rows_nj == sum(row.energy_nj for row in own)
        parts = [total.rows_nj, total.others_nj, *total.parts_nj.values()]
        assert sum(parts) == total.node_nj


def test_sums_and_intervals_are_those_of_the_rule(root: Path, rows: list[dict[str, Any]]) -> None:
    """Sums are of minutes alone, so that the agents' rounding of hours is not in it."""
    begin_s, end_s = BEGIN_S + 600, BEGIN_S + HOUR_S - 600
    query_rows = [
        row for row in rows if row["kind"] == "queries" and begin_s <= row["minute_s"] < end_s
    ]
    for by, key in (("shape", "fingerprint"), ("server", "server"), ("grade", "grade")):
        absolute = by == "server"
        ranking = top_of(root, by, Range(begin_s, end_s), limit=None, absolute=absolute)
        wanted: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in query_rows:
            wanted[row[key], row["grade"], row["policy"]].append(row)
        assert len(ranking.rows) == len(wanted)
        for its in ranking.rows:
            group = wanted[(*its.keys.values(), its.grade, its.policy)]
            assert its.energy_nj == sum(member["energy_nj"] for member in group)
            assert its.calls == sum(member["calls"] for member in group)
            assert its.hosts == len({member["host_id"] for member in group})
            ends = by_the_rule(group, absolute=absolute)
            assert its.energy_nj_ci95 == pytest.approx(ends, rel=1e-9, abs=1)


def by_the_rule(group: list[dict[str, Any]], *, absolute: bool) -> tuple[float, float]:
    shapes: dict[str, float] = defaultdict(float)
    hosts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in group:
        shapes[row["fingerprint"]] += row["model_nj"]
        for name in ERRORS:
            hosts[row["host_id"]][name] += row[name]

    def over_hosts(name: str) -> float:
        each = [host[name] for host in hosts.values()]
        return math.hypot(*each) if group[0]["grade"] == "measured" else sum(each)

    def whole(name: str) -> float:
        return math.fsum(row[name] for row in group)

    variance = whole("random_nj2") + math.hypot(*shapes.values()) ** 2
    errors = ("scaled_nj", "loss_nj", *(("total_nj",) if absolute else ()))
    widths = (Z95 * math.sqrt(variance), *map(over_hosts, errors))
    half, middle = math.hypot(*widths), whole("energy_nj") + whole("loss_nj")
    low = middle - half - over_hosts("unnamed_nj") - whole("down_nj")
    return max(0.0, low), middle + half + over_hosts("unnamed_nj") + whole("up_nj")


def test_questions_are_text_that_does_not_depend_on_values() -> None:
    """A tag's key is the only word of a user in them, as a literal."""
    hostile = "k' or '1'='1"
    assert cells(parse_by(f"tag:{hostile}")).count("'k'' or ''1''=''1'") == 1


# ---- intervals of a simulated fleet hold the truth -----------------------------------------------


def test_printed_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """Sums of energies with all kinds of error but those of unknown sign, which only widen."""
    plan = Plan(hosts=3, shapes=6, seed=100, calls_per_s=3.0, churn_per_day=0.0)
    plan = replace(plan, estimated=0.3, one_sided=False)
    truth = coverage.write(tmp_path, 300, plan)
    printed = coverage.printed(tmp_path, plan)
    assert printed.keys() == truth.keys()
    held = coverage.held(printed, truth)
    assert held.count > 700 and 0.93 <= held.share <= 0.97, held
    half = {
        group: (low + (high - low) / 4, high - (high - low) / 4)
        for group, (low, high) in printed.items()
    }
    assert coverage.held(half, truth).share < 0.75, "half as wide, they would hold it in 67 %"
