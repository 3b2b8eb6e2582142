# SPDX-License-Identifier: Apache-2.0
"""Laws of learning seldom, as the agent does: nothing is lost, and rows agree with a recording."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest

import fake_tracer
from qjoule.engine.attribute import attribute
from qjoule.live.source import StreamSource
from qjoule.metrics.interval import Interval, Query, Shape, interval_of
from qjoule.model.fit.learner import Learner
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter
from two_packages import SERVER, TwoPackages

META = Meta(servers=(Server(SERVER, "shop-db", "mysql", rung="symbol"),))
#: Blocks end after 512 windows: two are closed, and half of one is open.
WINDOWS = 1300
INTERVAL_S = 1.0


@cache
def _stream() -> bytes:
    return TwoPackages(windows=WINDOWS).stream()


def _intervals(refresh_s: float) -> list[Interval]:
    source = StreamSource(
        *(Stream(io.BytesIO(_stream())), fake_tracer.fingerprint, META), refresh_s=refresh_s
    )
    controls = Controls(INTERVAL_S, totals=False)
    return [interval_of(one.interval) for one in source.snapshots(controls)]


def _summed(intervals: list[Interval]) -> dict[Shape, Query]:
    found: dict[Shape, Query] = {}
    for one in intervals:
        for shape, query in one.queries.items():
            found.setdefault(shape, Query()).add(query)
    return found


def test_learning_seldom_divides_the_same_joules_within_the_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = []
    learn = Learner.learn

    def counted(self: Learner, batches: object, *, keep: bool) -> object:
        learnt.append(keep)
        return learn(self, batches, keep=keep)  # type: ignore[arg-type]

    monkeypatch.setattr(Learner, "learn", counted)
    seldom = _intervals(60.0)
    of_seldom = learnt.count(False)
    often = _intervals(0.0)
    assert 1 <= of_seldom <= 3 < learnt.count(False) - of_seldom
    writer = TraceWriter(tmp_path)
    record(Stream(io.BytesIO(_stream())), writer, fake_tracer.fingerprint, META)
    whole = attribute(Trace(tmp_path), ("fingerprint",))
    rows = {row.keys["fingerprint"]: row for row in whole.rows if row.kind == "queries"}

    for intervals in (seldom, often):
        for one in intervals:
            for domain, energy_nj in one.node_nj.items():
                owned = sum(spent.energy_nj.get(domain, 0) for spent in one.owners.values())
                assert owned == energy_nj
        assert sum(one.node_nj["package"] for one in intervals) == whole.main.measured_nj
    for shape, query in _summed(seldom).items():
        row, amounts = rows[shape.fingerprint], query.amounts
        assert (amounts.calls, amounts.cpu_ns) == (row.calls, row.cpu_ns)
        low, high = row.energy_nj_ci95
        assert low <= amounts.energy_nj <= high
        assert query.error is not None
        low, high = query.error.ends(amounts.energy_nj)
        assert low <= row.energy_nj <= high
        assert amounts.energy_nj == pytest.approx(row.energy_nj, rel=0.05)
