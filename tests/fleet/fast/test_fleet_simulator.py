# SPDX-License-Identifier: Apache-2.0
"""The fleet simulator: rows obey the agent's laws; hosts and statements behave as planned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.fleet import faults, parts
from bench.fleet.fits import line, slope
from bench.fleet.hours import busy, simulate
from bench.fleet.population import DAY_MINUTES, Fleet, Plan, draw

from qjoule.fleet import layout
from qjoule.fleet.layout import HOURS, ROLLUPS
from qjoule.fleet.schema import AMOUNTS, ROWS
from qjoule.trace.arrow import pc, pq

HOURS_WRITTEN = 3
PLAN = Plan(hosts=12, days=2, shapes=40, seed=3, churn_per_day=0.2)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return draw(PLAN)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fleet") / "dataset"
    few = draw(Plan(hosts=3, days=1, shapes=5, seed=1))
    parts.write(root, few, parts.Wanted(hours=HOURS_WRITTEN))
    return root


def test_rows_of_each_minute_add_up_to_the_node(fleet: Fleet) -> None:
    rows = simulate(fleet, 2, 17).rows
    assert rows.schema == ROWS
    node = pc.and_(pc.equal(rows["kind"], "node"), pc.equal(rows["name"], "package"))
    measured = rows.filter(node).sort_by("minute")
    others = rows.filter(pc.not_equal(rows["kind"], "node"))
    sums = others.group_by("minute").aggregate([("energy_nj", "sum")]).sort_by("minute")
    assert sums["energy_nj_sum"].to_pylist() == measured["energy_nj"].to_pylist()
    assert sums["minute"].to_pylist() == measured["minute"].to_pylist()


def test_an_hour_is_the_same_whenever_it_is_made(fleet: Fleet) -> None:
    again = draw(PLAN)
    simulate(again, 5, 3)
    assert simulate(again, 2, 17).rows.equals(simulate(fleet, 2, 17).rows)


def test_histograms_have_all_calls(fleet: Fleet) -> None:
    rows = simulate(fleet, 1, 9).rows
    queries = rows.filter(pc.equal(rows["kind"], "queries"))
    sums = [sum(one) for one in queries["latency"].to_pylist()]
    assert sums == queries["calls"].to_pylist()
    assert all(one[-1] > 0 for one in queries["latency"].to_pylist())


def test_places_in_the_order_are_always_taken(fleet: Fleet) -> None:
    """Statements die and others take their places, at the rate of the plan."""
    lives = fleet.lives
    for minute in (0, 700, 1_441, PLAN.days * DAY_MINUTES - 1):
        alive = (lives.born_minute <= minute) & (minute < lives.dead_minute)
        assert sorted(lives.slot[alive]) == list(range(PLAN.shapes))
    replaced = len(lives.slot) - PLAN.shapes
    assert replaced == pytest.approx(PLAN.churn_per_day * PLAN.days * PLAN.shapes, abs=12)
    assert len(set(lives.fingerprints)) == len(lives.fingerprints)


def test_calls_follow_zipf() -> None:
    """The logarithm of a place's calls falls with the logarithm of its number as planned."""
    found = simulate(draw(Plan(hosts=1, shapes=40, churn_per_day=0.0)), 0, 12)
    queries = found.rows.filter(pc.equal(found.rows["kind"], "queries"))
    calls = queries.group_by("fingerprint").aggregate([("calls", "sum")])
    by_calls = np.sort(calls["calls_sum"].to_numpy())[::-1]
    found_slope = slope(np.arange(1, 41).tolist(), by_calls.tolist())
    assert found_slope.value == pytest.approx(-PLAN.zipf, abs=0.05)


def test_load_has_a_day_in_each_zone(fleet: Fleet) -> None:
    minutes = np.arange(DAY_MINUTES)
    peaks = np.array([int(busy(fleet, host, minutes).argmax()) / 60 for host in range(PLAN.hosts)])
    for host in range(PLAN.hosts):
        day = busy(fleet, host, minutes)
        assert day.max() > 4 * day.min()
    local = (peaks + fleet.hosts.phase_h) % 24
    assert np.allclose(local, 14, atol=0.1)
    assert np.ptp(peaks) > 5


def test_a_release_changes_the_energy_of_some_statements() -> None:
    fleet = draw(Plan(hosts=1, days=1, shapes=40, churn_per_day=0.0, load_spread=0.0))
    before, after = simulate(fleet, 0, 11), simulate(fleet, 0, 14)
    per_call = [_per_call(one.rows) for one in (before, after)]
    changed = fleet.lives.release != 1.0
    assert 0 < changed.sum() < 20
    for at, name in enumerate(fleet.lives.fingerprints):
        ratio = per_call[1][name] / per_call[0][name]
        assert ratio == pytest.approx(fleet.lives.release[at], rel=0.1)


def _per_call(rows: pa.Table) -> dict[str, float]:
    queries = rows.filter(pc.equal(rows["kind"], "queries"))
    sums = queries.group_by("fingerprint").aggregate([("energy_nj", "sum"), ("calls", "sum")])
    per = np.divide(sums["energy_nj_sum"].to_numpy(), sums["calls_sum"].to_numpy())
    return dict(zip(sums["fingerprint"].to_pylist(), per, strict=True))


def test_parts_are_the_agents(written: Path) -> None:
    found = sorted(written.rglob("*.parquet"))
    assert len(found) == 3 * (2 * HOURS_WRITTEN + 2)
    for path in found:
        part = layout.part_at(path.relative_to(written).as_posix())
        metadata = layout.decoded(pq.read_schema(path).metadata)
        assert part is not None
        assert not part.contradicts(metadata)
        assert not layout.unreadable(metadata[layout.VERSION_KEY])


def test_hours_and_truth_are_sums_of_minutes(written: Path) -> None:
    totals = []
    for table in (ROLLUPS, HOURS):
        rows = pa.concat_tables(
            pq.ParquetFile(p).read() for p in (written / table).rglob("*.parquet")
        )
        queries = rows.filter(pc.equal(rows["kind"], "queries"))
        totals.append([pc.sum(rows[name]).as_py() for name in AMOUNTS])
    truth = pq.ParquetFile(parts.truth_path(written)).read()
    assert totals[0] == totals[1]
    assert pc.sum(truth["energy_nj"]) == pc.sum(queries["energy_nj"])
    off = abs(pc.sum(truth["true_nj"]).as_py() / pc.sum(truth["energy_nj"]).as_py() - 1)
    assert 0 < off < 0.2


def test_workers_write_the_same_parts(tmp_path: Path) -> None:
    fleet = draw(Plan(hosts=2, days=1, shapes=2, calls_per_s=1.0))
    wanted = parts.Wanted(minutes=False, latency=False, hours=3)
    sizes = [parts.write(tmp_path / str(jobs), fleet, wanted, jobs) for jobs in (1, 2)]
    assert sizes[0] == sizes[1]
    for path in (tmp_path / "1").rglob("*.parquet"):
        assert (tmp_path / "2" / path.relative_to(tmp_path / "1")).read_bytes() == path.read_bytes()


def test_faults_leave_what_they_say(tmp_path: Path) -> None:
    fleet = draw(Plan(hosts=len(faults.KINDS), days=1, shapes=2, calls_per_s=1.0))
    root = tmp_path / "dataset"
    parts.write(root, fleet, parts.Wanted(hours=HOURS_WRITTEN))
    found = {one.kind: one for one in faults.apply(root, fleet.hosts.names)}
    assert set(found) == set(faults.KINDS)
    for fault in found.values():
        assert all((root / path).exists() for path in fault.refused)
        assert not any((root / path).exists() for path in fault.late)
    assert len(found["missing_parts"].lost) == 1
    old = list((root / ROLLUPS).glob(f"*/host={found['old_schema'].host}/*.parquet"))
    assert {layout.decoded(pq.read_schema(one).metadata)[layout.VERSION_KEY] for one in old} == {
        "1"
    }
    faults.deliver(root, found["late"])
    assert all((root / path).exists() for path in found["late"].late)


def test_fits_find_the_line_and_its_interval() -> None:
    random = np.random.default_rng(1)
    sizes = np.repeat([1.0, 10.0, 100.0, 1000.0], 5)
    costs = (2.0 + 0.5 * sizes) * random.lognormal(0, 0.05, len(sizes))
    found = line(sizes.tolist(), costs.tolist())
    assert found.per_size.low < 0.5 < found.per_size.high
    far = found.at(10_000.0)
    assert far.low < 5_002 < far.high
    until = found.until(5_002.0)
    assert until.low < 10_000 < until.high
    found_slope = slope(sizes.tolist(), (costs - 2.0).clip(0.3).tolist())
    assert found_slope.low < 1.0 < found_slope.high
    with pytest.raises(ValueError, match="three measurements"):
        line([1.0, 2.0], [1.0, 2.0])
