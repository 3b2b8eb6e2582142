# SPDX-License-Identifier: Apache-2.0
"""Requests without CPU time of their own: `top`, `top --replay` and `attribute` agree.

Requests are counted on sockets, or reported by clients. At one watt per core, the true joules of
requests equal their CPU time.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fake_tracer
import statistical_traffic as traffic
from fake_tracer import BEGIN_NS
from qjoule.contract import Grade
from qjoule.engine.attribute import attribute
from qjoule.engine.keys import EVERYTHING, Selection, selection
from qjoule.live.options import LiveOptions
from qjoule.live.replay import ReplaySource
from qjoule.live.sources import StreamSource
from qjoule.model.result import Attribution, Row
from qjoule.reporters.table import render
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.stream.record import record
from qjoule.tags.reported_calls import Call
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter

SHAPES = [shape.decode() for shape in traffic.SHAPES]
CASSANDRA = Server(1, "cassandra", "cassandra", attach_mode="statistical")
KVD = Server(1, "kvd:7001", "generic", attach_mode="none")
ENDPOINTS = ("light", "heavy")


class Reports:
    """Clients' reports: each call comes with the first request after its end."""

    lost = unverified = 0

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls

    def tags_of(self, _names: Any, codes: Any, _streams: Any, _begins: Any) -> pa.MapArray:
        return pa.nulls(len(codes), pa.map_(pa.string(), pa.string()))

    def reported(self, _opaque: Mapping[str, int], *, everything: bool = False) -> list[Call]:
        del everything
        calls, self._calls = self._calls, []
        return calls

    def calls_on(self, connections: Sequence[str | None]) -> list[bool]:
        return [True for _ in connections]


def calls_of(story: traffic.Story) -> list[Call]:
    """One call at a time, each a hundredth of a window long."""
    calls = []
    for window, requests in enumerate(story.requests):
        t_ns = BEGIN_NS + window * traffic.WINDOW_NS
        for endpoint, count in enumerate(requests.tolist()):
            for _ in range(count):
                t_ns += 400_000
                tags = (("endpoint", ENDPOINTS[endpoint]),)
                calls.append(Call(1, "redis", t_ns - 200_000, t_ns, 1, tags))
    return calls


def silent(story: traffic.Story) -> traffic.Story:
    """The same work, of which the kernel sees only threads."""
    return replace(story, requests=np.zeros_like(story.requests))


def trace(
    directory: Path,
    story: traffic.Story,
    grade: Grade = Grade.SIMULATED,
    *,
    server: Server = CASSANDRA,
    reports: Reports | None = None,
) -> Trace:
    stream = Stream(io.BytesIO(b"".join(traffic.recorded(story, grade))))
    context = fake_tracer.context(Meta(servers=(server,)), reports=reports)
    record(stream, TraceWriter(directory), context)
    return Trace(directory)


def replayed(of: Trace, interval_s: float, group: str = "fingerprint") -> list[Snapshot]:
    controls = Controls(interval_s, group)
    return list(ReplaySource(of, by=(group,), speed=0).snapshots(controls))


def live(
    story: traffic.Story,
    interval_s: float,
    group: str = "fingerprint",
    *,
    server: Server = CASSANDRA,
    reports: Reports | None = None,
    where: Selection = EVERYTHING,
    together: int = 1,
) -> list[Snapshot]:
    stream = Stream(io.BytesIO(b"".join(traffic.live(story, Grade.SIMULATED, together))))
    context = fake_tracer.context(Meta(servers=(server,)), reports=reports)
    source = StreamSource(stream, context, LiveOptions(where=where))
    return list(source.snapshots(Controls(interval_s, group)))


def by_shape(attribution: Attribution) -> dict[str, Row]:
    return {row.shape: row for row in attribution.rows}


def by_endpoint(attribution: Attribution) -> dict[str, Row]:
    return {row.keys["tag:endpoint"]: row for row in attribution.rows}


@given(
    st.integers(0, 2**32 - 1),
    st.floats(0.5, 6.0),
    st.sampled_from([0.7, 2.0, 5.0]),
    st.sampled_from([Grade.ESTIMATED, Grade.SIMULATED]),
)
def test_live_view_and_replay_end_at_the_attribution(
    seed: int, seconds: float, interval_s: float, grade: Grade
) -> None:
    """The kernel's sums cannot show who ran at the same instant, so live joules agree to 10 %."""
    story = traffic.story(seconds, seed)
    with TemporaryDirectory() as directory:
        whole_trace = trace(Path(directory) / "t", story, grade)
        last = replayed(whole_trace, interval_s)[-1].total
        attributed = attribute(whole_trace)
    assert (last.rows, last.domains) == (attributed.rows, attributed.domains)
    assert (last.model.notes, last.coverage) == (attributed.model.notes, attributed.coverage)
    rows, expected = by_shape(live(story, interval_s)[-1].total), by_shape(attributed)
    assert rows.keys() == expected.keys()
    for shape, row in rows.items():
        same = expected[shape]
        assert (row.calls, row.cpu_ns, row.attach_mode) == (
            same.calls,
            same.cpu_ns,
            same.attach_mode,
        )
        assert set(row.flags) == set(same.flags)
        assert row.energy_nj == pytest.approx(same.energy_nj, rel=0.1, abs=1e6)


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 10]))
def test_windows_that_arrive_together_make_the_same_result(seed: int, together: int) -> None:
    """The readings of all of them come before the sums of the first one."""
    story = traffic.story(1.0, seed)
    apart, joined = (live(story, 0.4, together=count) for count in (1, together))
    assert joined[-1].total == apart[-1].total
    begin = 0
    for snapshot in joined:
        end = begin + snapshot.interval.windows
        rows = by_shape(snapshot.interval)
        calls = [rows[shape].calls if shape in rows else 0 for shape in SHAPES]
        assert calls == story.requests[begin:end].sum(axis=0).tolist()
        begin = end
    assert begin == len(story.requests)


def test_intervals_of_time_have_joules_once_there_are_enough_windows() -> None:
    """Before that there is a note that gives the reason. Intervals hold the true joules."""
    story = traffic.story(30.0)
    snapshots = live(story, 1.0)
    first = snapshots[0].interval
    assert any("too little time" in note for note in first.model.notes)
    assert all({"statistical", "untold"} <= set(row.flags) for row in first.rows)
    assert all(row.energy_nj == 0 < row.energy_nj_ci95[1] for row in first.rows if row.calls)
    held, windows = [], sum(early.interval.windows for early in snapshots[:20])
    for snapshot in snapshots[20:]:
        begin, windows = windows, windows + snapshot.interval.windows
        domain = snapshot.interval.main
        assert sum(domain.parts_nj.values()) == domain.measured_nj
        for shape, row in by_shape(snapshot.interval).items():
            assert "untold" not in row.flags
            which = SHAPES.index(shape)
            calls = story.requests[begin:windows, which].sum()
            assert row.calls == calls
            low, high = row.energy_nj_ci95
            held.append(low <= calls * traffic.CPU_NS[which] <= high)
    assert np.mean(held) >= 0.9


def test_calls_that_clients_report_get_joules_by_their_tags(tmp_path: Path) -> None:
    """In five stories, 90 % of the intervals hold the true joules, and no energy is lost."""
    held = []
    for seed in range(5):
        story = traffic.story(9.0, seed)
        reports = Reports(calls_of(story))
        of = trace(tmp_path / str(seed), silent(story), server=KVD, reports=reports)
        attributed = attribute(of, ("tag:endpoint",))
        rows, calls = by_endpoint(attributed), story.requests.sum(axis=0)
        for endpoint, n, each_ns in zip(ENDPOINTS, calls, traffic.CPU_NS, strict=True):
            row = rows[endpoint]
            assert (row.calls, row.attach_mode, row.exact, row.server) == (
                n,
                "tag",
                False,
                KVD.name,
            )
            assert row.latency_ns_p50 == row.latency_ns_mean == 200_000
            low, high = row.energy_nj_ci95
            held.append(low <= n * each_ns <= high)
        assert sum(attributed.main.parts_nj.values()) == attributed.main.measured_nj
        served = [*attributed.rows, *(row for row in attributed.fixed if row.server == KVD.name)]
        assert sum(row.cpu_ns for row in served) == story.cpu_ns.sum()
        queries_ns = sum(row.cpu_ns for row in attributed.rows)
        assert attributed.coverage == pytest.approx(queries_ns / story.cpu_ns.sum())
        assert "kvd:7001 none (by thread)+tag" in render(attributed, width=160)
    assert np.mean(held) >= 0.9


def live_reported(
    story: traffic.Story, by: str, *where: str, attach_mode: str = "none"
) -> Attribution:
    server = replace(KVD, attach_mode=attach_mode)
    reports, chosen = Reports(calls_of(story)), selection(where)
    last = live(silent(story), 5.0, by, server=server, reports=reports, where=chosen)[-1]
    assert last.groups == ("fingerprint", "server", "tag:endpoint") or attach_mode != "none"
    assert sum(last.total.main.parts_nj.values()) == last.total.main.measured_nj
    return last.total


def test_the_live_view_groups_and_selects_reported_calls(tmp_path: Path) -> None:
    story = traffic.story(15.0)
    reports = Reports(calls_of(story))
    recorded = trace(tmp_path / "t", silent(story), server=KVD, reports=reports)
    expected = attribute(recorded, ("tag:endpoint",))
    assert replayed(recorded, 2.0, "tag:endpoint")[-1].total.rows == expected.rows
    rows = by_endpoint(live_reported(story, "tag:endpoint"))
    assert rows.keys() == set(ENDPOINTS)
    for endpoint, row in rows.items():
        same = by_endpoint(expected)[endpoint]
        assert (row.calls, row.attach_mode, row.exact) == (same.calls, "tag", False)
        assert row.energy_nj == pytest.approx(same.energy_nj, rel=0.1)
        assert row.latency_ns_mean == same.latency_ns_mean
    light, heavy = story.requests.sum(axis=0).tolist()
    shapes = {row.shape: row.calls for row in live_reported(story, "fingerprint").rows}
    assert shapes == {"redis call  endpoint=light": light, "redis call  endpoint=heavy": heavy}
    (server,) = live_reported(story, "server").rows
    assert (server.keys, server.calls) == ({"server": KVD.name}, light + heavy)
    chosen = by_endpoint(live_reported(story, "tag:endpoint", "tag:endpoint=heavy"))
    assert (chosen["heavy"].calls, chosen["not_selected"].calls) == (heavy, light)
    assert chosen["not_selected"].not_selected
    # Calls of a server whose queries are probed are not counted again.
    assert live_reported(story, "fingerprint", attach_mode="socket").rows == ()
