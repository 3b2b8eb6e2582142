# SPDX-License-Identifier: Apache-2.0
"""Law 5 for requests without own CPU time: `top`, `top --replay` and `attribute` agree on
shapes.
"""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fake_tracer
import statistical_traffic as traffic
from qjoule.contract import Grade
from qjoule.engine.attribute import attribute
from qjoule.live.replay import ReplaySource
from qjoule.live.source import StreamSource
from qjoule.model.result import Attribution, Row
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter

SERVER = "cassandra"
SHAPES = [shape.decode() for shape in traffic.SHAPES]


def trace(directory: Path, told: traffic.Story, grade: Grade = Grade.ESTIMATED) -> Trace:
    stream = Stream(io.BytesIO(b"".join(traffic.recorded(told, grade))))
    server = Server(id=1, kind="cassandra", name=SERVER, rung="statistical")
    record(stream, TraceWriter(directory), fake_tracer.fingerprint, Meta(servers=(server,)))
    return Trace(directory)


def replayed(of: Trace, interval_s: float, group: str = "fingerprint") -> list[Snapshot]:
    return list(ReplaySource(of, speed=0).snapshots(Controls(interval_s, group)))


def live(told: traffic.Story, interval_s: float, grade: Grade = Grade.ESTIMATED) -> list[Snapshot]:
    source = StreamSource(
        Stream(io.BytesIO(b"".join(traffic.live(told, grade)))),
        fake_tracer.fingerprint,
        Meta(servers=(Server(1, SERVER, rung="statistical"),)),
    )
    return list(source.snapshots(Controls(interval_s)))


def by_shape(found: Attribution) -> dict[str, Row]:
    return {row.shape: row for row in found.rows}


@settings(max_examples=8)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(0.5, 10.0),
    st.sampled_from([0.7, 2.0, 5.0]),
    st.sampled_from(["fingerprint", "server"]),
    st.sampled_from([Grade.ESTIMATED, Grade.SIMULATED]),
)
def test_a_replay_ends_at_the_attribution(
    seed: int, seconds: float, interval_s: float, by: str, grade: Grade
) -> None:
    with TemporaryDirectory() as directory:
        one = trace(Path(directory) / "t", traffic.story(seconds, seed), grade)
        last = replayed(one, interval_s, group=by)[-1].total
        whole = attribute(one, (by,))
    assert last.rows == whole.rows
    assert last.domains == whole.domains
    assert last.model.notes == whole.model.notes
    assert last.coverage == whole.coverage


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 10.0), st.sampled_from([0.7, 2.0]))
def test_the_live_view_ends_at_the_attribution(
    seed: int, seconds: float, interval_s: float
) -> None:
    """Except for what the kernel's sums cannot show: who ran at the same instant."""
    told = traffic.story(seconds, seed)
    with TemporaryDirectory() as directory:
        whole = attribute(trace(Path(directory) / "t", told))
    last = live(told, interval_s)[-1].total
    recorded, seen = by_shape(whole), by_shape(last)
    assert seen.keys() == recorded.keys()
    for shape, row in seen.items():
        same = recorded[shape]
        assert (row.calls, row.cpu_ns, row.rung) == (same.calls, same.cpu_ns, same.rung)
        assert set(row.flags) == set(same.flags)
        assert row.energy_nj == pytest.approx(same.energy_nj, rel=0.1, abs=1e6)


@pytest.fixture(scope="module")
def long_story() -> traffic.Story:
    return traffic.story(30.0)


def test_every_interval_has_joules_once_there_are_windows_enough(
    long_story: traffic.Story, tmp_path: Path
) -> None:
    """Before that there are no joules, and a note that gives the reason. Each adds up and has an
    interval.
    """
    for snapshots in (
        live(long_story, 1.0),
        replayed(trace(tmp_path / "t", long_story), 1.0),
    ):
        first, last = snapshots[0].interval, snapshots[-1]
        assert any("too little time" in note for note in first.model.notes)
        assert all({"statistical", "untold"} <= set(row.flags) for row in first.rows)
        assert all(row.energy_nj == 0 < row.energy_nj_ci95[1] for row in first.rows if row.calls)
        assert not any("too little time" in note for note in last.total.model.notes)
        for snapshot in snapshots[20:]:
            for found in (snapshot.interval, snapshot.total):
                assert sum(found.main.parts_nj.values()) == found.main.measured_nj
                for row in found.rows:
                    assert "untold" not in row.flags
                    assert row.energy_nj_ci95[0] <= row.energy_nj <= row.energy_nj_ci95[1]
        spent = by_shape(last.total)
        for shape, each_ns in zip(SHAPES, traffic.CPU_NS, strict=True):
            assert spent[shape].cpu_ns / spent[shape].calls == pytest.approx(each_ns, rel=0.15)


def test_intervals_hold_what_an_interval_used(long_story: traffic.Story) -> None:
    """At one watt per core, the true joules of an interval equal its requests' CPU time."""
    held: list[bool] = []
    last = 0
    for number, snapshot in enumerate(live(long_story, 2.0, Grade.SIMULATED)):
        first, last = last, last + snapshot.interval.windows
        if number < 8:
            continue
        for shape, row in by_shape(snapshot.interval).items():
            which = SHAPES.index(shape)
            n = long_story.requests[first:last, which].sum()
            assert row.calls == n
            low, high = row.energy_nj_ci95
            truth_nj = n * traffic.CPU_NS[which]
            held.append(low <= truth_nj <= high)
    assert np.mean(held) >= 0.9


def test_what_cannot_be_told_apart_is_never_nothing_for_certain(tmp_path: Path) -> None:
    """Both shapes in one mix, on a machine whose speed varies: live, in a replay, and at its end.

    Each interval contains the true joules of its requests, at one watt per core.
    """
    rng = np.random.default_rng(9)
    windows = 1500
    slow = np.repeat(np.exp(rng.normal(0, 0.3, windows // 25)), 25)
    busy = np.repeat(rng.uniform(0.2, 1.0, windows // 25), 25)
    requests = rng.poisson(np.outer(busy / slow, [10.0, 3.0]))
    served = (requests * slow[:, None]) @ traffic.CPU_NS
    cpu_ns = np.stack([served / 2 + 300_000, served / 2, np.zeros(windows)], axis=1)
    told = traffic.Story(requests, np.minimum(cpu_ns, 19e6).astype(np.int64))
    held: list[bool] = []
    for snapshots in (
        live(told, 2.0, Grade.SIMULATED),
        replayed(trace(tmp_path / "t", told, Grade.SIMULATED), 2.0),
    ):
        last = sum(one.interval.windows for one in snapshots[:8])
        for snapshot in snapshots[8:]:
            first, last = last, last + snapshot.interval.windows
            for begins, found in ((first, snapshot.interval), (0, snapshot.total)):
                spent_nj = (requests[begins:last] * slow[begins:last, None]).sum(axis=0)
                for shape, row in by_shape(found).items():
                    truth_nj = (spent_nj * traffic.CPU_NS)[SHAPES.index(shape)]
                    low, high = row.energy_nj_ci95
                    assert high > 0.1 * truth_nj
                    held.append(low <= truth_nj <= high)
    assert np.mean(held) >= 0.95


def test_a_reset_learns_anew(long_story: traffic.Story, tmp_path: Path) -> None:
    controls, seen = Controls(2.0), []
    for snapshot in ReplaySource(trace(tmp_path / "t", long_story), speed=0).snapshots(controls):
        seen.append(snapshot)
        if len(seen) == 12:
            controls.reset()
    assert any("untold" not in row.flags for row in seen[11].total.rows)
    assert all("untold" in row.flags for row in seen[12].total.rows)
