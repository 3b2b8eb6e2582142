# SPDX-License-Identifier: Apache-2.0
"""The page's figures add up to the attribution, whatever the trace contains."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import report_trace

import attribute_trace as hand
import fake_tracer
import statistical_traffic as traffic
from qjoule.contract import Grade
from qjoule.engine.attribute import attribute
from qjoule.model.coefficients import IDLE_POLICIES, IdlePolicy
from qjoule.model.result import PARTS
from qjoule.report.gather import BY, Gathered, gather
from qjoule.reporters.json_report import to_json
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Cpu, Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter


def check_adds_up(found: Gathered) -> None:
    """Law: the stack equals the measured line at any time, and the attribution's totals overall."""
    power, whole = found.power, found.attribution
    stacked = sum((power.parts_nj[part] for part in PARTS), start=0 * power.measured_nj)
    assert stacked.tolist() == power.measured_nj.tolist()
    if not whole.domains:
        assert int(power.measured_nj.sum()) == 0
        return
    assert int(power.measured_nj.sum()) == whole.main.measured_nj
    assert {part: int(power.parts_nj[part].sum()) for part in PARTS} == whole.main.parts_nj
    for row, energy_nj in power.rows_nj.items():
        assert int(energy_nj.sum()) == whole.rows[row].energy_nj
    for row, detail in found.details.items():
        assert int(detail.energy_nj.sum()) == whole.rows[row].energy_nj
        assert int(detail.calls.sum()) == whole.rows[row].calls


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("busy") / "busy.qjoule"
    return report_trace.write(directory, report_trace.Load(20.0, 400.0, 12))


@pytest.mark.parametrize("idle", IDLE_POLICIES)
def test_series_add_up_under_every_idle_policy(busy: Path, idle: IdlePolicy) -> None:
    found = gather(Trace(busy), idle=idle)
    check_adds_up(found)
    assert len(found.details) == len(found.attribution.rows) == 12


def test_looking_on_changes_nothing(busy: Path) -> None:
    found = gather(Trace(busy))
    assert to_json(found.attribution) == to_json(attribute(Trace(busy), BY))


def test_the_same_trace_gives_the_same_figures(busy: Path) -> None:
    one, other = gather(Trace(busy)), gather(Trace(busy))
    for row, detail in one.details.items():
        assert detail.call_nj.tolist() == other.details[row].call_nj.tolist()
        assert detail.latency_ns.tolist() == other.details[row].latency_ns.tolist()


LOST = {"t_ns": hand.at(40), "cpu": 0, "cause": "segment", "count": 9, "lost_ns": 8 * hand.MS}
TOLD = [hand.energy(t, raw) for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"queries": []},
        {"loss": [LOST]},
        {"segments": []},
        {"energy": []},
        {"energy": TOLD[:1]},
        {"energy": [TOLD[0], hand.energy(20, None), TOLD[2]]},
        {"energy": [*TOLD, *(one | {"package": 1} for one in TOLD)],
         "meta": {"cpus": (Cpu(0, 0, 0, 0), Cpu(1, 1, 1, 1))}},
        {"energy": [*TOLD, *(one | {"domain": "psys"} for one in TOLD)]},
        {"energy": [one | {"domain": "psys"} for one in TOLD],
         "meta": {"cpus": (Cpu(0, 0, 0, 0), Cpu(1, 1, 1, 1))}},
        {"meta": {"begin_ns": hand.at(0), "end_ns": hand.at(0)}},
        {"meta": {"begin_ns": -(2**63), "end_ns": 2**63 - 1}},
        {"meta": {"begin_ns": None, "end_ns": None}},
    ],
)  # fmt: skip
def test_series_add_up_of_odd_traces(tmp_path: Path, changed: dict[str, Any]) -> None:
    check_adds_up(gather(Trace(hand.write(tmp_path / "t", **changed))))


def test_single_calls_have_what_attribution_by_query_gives_them(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    found = gather(Trace(trace))
    rows = {row.keys["fingerprint"]: number for number, row in enumerate(found.attribution.rows)}
    by_query = {
        row.keys["query"]: row.energy_nj for row in attribute(Trace(trace), ("query",)).rows
    }
    detail = found.details[rows["bbbb"]]
    assert detail.call_nj.tolist() == pytest.approx([by_query["2"]], abs=2)
    assert detail.latency_ns.tolist() == [10 * hand.MS]


def test_sampled_calls_of_a_busy_trace_have_their_mean(busy: Path) -> None:
    found = gather(Trace(busy))
    for number, detail in found.details.items():
        row = found.attribution.rows[number]
        if row.calls <= 100:  # all of them are in the sample
            assert detail.call_nj.sum() == pytest.approx(row.energy_nj, rel=1e-3)
        else:
            assert np.mean(detail.call_nj) == pytest.approx(row.energy_nj / row.calls, rel=0.25)


def test_what_a_regression_gives_to_shapes_is_moved_over_time(tmp_path: Path) -> None:
    stream = Stream(io.BytesIO(b"".join(traffic.recorded(traffic.story(20.0), Grade.SIMULATED))))
    meta = Meta(servers=(Server(1, "store", "cassandra", rung="statistical"),))
    record(stream, TraceWriter(tmp_path / "t"), fake_tracer.fingerprint, meta)
    found = gather(Trace(tmp_path / "t"))
    assert any("statistical" in row.flags for row in found.attribution.rows)
    assert sum(row.energy_nj for row in found.attribution.rows) > 0
    check_adds_up(found)


def test_what_was_lost_is_residual(tmp_path: Path) -> None:
    found = gather(Trace(hand.write(tmp_path / "t", loss=[LOST])))
    assert int(found.power.parts_nj["residual"].sum()) > 0
