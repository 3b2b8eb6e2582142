# SPDX-License-Identifier: Apache-2.0
"""A replayed trace: its snapshots add up to what `qjoule attribute` reports for the whole."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

import fake_tracer
from qjoule.engine.attribute import attribute
from qjoule.errors import UsageError
from qjoule.live.replay import ReplaySource
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Two seconds of a busy server."""
    path = tmp_path_factory.mktemp("traces") / "small.qjoule"
    stream = Stream(io.BytesIO(b"".join(fake_tracer.traffic(2.0))))
    record(stream, TraceWriter(path), fake_tracer.fingerprint, Meta(host="db1"))
    return Trace(path)


def play(trace: Trace, controls: Controls, **options: object) -> list[Snapshot]:
    source = ReplaySource(trace, speed=0, **options)  # type: ignore[arg-type]
    return list(source.snapshots(controls))


@pytest.mark.parametrize("interval_s", [0.001, 0.13, 0.5, 1e6])
@pytest.mark.parametrize("by", [("fingerprint",), ("server", "session")])
def test_the_total_at_the_end_is_the_attribution(
    trace: Trace, interval_s: float, by: tuple[str, ...]
) -> None:
    snapshots = play(trace, Controls(interval_s, ",".join(by)), by=by)
    whole = attribute(trace, by)
    last = snapshots[-1].total
    assert last.rows == whole.rows
    # The interval's ends are sums of floats, whose last bit depends on the order.
    for part, same in zip(last.fixed, whole.fixed, strict=True):
        assert part.energy_nj_ci95 == pytest.approx(same.energy_nj_ci95, rel=1e-12)
        assert replace(part, energy_nj_ci95=same.energy_nj_ci95) == same
    assert last.domains == whole.domains
    assert last.trace == whole.trace
    assert [one.ended for one in snapshots] == [False] * (len(snapshots) - 1) + [True]


def test_intervals_add_up_to_the_total(trace: Trace) -> None:
    snapshots = play(trace, Controls(0.3))
    assert len(snapshots) == 7
    total = snapshots[-1].total
    assert sum(one.interval.main.measured_nj for one in snapshots) == total.main.measured_nj
    assert sum(one.interval.windows for one in snapshots) == total.windows
    assert sum(row.calls for one in snapshots for row in one.interval.rows) == sum(
        row.calls for row in total.rows
    )
    assert sum(one.interval.trace.duration_s for one in snapshots) == pytest.approx(2.0)


def test_a_new_grouping_goes_on_from_where_it_is(trace: Trace) -> None:
    controls = Controls(0.5)
    seen = []
    for snapshot in ReplaySource(trace, speed=0).snapshots(controls):
        seen.append(snapshot)
        if len(seen) == 2:
            controls.set(group="server")
    assert [one.interval.policy["by"] for one in seen] == ["fingerprint"] * 2 + ["server"] * 2
    assert seen[-1].total == attribute_by(trace, "server", seen[-1])
    assert sum(one.interval.windows for one in seen) == seen[-1].total.windows


def attribute_by(trace: Trace, by: str, like: Snapshot) -> object:
    """The attribution, with coverage counted as in the live view."""
    return replace(attribute(trace, (by,)), coverage=like.total.coverage)


def test_reset_counts_anew(trace: Trace) -> None:
    controls = Controls(0.5)
    seen = []
    for snapshot in ReplaySource(trace, speed=0).snapshots(controls):
        seen.append(snapshot)
        if len(seen) == 2:
            controls.reset()
    assert seen[1].total.windows == 50
    assert seen[2].total.windows == 25
    assert seen[2].total.main == seen[2].interval.main
    assert seen[3].total.trace.duration_s == pytest.approx(1.0)


def test_the_pace_is_the_traces_own_and_stop_ends_it(trace: Trace) -> None:
    controls = Controls(1000.0)
    source = ReplaySource(trace, speed=1e-6)
    controls.stop()
    assert list(source.snapshots(controls)) == []


def test_unknown_keys_are_refused(trace: Trace) -> None:
    with pytest.raises(UsageError, match="cannot group by 'nonsense'"):
        ReplaySource(trace, by=("nonsense",))


def test_an_empty_trace_is_one_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "empty.qjoule"
    TraceWriter(path).close(Meta())
    (only,) = play(Trace(path), Controls(1.0))
    assert only.ended
    assert only.interval.rows == ()


def test_a_trace_that_was_cut_off_says_so(tmp_path: Path) -> None:
    stream = b"".join(fake_tracer.traffic(0.5)[:-1])
    path = tmp_path / "cut.qjoule"
    record(Stream(io.BytesIO(stream)), TraceWriter(path), fake_tracer.fingerprint, Meta())
    last = play(Trace(path), Controls(0.2))[-1]
    assert not last.total.trace.complete
