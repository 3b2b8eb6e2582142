# SPDX-License-Identifier: Apache-2.0
"""Attribution and the page's series add up to what was measured, whatever the trace contains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import report_trace
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
from qjoule.engine import recorded
from qjoule.model.coefficients import IDLE_POLICIES, IdlePolicy
from qjoule.model.result import PARTS
from qjoule.report.buckets import Cells
from qjoule.report.gather import Gathered, gather
from qjoule.reporters.json_report import to_json
from qjoule.trace.meta import Cpu
from qjoule.trace.reader import Trace

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
    "no CPUs": {"meta": {"cpus": ()}},
    "other CPUs": {"meta": {"cpus": (Cpu(7, 1, 0, 7), Cpu(4_000_000_000, 0, 0, 0))}},
    "no begin and end": {"meta": NO_SPAN},
    "all of time": {"meta": ALL_TIME},
    "it ends before it begins": {"meta": {"begin_ns": hand.at(40), "end_ns": hand.at(0)}},
    "an endless segment": {"segments": [SEGMENTS[0] | {"t0_ns": -(2**63), "t1_ns": 2**63 - 1}]},
    "a query that ends before it begins": {
        "queries": [QUERIES[0] | {"begin_ns": 2**62, "end_ns": -(2**62)}]
    },
    "queries told twice": {"queries": [*QUERIES, *QUERIES]},
    "a failed reading": {"energy": [ENERGY[0], hand.energy(20, None), ENERGY[2]]},
    "a huge reading": {"energy": [*ENERGY[:2], ENERGY[2] | {"raw": 2**64 - 1}]},
    "a unit of zero": {"energy": energy_with(unit_j=0)},
    "a huge unit": {"energy": energy_with(unit_j=1e308)},
    "a unit that is no number": {"energy": energy_with(unit_j=float("nan"))},
    "readings that go back": {"energy": energy_read_at(40, 20, 0)},
    "readings out of order": {"energy": energy_read_at(0, 30, 10, 40), "meta": NO_SPAN},
    "readings before the trace": {"energy": energy_read_at(-500, -480, -460)},
    "two packages": {"energy": [*ENERGY, *energy_with(package=1)], "meta": TWO_PACKAGES},
    "psys alone": {"energy": energy_with(domain="psys"), "meta": TWO_PACKAGES},
    "loss": {"loss": [LOST]},
    "absurd loss": {"loss": [LOST_FOR_EVER, LOST | {"cpu": 5000, "t_ns": hand.at(3)}]},
}


def check_adds_up(gathered: Gathered) -> None:
    """Law: the stack equals the measured line at any time, and the attribution's totals overall."""
    power, attributed = gathered.power, gathered.attribution
    for domain in attributed.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj
        assert min(domain.parts_nj.values()) >= 0
    stacked = sum((power.parts_nj[part] for part in PARTS), start=0 * power.measured_nj)
    assert stacked.tolist() == power.measured_nj.tolist()
    if not attributed.domains:
        assert int(power.measured_nj.sum()) == 0
        return
    assert int(power.measured_nj.sum()) == attributed.main.measured_nj
    assert {part: int(power.parts_nj[part].sum()) for part in PARTS} == attributed.main.parts_nj
    for row, energy_nj in power.rows_nj.items():
        assert int(energy_nj.sum()) == attributed.rows[row].energy_nj
    for row, detail in gathered.details.items():
        assert int(detail.energy_nj.sum()) == attributed.rows[row].energy_nj
        assert int(detail.calls.sum()) == attributed.rows[row].calls


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
    for group_kept in np.flatnonzero(~cells.folded).tolist():
        assert cells.of_groups([group_kept], BUCKETS).tolist() == expected[group_kept].tolist()


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
