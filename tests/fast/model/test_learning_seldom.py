# SPDX-License-Identifier: Apache-2.0
"""Learning seldom, as the agent does, loses nothing, and rows agree with a recording."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import fake_tracer
from qjoule.engine.attribute import attribute
from qjoule.live.options import LiveOptions
from qjoule.live.source import StreamSource
from qjoule.metrics.interval import Query, Shape, interval_of
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter
from two_packages import SERVER, TwoPackages

META = Meta(servers=(Server(SERVER, "shop-db", "mysql", rung="symbol"),))
WINDOWS = 600  #: a block ends after 512, so that one is closed and one is open


def test_learning_seldom_divides_the_same_joules_within_the_intervals(
    tmp_path: Path,
) -> None:
    stream = TwoPackages(windows=WINDOWS).stream()
    blocks = Stream(io.BytesIO(stream))
    source = StreamSource(blocks, fake_tracer.context(META), LiveOptions(refresh_s=60.0))
    snapshots = source.snapshots(Controls(1.0, totals=False))
    intervals = [interval_of(snapshot.interval) for snapshot in snapshots]
    trace = tmp_path / "trace"
    record(Stream(io.BytesIO(stream)), TraceWriter(trace), fake_tracer.context(META))
    whole = attribute(Trace(trace), ("fingerprint",))

    sums: dict[Shape, Query] = {}
    for interval in intervals:
        for domain, energy_nj in interval.node_nj.items():
            owned = sum(spent.energy_nj.get(domain, 0) for spent in interval.owners.values())
            assert owned == energy_nj
        for shape, query in interval.queries.items():
            sums.setdefault(shape, Query()).add(query)
    assert sum(interval.node_nj["package"] for interval in intervals) == whole.main.measured_nj
    rows = {row.keys["fingerprint"]: row for row in whole.rows if row.kind == "queries"}
    for shape, query in sums.items():
        row, amounts = rows[shape.fingerprint], query.amounts
        assert (amounts.calls, amounts.cpu_ns) == (row.calls, row.cpu_ns)
        low, high = row.energy_nj_ci95
        assert low <= amounts.energy_nj <= high
        assert query.error is not None
        low, high = query.error.ends(amounts.energy_nj)
        assert low <= row.energy_nj <= high
        assert amounts.energy_nj == pytest.approx(row.energy_nj, rel=0.05)
