# SPDX-License-Identifier: Apache-2.0
"""Attribution and the page's series add up to what was measured, whatever the trace contains."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import report_trace
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
import fake_tracer
import statistical_traffic as traffic
from qjoule.contract import Grade
from qjoule.engine import recorded
from qjoule.engine.attribute import attribute
from qjoule.model.coefficients import IDLE_POLICIES, IdlePolicy
from qjoule.model.result import PARTS
from qjoule.report.buckets import Buckets, Cells, table_of
from qjoule.report.gather import BY, Gathered, gather
from qjoule.reporters.json_report import to_json
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Cpu, Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter

GROUPS, BUCKETS = 12, 7
chunks_of_cells = st.lists(
    st.tuples(st.integers(0, GROUPS - 1), st.integers(0, BUCKETS - 1), st.integers(0, 2**50)),
    min_size=1,
    max_size=60,
)
SEGMENTS = [hand.segment(*row) for row in hand.SEGMENTS]
QUERIES = [hand.query(*row) for row in hand.QUERIES]
ENERGY = [hand.energy(t, raw) for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))]
NO_SPAN = {"begin_ns": None, "end_ns": None}
ALL_TIME = {"begin_ns": -(2**63), "end_ns": 2**63 - 1}
TWO_PACKAGES = {"cpus": (Cpu(0, 0, 0, 0), Cpu(1, 1, 1, 1))}
LOST = {"t_ns": hand.at(40), "cpu": 0, "cause": "segment", "count": 9, "lost_ns": 8 * hand.MS}
LOST_FOR_EVER = LOST | {"t_ns": -(2**62), "count": 2**63, "lost_ns": 2**64 - 1}


def energy_read_at(*times_ms: float) -> list[dict[str, Any]]:
    return [hand.energy(t, i * 10**9) for i, t in enumerate(times_ms)]


def energy_with(**changed: Any) -> list[dict[str, Any]]:
    return [row | changed for row in ENERGY]


ODD_TRACES: dict[str, dict[str, Any]] = {
    "nothing": dict.fromkeys(("segments", "queries", "energy", "owners", "shapes"), ()),
    "no queries": {"queries": []},
    "no segments": {"segments": []},
    "no CPUs": {"meta": {"cpus": ()}},
    "other CPUs": {"meta": {"cpus": (Cpu(7, 1, 0, 7), Cpu(4_000_000_000, 0, 0, 0))}},
    "no begin and end": {"meta": NO_SPAN},
    "all of time": {"meta": ALL_TIME},
    "all of time, no energy": {"meta": ALL_TIME, "energy": []},
    "it ends before it begins": {"meta": {"begin_ns": hand.at(40), "end_ns": hand.at(0)}},
    "it ends as it begins": {"meta": {"begin_ns": hand.at(0), "end_ns": hand.at(0)}},
    "an endless segment": {"segments": [SEGMENTS[0] | {"t0_ns": -(2**63), "t1_ns": 2**63 - 1}]},
    "a query that ends before it begins": {
        "queries": [QUERIES[0] | {"begin_ns": 2**62, "end_ns": -(2**62)}]
    },
    "queries told twice": {"queries": [*QUERIES, *QUERIES]},
    "one reading": {"energy": ENERGY[:1]},
    "a failed reading": {"energy": [ENERGY[0], hand.energy(20, None), ENERGY[2]]},
    "a huge reading": {"energy": [*ENERGY[:2], ENERGY[2] | {"raw": 2**64 - 1}]},
    "a huge range": {"energy": energy_with(range=2**64 - 1)},
    "a unit of zero": {"energy": energy_with(unit_j=0)},
    "a tiny unit": {"energy": energy_with(unit_j=5e-324)},
    "a huge unit": {"energy": energy_with(unit_j=1e308)},
    "a unit that is no number": {"energy": energy_with(unit_j=float("nan"))},
    "readings that go back": {"energy": energy_read_at(40, 20, 0)},
    "readings out of order": {"energy": energy_read_at(0, 30, 10, 40), "meta": NO_SPAN},
    "readings of one time": {"energy": energy_read_at(0, 0, 0)},
    "readings before the trace": {"energy": energy_read_at(-500, -480, -460)},
    "a reading long after": {"energy": energy_read_at(900, 20, 40), "meta": NO_SPAN},
    "two packages": {
        "energy": [*ENERGY, *energy_with(package=1)],
        "meta": TWO_PACKAGES,
    },
    "a psys domain beside": {"energy": [*ENERGY, *energy_with(domain="psys")]},
    "psys alone": {"energy": energy_with(domain="psys"), "meta": TWO_PACKAGES},
    "loss": {"loss": [LOST]},
    "absurd loss": {"loss": [LOST_FOR_EVER, LOST | {"cpu": 5000, "t_ns": hand.at(3)}]},
}


def check_adds_up(gathered: Gathered) -> None:
    """Law: the stack equals the measured line at any time, and the attribution's totals overall."""
    power, whole = gathered.power, gathered.attribution
    for domain in whole.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj
        assert min(domain.parts_nj.values()) >= 0
    stacked = sum((power.parts_nj[part] for part in PARTS), start=0 * power.measured_nj)
    assert stacked.tolist() == power.measured_nj.tolist()
    if not whole.domains:
        assert int(power.measured_nj.sum()) == 0
        return
    assert int(power.measured_nj.sum()) == whole.main.measured_nj
    assert {part: int(power.parts_nj[part].sum()) for part in PARTS} == whole.main.parts_nj
    for row, energy_nj in power.rows_nj.items():
        assert int(energy_nj.sum()) == whole.rows[row].energy_nj
    for row, detail in gathered.details.items():
        assert int(detail.energy_nj.sum()) == whole.rows[row].energy_nj
        assert int(detail.calls.sum()) == whole.rows[row].calls


@pytest.mark.parametrize("changed", ODD_TRACES.values(), ids=ODD_TRACES.keys())
def test_odd_traces_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr(recorded, "_MAX_WINDOWS", 10_000)
    gathered = gather(Trace(hand.write(tmp_path / "t", **changed)))
    check_adds_up(gathered)
    to_json(gathered.attribution)  # raises for NaN and infinity
    if changed == ODD_TRACES["loss"]:
        assert int(gathered.power.parts_nj["residual"].sum()) > 0


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("busy") / "busy.qjoule"
    return report_trace.write(directory, report_trace.Load(20.0, 400.0, 12))


@pytest.mark.parametrize("idle", IDLE_POLICIES)
def test_series_add_up_under_every_idle_policy(busy: Path, idle: IdlePolicy) -> None:
    gathered = gather(Trace(busy), idle=idle)
    check_adds_up(gathered)
    assert len(gathered.details) == len(gathered.attribution.rows) == 12


def test_gathering_changes_no_result_and_is_deterministic(busy: Path) -> None:
    first, second = gather(Trace(busy)), gather(Trace(busy))
    assert to_json(first.attribution) == to_json(attribute(Trace(busy), BY))
    for row, detail in first.details.items():
        assert detail.call_nj.tolist() == second.details[row].call_nj.tolist()
        assert detail.latency_ns.tolist() == second.details[row].latency_ns.tolist()


def test_single_calls_have_the_energy_of_attribution_by_query(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    gathered = gather(Trace(trace))
    by_query = {
        row.keys["query"]: row.energy_nj for row in attribute(Trace(trace), ("query",)).rows
    }
    numbers = {row.keys["fingerprint"]: n for n, row in enumerate(gathered.attribution.rows)}
    detail = gathered.details[numbers["bbbb"]]
    assert detail.call_nj.tolist() == pytest.approx([by_query["2"]], abs=2)
    assert detail.latency_ns.tolist() == [10 * hand.MS]


def test_energy_that_a_regression_gives_to_shapes_is_moved_over_time(tmp_path: Path) -> None:
    stream = Stream(io.BytesIO(b"".join(traffic.recorded(traffic.story(20.0), Grade.SIMULATED))))
    meta = Meta(servers=(Server(1, "store", "cassandra", rung="statistical"),))
    record(stream, TraceWriter(tmp_path / "t"), fake_tracer.fingerprint, meta)
    gathered = gather(Trace(tmp_path / "t"))
    assert any("statistical" in row.flags for row in gathered.attribution.rows)
    assert sum(row.energy_nj for row in gathered.attribution.rows) > 0
    check_adds_up(gathered)


@given(st.lists(chunks_of_cells, min_size=1, max_size=6), st.integers(1, 200))
def test_folding_groups_loses_no_energy(
    chunks: list[list[tuple[int, int, int]]], most: int
) -> None:
    kind = np.arange(GROUPS) % len(PARTS)
    cells = Cells(kind, most)
    expected = np.zeros((GROUPS, BUCKETS), np.int64)
    for chunk in chunks:
        group, bucket, energy = (np.array(column, np.int64) for column in zip(*chunk, strict=True))
        cells.add(group, bucket, energy)
        np.add.at(expected, (group, bucket), energy)
    by_kind = np.zeros((len(PARTS), BUCKETS), np.int64)
    np.add.at(by_kind, kind, expected)
    assert cells.of_kinds(BUCKETS).tolist() == by_kind.tolist()
    for kept in np.flatnonzero(~cells.folded).tolist():
        assert cells.of_groups([kept], BUCKETS).tolist() == expected[kept].tolist()


@given(st.data())
def test_moving_energy_among_groups_keeps_the_sum_of_every_bucket(data: st.DataObject) -> None:
    cells = Cells(np.zeros(4, np.int64))
    bucket_energies = st.lists(st.integers(0, 10**12), min_size=BUCKETS, max_size=BUCKETS)
    before = np.array(data.draw(st.lists(bucket_energies, min_size=2, max_size=2)))
    for group, energy in enumerate(before):
        cells.add(np.full(BUCKETS, group), np.arange(BUCKETS), energy)
    taken = np.array([data.draw(st.integers(0, int(of_group.sum()))) for of_group in before])
    first = data.draw(st.integers(0, int(taken.sum())))
    received = np.array([0, 0, first, int(taken.sum()) - first])
    cells.move(np.array([*taken, 0, 0]), received, BUCKETS)
    after = np.array([cells.of_groups([group], BUCKETS) for group in range(4)])
    assert after.sum(axis=0).tolist() == before.sum(axis=0).tolist()
    assert after.sum(axis=1).tolist() == [*(before.sum(axis=1) - taken), *received[2:]]
    assert (after >= 0).all()


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=8),
    st.lists(st.integers(0, 10**15), min_size=1, max_size=8),
)
def test_a_table_has_its_row_and_column_sums(rows: list[int], columns: list[int]) -> None:
    missing = sum(rows) - sum(columns)
    (columns if missing > 0 else rows).append(abs(missing))
    table = table_of(np.array(rows), np.array(columns))
    assert (table >= 0).all()
    assert table.sum(axis=1).tolist() == rows
    assert table.sum(axis=0).tolist() == columns


@given(st.integers(0, 5000), st.integers(1, 700))
def test_buckets_are_whole_windows(windows: int, most: int) -> None:
    buckets = Buckets(np.arange(windows + 1, dtype=np.int64) * 20, most)
    assert buckets.count == min(windows, most)
    used = buckets.of_windows(np.arange(windows))
    assert sorted(set(used.tolist())) == list(range(buckets.count))
    assert buckets.edges_ns[[0, -1]].tolist() == [0, windows * 20]
