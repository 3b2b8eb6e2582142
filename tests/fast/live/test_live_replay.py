# SPDX-License-Identifier: Apache-2.0
"""A replayed trace: its snapshots add up to what `qjoule attribute` reports for the whole."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import fake_tracer
from qjoule.engine.attribute import attribute
from qjoule.errors import UsageError
from qjoule.live.loss import LossSums
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


@pytest.mark.parametrize("interval_s", [0.02, 0.3, 1e6])
@pytest.mark.parametrize("by", [("fingerprint",), ("server", "session")])
def test_intervals_add_up_to_a_total_that_is_the_attribution(
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
    assert (last.domains, last.trace) == (whole.domains, whole.trace)
    assert [one.ended for one in snapshots] == [False] * (len(snapshots) - 1) + [True]
    assert sum(one.interval.main.measured_nj for one in snapshots) == last.main.measured_nj
    assert sum(one.interval.windows for one in snapshots) == last.windows
    calls = sum(row.calls for one in snapshots for row in one.interval.rows)
    assert calls == sum(row.calls for row in last.rows)
    assert sum(one.interval.trace.duration_s for one in snapshots) == pytest.approx(2.0)


@pytest.mark.parametrize("change", ["group", "reset"])
def test_a_new_grouping_goes_on_and_a_reset_counts_anew(trace: Trace, change: str) -> None:
    controls, seen = Controls(0.5), []
    for snapshot in ReplaySource(trace, speed=0).snapshots(controls):
        seen.append(snapshot)
        if len(seen) == 2 and change == "group":
            controls.set(group="server")
        elif len(seen) == 2:
            controls.reset()
    assert [one.total.windows for one in seen] == (
        [25, 50, 75, 100] if change == "group" else [25, 50, 25, 50]
    )
    by = "server" if change == "group" else "fingerprint"
    assert [one.interval.policy["by"] for one in seen] == ["fingerprint"] * 2 + [by] * 2
    last = seen[-1].total
    if change == "group":  # coverage is counted as in the live view
        assert last == replace(attribute(trace, ("server",)), coverage=last.coverage)


def test_stopping_ends_a_replay_and_unknown_keys_are_refused(trace: Trace) -> None:
    controls = Controls(1000.0)
    controls.stop()
    assert list(ReplaySource(trace, speed=1e-6).snapshots(controls)) == []
    with pytest.raises(UsageError, match="cannot group by 'nonsense'"):
        ReplaySource(trace, by=("nonsense",))


def test_empty_and_cut_off_traces_are_played(tmp_path: Path) -> None:
    TraceWriter(tmp_path / "empty").close(Meta())
    (only,) = play(Trace(tmp_path / "empty"), Controls(1.0))
    assert only.ended
    assert only.interval.rows == ()
    stream = io.BytesIO(b"".join(fake_tracer.traffic(0.5)[:-1]))
    record(Stream(stream), TraceWriter(tmp_path / "cut"), fake_tracer.fingerprint, Meta())
    assert not play(Trace(tmp_path / "cut"), Controls(0.2))[-1].total.trace.complete


def test_loss_of_a_span_is_the_difference_of_running_sums_over_all_cpus() -> None:
    rows = [
        {"t_ns": t_ns, "cpu": cpu, "cause": "segment", "count": count, "lost_ns": 10 * count}
        for t_ns, cpu, count in ((1, 0, 2), (2, 1, 3), (5, 0, 9))
    ]
    loss = LossSums(pa.Table.from_pylist(rows))
    assert loss.between(0, 9) == ({"segment": 12}, 120)
    assert loss.between(2, 9) == ({"segment": 7}, 70)
    assert loss.between(5, 9) == ({}, 0)
