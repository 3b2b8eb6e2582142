# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet: rows obey the agent's laws, intervals hold the truth, and faults are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from bench.fleet import coverage, faults, parts
from bench.fleet.faults import OTHER_ID
from bench.fleet.hours import simulate
from bench.fleet.population import Fleet, Plan, draw

from fleet_asked import asked
from qjoule.fleet import layout
from qjoule.fleet.layout import HOURS, ROLLUPS
from qjoule.fleet.schema import AMOUNTS, ROWS
from qjoule.fleet.times import Range
from qjoule.fleet.top import Top
from qjoule.trace.arrow import pc, pq

HOURS_WRITTEN = 3
PLAN = Plan(hosts=12, days=2, shapes=40, seed=3, churn_per_day=0.2)


def test_rows_of_each_minute_add_up_and_are_the_same_whenever_they_are_made() -> None:
    rows = simulate(draw(PLAN), 2, 17).rows
    assert rows.schema == ROWS
    node = pc.and_(pc.equal(rows["kind"], "node"), pc.equal(rows["name"], "package"))
    measured = rows.filter(node).sort_by("minute")
    others = rows.filter(pc.not_equal(rows["kind"], "node"))
    sums = others.group_by("minute").aggregate([("energy_nj", "sum")]).sort_by("minute")
    assert sums["energy_nj_sum"].to_pylist() == measured["energy_nj"].to_pylist()
    queries = rows.filter(pc.equal(rows["kind"], "queries"))
    assert [sum(one) for one in queries["latency"].to_pylist()] == queries["calls"].to_pylist()
    again = draw(PLAN)
    simulate(again, 5, 3)
    assert simulate(again, 2, 17).rows.equals(rows)


def test_parts_are_the_agents_and_hours_are_sums_of_minutes(tmp_path: Path) -> None:
    root = tmp_path / "dataset"
    parts.write(root, draw(Plan(hosts=3, days=1, shapes=5, seed=1)), parts.Wanted(hours=3))
    paths = sorted(root.rglob("*.parquet"))
    assert len(paths) == 3 * (2 * 3 + 2)
    for path in paths:
        part = layout.part_at(path.relative_to(root).as_posix())
        metadata = layout.decoded(pq.read_schema(path).metadata)
        assert part is not None and not part.contradicts(metadata)
        assert not layout.unreadable(metadata[layout.VERSION_KEY])
    totals = []
    for table in (ROLLUPS, HOURS):
        tables = [pq.ParquetFile(one).read() for one in (root / table).rglob("*.parquet")]
        rows = pa.concat_tables(tables)
        totals.append([pc.sum(rows[name]).as_py() for name in AMOUNTS])
    assert totals[0] == totals[1]
    queries = rows.filter(pc.equal(rows["kind"], "queries"))
    truth = pq.ParquetFile(parts.truth_path(root)).read()
    assert pc.sum(truth["energy_nj"]) == pc.sum(queries["energy_nj"])
    off = abs(pc.sum(truth["true_nj"]).as_py() / pc.sum(truth["energy_nj"]).as_py() - 1)
    assert 0 < off < 0.2


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


def energies(root: Path, fleet: Fleet) -> tuple[Top, dict[str, int]]:
    """The answer by host, and its energies, whatever their grade."""
    begin_s = fleet.plan.begin_s
    answer = asked(root, within=Range(begin_s, begin_s + 3600 * HOURS_WRITTEN), limit=None)
    sums: dict[str, int] = {}
    for row in answer.rows:
        sums[row.keys["host"]] = sums.get(row.keys["host"], 0) + row.energy_nj
    return answer, sums


def test_of_hosts_with_faults_all_that_is_sound_counts_once_and_the_rest_is_named(
    tmp_path: Path,
) -> None:
    fleet = draw(Plan(hosts=len(faults.KINDS), shapes=3, seed=9, calls_per_s=1.0))
    root = tmp_path / "dataset"
    parts.write(root, fleet, parts.Wanted(hours=HOURS_WRITTEN))
    found = {one.kind: one for one in faults.apply(root, fleet.hosts.names)}
    assert set(found) == set(faults.KINDS)
    truth = pq.ParquetFile(parts.truth_path(root)).read().to_pylist()

    def true_nj(host: str, left_out: tuple[int, ...] = ()) -> int:
        rows = [row for row in truth if row["host"] == host]
        first = min(row["hour_s"] for row in rows)
        kept = [row for row in rows if (row["hour_s"] - first) // 3600 not in left_out]
        return sum(row["energy_nj"] for row in kept)

    answer, by_host = energies(root, fleet)
    left_out = {"missing_parts": (0,), "late": (1, 2)}
    left_out |= dict.fromkeys(("newer_major", "truncated", "liar"), (HOURS_WRITTEN - 1,))
    for kind, fault in found.items():
        if kind != "same_name":
            assert by_host[fault.host] == true_nj(fault.host, left_out.get(kind, ())), kind
    refused = {one.path for one in answer.read.refused}
    due = {path for fault in found.values() for path in fault.refused}
    # A copy below another date is not of the asked time, so nobody looks at it.
    assert {path for path in due if "date=2031" not in path} <= refused
    assert not any(path.startswith("hours/") for path in refused - due)

    name = found["same_name"].host
    own = fleet.hosts.host_ids[fleet.hosts.names.index(name)]
    same = {host.split("#")[1]: nj for host, nj in by_host.items() if host.startswith(f"{name}#")}
    assert set(same.values()) == {true_nj(name)} and len(same) == 2
    assert any(own.startswith(one) for one in same) and any(
        OTHER_ID.startswith(one) for one in same
    )
    unknown = [row for row in answer.rows if row.keys["host"] == found["wrong_grade"].host]
    assert len(unknown) == 2 and "perfect" in {row.grade for row in unknown}

    late = found["late"]
    assert [host for host, _ in answer.read.missing].count(late.host) == 2
    faults.deliver(root, late)
    assert energies(root, fleet)[1][late.host] == true_nj(late.host)
