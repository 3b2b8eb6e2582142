# SPDX-License-Identifier: Apache-2.0
"""Counters of `qjoule-tracer`: software clocks stand in for those of a CPU."""

from __future__ import annotations

import numpy as np
import pytest

from exclusive.test_tracer_confined import load, session
from qjoule.contract import WHOLE, Block, Loss, Mode
from servers.process import DatabaseServer
from tracing.tolerance import tolerance

pytestmark = [pytest.mark.root, pytest.mark.server]


def test_counters_count_what_the_cpu_did(mariadb: DatabaseServer) -> None:
    """Software clocks stand in for hardware counters: they count ns of CPU time."""
    clocks = ("--counter", "cycles=1:0", "--counter", "llc-misses=1:0")
    with session(mariadb, Mode.RECORD, *clocks) as running:
        load(mariadb)
        words = running.finish()
    assert words == ""
    hello = running.records(Block.HELLO)[0]
    assert hello["counters"] == 0b101
    records = running.records(Block.SEGMENT_COUNTERS)
    segments, counters = records["segment"], records["counters"]
    assert len(segments) > 1000
    assert not [frame for frame in running.frames if frame.kind is Block.SEGMENT]
    valid = segments["valid"] == 0b101
    assert valid.mean() > 0.99
    assert not np.any(segments["valid"] & ~np.uint8(0b101))
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"])[valid].sum()
    for column in (0, 2):
        assert int(counters[valid, column].sum()) == pytest.approx(int(cpu_ns), rel=tolerance())
    assert not counters[:, 1].any()
    assert set(segments["counted"][valid]) == {WHOLE}, "a software event is never multiplexed"
    assert Loss.MULTIPLEXED not in running.records(Block.LOSS)["cause"]


def test_counters_in_the_live_view(mariadb: DatabaseServer) -> None:
    with session(mariadb, Mode.LIVE, "--counter", "instructions=1:0") as running:
        load(mariadb)
        running.finish()
    sums = running.records(Block.AGGREGATE)
    valid = sums["valid"] == 0b10
    assert valid.mean() > 0.9
    cpu_ns = sums["cpu_ns"][valid].sum()
    assert int(sums["counters"][valid, 1].sum()) == pytest.approx(int(cpu_ns), rel=tolerance())
    assert (sums["counted_ns"][valid, 1] == sums["cpu_ns"][valid]).all()
    assert (sums["counted_ns"][:, 1] <= sums["cpu_ns"]).all()
    assert not sums["counted_ns"][:, [0, 2]].any()
    assert not sums["scaled_ns"].any()


def test_a_counter_that_is_not_there_is_left_out(mariadb: DatabaseServer) -> None:
    """PERF_TYPE_SOFTWARE has no event 4711."""
    missing = ("--counter", "cycles=1:4711", "--counter", "instructions=1:0")
    with session(mariadb, Mode.RECORD, *missing) as running:
        load(mariadb)
        words = running.finish()
    assert words.count("\n") == 1
    assert "counter cycles is not available: " in words
    assert running.records(Block.HELLO)[0]["counters"] == 0b10
