# SPDX-License-Identifier: Apache-2.0
"""Results in a trace and a live view for calls known only from clients' reports."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fake_tracer
import statistical_traffic as traffic
from fake_tracer import BEGIN_NS
from qjoule.contract import Grade
from qjoule.engine.attribute import attribute
from qjoule.engine.selection import selection
from qjoule.live.replay import ReplaySource
from qjoule.live.source import StreamSource
from qjoule.model.fold import bound_tags
from qjoule.model.result import Row
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.missing import lost
from qjoule.reporters.table import render
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.stream.reported_calls import CallShapes, call_rows
from qjoule.tags.reported_calls import Call
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.schema import OTHER_FINGERPRINT
from qjoule.trace.writer import TraceWriter

ENDPOINTS = ("light", "heavy")
SERVER = "kvd:7001"
META = Meta(servers=(Server(id=1, kind="generic", name=SERVER, rung="none"),))


class Reports:
    """Reports each call at the first request after its end."""

    lost = unverified = 0

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = list(calls)

    def tags_of(self, _names: Any, codes: Any, _streams: Any, _begins: Any) -> pa.MapArray:
        return pa.nulls(len(codes), pa.map_(pa.string(), pa.string()))

    def reported(self, _opaque: Mapping[str, int], *, everything: bool = False) -> list[Call]:
        del everything
        reported, self._calls = self._calls, []
        return reported

    def calls_on(self, connections: Sequence[str | None]) -> list[bool]:
        return [True for _ in connections]


def calls_of(story: traffic.Story, values: Sequence[str] = ENDPOINTS) -> list[Call]:
    """One call at a time, each a hundredth of a window long."""
    calls = []
    for window, requests in enumerate(story.requests):
        t_ns = BEGIN_NS + window * traffic.WINDOW_NS
        for endpoint, count in enumerate(requests.tolist()):
            for _ in range(count):
                t_ns += 400_000
                tags = (("endpoint", values[endpoint]),)
                calls.append(Call(1, "redis", t_ns - 200_000, t_ns, 1, tags))
    return calls


def silent(story: traffic.Story) -> traffic.Story:
    """The same work, of which the kernel sees only threads."""
    return replace(story, requests=np.zeros_like(story.requests))


def recorded(directory: Path, story: traffic.Story, calls: Sequence[Call]) -> Trace:
    stream = Stream(io.BytesIO(b"".join(traffic.recorded(silent(story), Grade.SIMULATED))))
    record(
        stream,
        TraceWriter(directory),
        fake_tracer.fingerprint,
        META,
        reports=Reports(calls),
    )
    return Trace(directory)


def by_value(rows: Sequence[Row], key: str = "tag:endpoint") -> dict[str, Row]:
    return {row.keys[key]: row for row in rows}


@pytest.fixture(scope="module")
def story() -> traffic.Story:
    return traffic.story(15.0)


@pytest.fixture(scope="module")
def trace(story: traffic.Story, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return recorded(tmp_path_factory.mktemp("told") / "t", story, calls_of(story))


def test_joules_per_tag_by_regression(trace: Trace, story: traffic.Story) -> None:
    """At one watt per core, what each endpoint used is its CPU time. No energy is made or lost."""
    found = attribute(trace, ("tag:endpoint",))
    rows = by_value(found.rows)
    assert rows.keys() == set(ENDPOINTS)
    for endpoint, n, each_ns in zip(
        ENDPOINTS, story.requests.sum(axis=0), traffic.CPU_NS, strict=True
    ):
        row = rows[endpoint]
        assert (row.calls, row.rung, row.exact, row.server) == (n, "tag", False, SERVER)
        assert "statistical" in row.flags
        assert row.latency_ns_p50 == row.latency_ns_mean == 200_000
        low_nj, high_nj = row.energy_nj_ci95
        assert low_nj <= n * each_ns <= high_nj
    assert rows["heavy"].energy_nj > rows["light"].energy_nj
    assert sum(found.main.parts_nj.values()) == found.main.measured_nj
    background = [row for row in found.fixed if row.server == SERVER]
    assert background
    assert all(row.energy_nj >= 0 for row in background)
    cpu_ns = sum(row.cpu_ns for row in (*found.rows, *background))
    assert cpu_ns == story.cpu_ns.sum()
    queries_ns = sum(row.cpu_ns for row in found.rows)
    assert found.coverage == pytest.approx(queries_ns / story.cpu_ns.sum())
    assert "kvd:7001 none (by thread)+tag" in render(found, width=160)


def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """For two endpoints in five fixed stories: 95 %, with allowance for chance."""
    held = []
    for seed in range(5):
        story = traffic.story(9.0, seed)
        one = recorded(tmp_path / str(seed), story, calls_of(story))
        rows = by_value(attribute(one, ("tag:endpoint",)).rows)
        for endpoint, n, each_ns in zip(
            ENDPOINTS, story.requests.sum(axis=0), traffic.CPU_NS, strict=True
        ):
            low_nj, high_nj = rows[endpoint].energy_nj_ci95
            held.append(low_nj <= n * each_ns <= high_nj)
    assert np.mean(held) >= 0.9


def test_a_replay_and_the_live_view_say_the_same(trace: Trace, story: traffic.Story) -> None:
    whole = attribute(trace, ("tag:endpoint",))
    controls = Controls(2.0, "tag:endpoint")
    last = list(ReplaySource(trace, by=("tag:endpoint",), speed=0).snapshots(controls))[-1].total
    assert last.rows == whole.rows
    live = StreamSource(
        Stream(io.BytesIO(b"".join(traffic.live(silent(story), Grade.SIMULATED)))),
        fake_tracer.fingerprint,
        Meta(servers=(Server(1, SERVER, rung="none"),)),
        reports=Reports(calls_of(story)),
    )
    snapshots = list(live.snapshots(controls))
    assert snapshots[-1].groups == ("fingerprint", "server", "tag:endpoint")
    seen, recorded_rows = by_value(snapshots[-1].total.rows), by_value(whole.rows)
    assert seen.keys() == recorded_rows.keys()
    for value, row in seen.items():
        same = recorded_rows[value]
        assert (row.calls, row.rung, row.exact) == (same.calls, "tag", False)
        assert row.energy_nj == pytest.approx(same.energy_nj, rel=0.1)
        assert row.latency_ns_mean == same.latency_ns_mean


def test_what_is_not_told_and_not_believed_is_a_loss(story: traffic.Story, tmp_path: Path) -> None:
    reports = Reports(calls_of(story))
    reports.lost, reports.unverified = 3, 5
    stream = b"".join(traffic.recorded(silent(story), Grade.SIMULATED))
    writer = TraceWriter(tmp_path / "t")
    record(Stream(io.BytesIO(stream)), writer, fake_tracer.fingerprint, META, reports=reports)
    live = StreamSource(
        Stream(io.BytesIO(b"".join(traffic.live(silent(story), Grade.SIMULATED)))),
        fake_tracer.fingerprint,
        Meta(servers=(Server(1, SERVER, rung="none"),)),
        reports=reports,
    )
    last = list(live.snapshots(Controls(5.0, "fingerprint")))[-1].total
    for loss in (Trace(tmp_path / "t").loss, last.trace.loss):
        assert (loss["tags"], loss["unverified"]) == (3, 5)
        assert "5 calls on connections that may be another user's" in lost(loss)


def live_by(by: str, story: traffic.Story, *where: str, rung: str = "none") -> dict[str, Row]:
    live = StreamSource(
        Stream(io.BytesIO(b"".join(traffic.live(silent(story), Grade.SIMULATED)))),
        fake_tracer.fingerprint,
        Meta(servers=(Server(1, SERVER, rung=rung),)),
        reports=Reports(calls_of(story)),
        where=selection(where),
    )
    last = list(live.snapshots(Controls(5.0, by)))[-1].total
    assert sum(last.main.parts_nj.values()) == last.main.measured_nj
    return {row.keys.get(by, ""): row for row in last.rows}


def test_the_live_view_s_other_groups_and_selections(story: traffic.Story) -> None:
    light, heavy = story.requests.sum(axis=0).tolist()
    by_shape = {row.shape: row.calls for row in live_by("fingerprint", story).values()}
    assert by_shape == {"redis call  endpoint=light": light, "redis call  endpoint=heavy": heavy}
    assert live_by("server", story)[SERVER].calls == light + heavy
    chosen = live_by("tag:endpoint", story, "tag:endpoint=heavy")
    assert chosen["heavy"].calls == heavy
    assert chosen["not_selected"].calls == light
    assert chosen["not_selected"].not_selected
    assert set(live_by("tag:endpoint", story, "server=another")) == {"not_selected"}


def test_a_probed_server_s_calls_are_not_counted_again(story: traffic.Story) -> None:
    assert live_by("fingerprint", story, rung="socket") == {}


def test_hostile_and_too_many_tags(tmp_path: Path) -> None:
    story = traffic.story(1.0)
    values = ["=cmd|'/c calc'!A0\x1b[31m\n", "x\u202ey\0"]
    one = recorded(tmp_path / "t", story, calls_of(story, values))
    found = bound_tags(attribute(one, ("tag:endpoint",)), 1)
    assert len(found.rows) == 2
    text = render(found, width=100)
    assert not set(text) & set("\x1b\0\u202e")
    lines = to_csv(attribute(one, ("tag:endpoint",))).splitlines()
    (formula,) = (row for row in csv.DictReader(lines) if "cmd" in (row["tag:endpoint"] or ""))
    assert formula["tag:endpoint"].startswith("'=cmd")
    assert not set("".join(lines)) & set("\x1b\0\u202e")
    shapes = CallShapes(3)
    many = [Call(1, "redis", 1, 2, 1, (("tenant", str(n)),)) for n in range(50)]
    table = call_rows(many, 0, shapes)
    fingerprints = set(table.column("fingerprint").to_pylist())
    assert len(fingerprints) == 4
    assert OTHER_FINGERPRINT in fingerprints
    assert len(shapes.take_rows()) == 4
