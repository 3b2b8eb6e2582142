# SPDX-License-Identifier: Apache-2.0
"""The live stream: its figures are those of a trace, and it stays small whatever clients send."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pytest

import fake_tracer
from fake_tracer import BEGIN_NS, MS, block, end, energy, flush, head, task, text
from qjoule.contract import LATENCY_BUCKETS, Block, OwnerKind, TaskEvent
from qjoule.engine.live_groups import GROUPS
from qjoule.errors import QjouleError
from qjoule.live.grouping import GroupLru
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.model.labels import FORGOTTEN_SHAPES, OTHER_SHAPES, process
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream, encode_block
from qjoule.stream.names import MAX_TASKS, Names
from qjoule.trace.meta import Meta, Server

WINDOW = 100 * MS
META = Meta(host="db1", servers=(Server(1, "mariadb", attach_mode="symbol"),))


def summed(number: int, rows: np.ndarray) -> bytes:
    """One window as the tracer writes it: the reading that ends it, then its sums."""
    t0_ns = BEGIN_NS + number * WINDOW
    rows["t0_ns"], rows["t1_ns"] = t0_ns, t0_ns + WINDOW
    reading = energy(t0_ns + WINDOW, (number + 2) * 1000, 0)
    return reading + encode_block(Block.AGGREGATE, rows) + flush(t0_ns + WINDOW)


def window(number: int, *rows: dict[str, object]) -> bytes:
    return summed(number, fake_tracer.records(Block.AGGREGATE, rows))


def query(shape: int, cpu_ms: int, calls: int = 10, **other: object) -> dict[str, object]:
    histogram = np.zeros(LATENCY_BUCKETS, np.uint32)
    histogram[20] = calls
    row = {"owner_kind": OwnerKind.QUERY, "shape": shape, "cpu_ns": cpu_ms * MS, "server": 1}
    return {**row, "calls": calls, "latency_ns": calls * MS, "latency": histogram, **other}


def busy(windows: int) -> Iterator[bytes]:
    for number in range(windows):
        yield window(
            number,
            query(1, 40),
            query(0, 5),
            {"owner_kind": OwnerKind.SERVER, "pid": 7, "server": 1, "cpu_ns": 3 * MS},
            {"owner_kind": OwnerKind.PROCESS, "tgid": 8, "cpu_ns": 2 * MS},
            {"owner_kind": OwnerKind.TRACER, "cpu_ns": 1 * MS},
        )


def source(body: bytes, **options: object) -> StreamSource:
    stream = head() + text(1, b"SELECT 1") + energy(BEGIN_NS, 1000, 0) + body
    context = fake_tracer.context(META)
    return StreamSource(Stream(io.BytesIO(stream)), context, **options)  # type: ignore[arg-type]


def snapshots(
    windows: Iterable[bytes], interval_s: float = 0.5, *, totals: bool = True
) -> list[Snapshot]:
    pieces = list(windows)
    body = b"".join(pieces) + end(BEGIN_NS + len(pieces) * WINDOW)
    return list(source(body).snapshots(Controls(interval_s, totals=totals)))


def test_intervals_add_up_and_time_is_conserved() -> None:
    tasks = task(BEGIN_NS, 7, TaskEvent.ALIVE, b"purge") + task(BEGIN_NS, 8, TaskEvent.ALIVE, b"rm")
    first, *windows = busy(20)
    results = snapshots([tasks + first, *windows])
    total = results[-1].total
    assert [snapshot.ended for snapshot in results] == [False] * (len(results) - 1) + [True]
    assert all(a.elapsed_s <= b.elapsed_s for a, b in pairwise(results))
    for snapshot in results[:-1]:
        assert snapshot.interval.rows[0].cpu_ns == snapshot.interval.windows * 40 * MS
    assert sum(snapshot.interval.windows for snapshot in results) == total.windows == 20
    assert sum(snapshot.interval.main.measured_nj for snapshot in results) == total.main.measured_nj
    assert total.main.measured_nj == round(20 * 1000 * 2.0**-14 * 1e9)
    assert sum(total.main.parts_nj.values()) == total.main.measured_nj
    rows = {row.shape: row for row in total.rows}
    named = rows["SELECT ?"]
    assert (named.calls, named.cpu_ns, named.attach_mode) == (200, 20 * 40 * MS, "symbol")
    assert named.latency_ns_mean == MS
    cpu_ns = sum(row.cpu_ns for row in (*total.rows, *total.fixed))
    assert cpu_ns == 2 * 20 * WINDOW, "two CPUs, every nanosecond has one owner"
    names = {row.keys.get("role") or row.keys.get("process") for row in total.fixed}
    assert {"purge", "rm"} <= names
    assert total.coverage == pytest.approx(40 / 48)


def test_grouping_by_server_reset_and_stop() -> None:
    controls, results = Controls(0.5), []
    for snapshot in source(b"".join(busy(50))).snapshots(controls):
        results.append(snapshot)
        if len(results) == 2:
            controls.set(group="server")
            controls.reset()
        if len(results) == 4:
            controls.stop()
    assert len(results) == 4
    assert [row.keys for row in results[2].interval.rows] == [{"server": "mariadb"}]
    assert results[2].total.windows == results[2].interval.windows
    assert results[3].total.windows == results[2].total.windows + results[3].interval.windows


def test_an_interval_is_the_same_with_other_groupings_beside_its_own_and_without() -> None:
    body = b"".join(busy(20)) + end(BEGIN_NS + 20 * WINDOW)
    alone, beside = (
        [
            snapshot.interval
            for snapshot in source(body, options=LiveOptions(groups=groups)).snapshots(
                Controls(0.5, totals=False)
            )
        ]
        for groups in (GROUPS[:1], GROUPS)
    )
    assert len(alone) > 2
    assert alone == beside


def test_a_broken_stream_gives_its_last_figures_then_an_error() -> None:
    results = []
    with pytest.raises(QjouleError, match="killed"):
        for snapshot in source(b"".join(busy(9))[:-10], failure=lambda: "killed").snapshots(
            Controls(0.5)
        ):
            results.append(snapshot)
    assert results[-1].ended
    assert not results[-1].total.trace.complete
    with pytest.raises(QjouleError, match="damaged"):
        list(source(b"\xff" * 100).snapshots(Controls(0.5)))
    empty = StreamSource(Stream(io.BytesIO(b"")), fake_tracer.context(META))
    with pytest.raises(QjouleError, match="ended before it began"):
        list(empty.snapshots(Controls(0.5)))


def test_a_fork_bomb_does_not_take_servers_their_names() -> None:
    names = Names(fake_tracer.fingerprint, ())
    pids = range(100, 100 + 2 * MAX_TASKS)
    bomb = {"event": TaskEvent.FORK, "comm": b"bomb"}
    purge = {"pid": 7, "tgid": 7, "event": TaskEvent.ALIVE, "comm": b"purge", "server": 1}
    tasks = block(Block.TASK, purge, *({"pid": pid, "tgid": pid} | bomb for pid in pids))
    for frame in Stream(io.BytesIO(head() + tasks)):
        if frame.kind is Block.TASK:
            names.add_tasks(frame.records)
    assert [names.comm(pid) for pid in (7, pids[0], pids[-1])] == ["purge", "(unknown)", "bomb"]


def test_a_text_that_comes_late_names_what_ran_before_it() -> None:
    windows = [window(n, query(1, 40), query(2, 10), query(3, 5)) for n in range(20)]
    windows[12] += text(2, b"SELECT 1") + text(3, b"DELETE")
    results = snapshots(windows)
    assert len(results[0].interval.rows) == 3
    assert results[0].interval.coverage == pytest.approx(40 / 55)
    total = results[-1].total
    rows = {row.shape: row for row in total.rows}
    calls = {shape: (row.calls, row.cpu_ns) for shape, row in rows.items()}
    assert calls == {"SELECT ?": (400, 20 * 50 * MS), "DELETE": (200, 20 * 5 * MS)}
    assert rows["SELECT ?"].latency_ns_p50 is not None
    assert total.coverage == 1.0
    assert sum(total.main.parts_nj.values()) == total.main.measured_nj
    low, high = rows["SELECT ?"].energy_nj_ci95
    assert low < rows["SELECT ?"].energy_nj < high


def sums(shapes: np.ndarray, cpu_ns: int) -> np.ndarray:
    rows = fake_tracer.records(Block.AGGREGATE, [{}] * len(shapes))
    rows["owner_kind"], rows["shape"], rows["server"] = OwnerKind.QUERY, shapes, 1
    rows["cpu_ns"], rows["calls"], rows["latency_ns"] = cpu_ns, 1, MS
    rows["latency"][:, LATENCY_BUCKETS // 2] = 1
    return rows


PER_WINDOW = 30
FLOOD, REST = 12, 20  #: windows
KEPT = 100
STEADY, STEADY_NS, ONE_NS = 1, 20 * MS, 50_000


def flooded(*, texts: bool) -> Iterator[bytes]:
    """A steady statement, and for a while always new ones beside it. Names have no digits, which
    would be literals.
    """
    letters = str.maketrans("0123456789", "abcdefghij")
    for number in range(FLOOD + REST):
        rows, named = sums(np.array([STEADY]), STEADY_NS), b""
        if number < FLOOD:
            new = np.arange(PER_WINDOW) + 10 + number * PER_WINDOW
            rows = np.concatenate([rows, sums(new, ONE_NS)])
            for shape in new.tolist() if texts else ():
                named += text(shape, b"SELECT " + str(shape).translate(letters).encode())
        yield named + summed(number, rows)


@pytest.mark.parametrize("texts", [True, False])
def test_shapes_are_forgotten_and_totals_still_add_up(
    texts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupLru.__init__, "__defaults__", (KEPT - 20, 20))
    results = snapshots(flooded(texts=texts), 1.0)
    total = results[-1].total
    assert max(len(snapshot.total.rows) for snapshot in results) <= KEPT + PER_WINDOW + 2
    assert len(total.rows) <= KEPT + 2
    assert len(results[-1].interval.rows) == 1, "only what ran"
    new, steady_windows = FLOOD * PER_WINDOW, FLOOD + REST
    assert sum(row.calls for row in total.rows) == new + steady_windows
    assert sum(row.cpu_ns for row in total.rows) == new * ONE_NS + steady_windows * STEADY_NS
    assert sum(snapshot.interval.main.measured_nj for snapshot in results) == total.main.measured_nj
    cpu_ns = sum(row.cpu_ns for row in (*total.rows, *total.fixed))
    assert cpu_ns == 2 * steady_windows * WINDOW
    assert sum(total.main.parts_nj.values()) == total.main.measured_nj
    assert sum(row.energy_nj for row in total.rows) == total.main.parts_nj["queries"]
    by_shape = {row.shape: row for row in total.rows}
    steady = by_shape["SELECT ?"]
    assert (steady.calls, steady.cpu_ns) == (steady_windows, steady_windows * STEADY_NS)
    forgotten = by_shape[FORGOTTEN_SHAPES if texts else OTHER_SHAPES]
    assert forgotten.calls >= new - KEPT
    low, high = forgotten.energy_nj_ci95
    assert low <= forgotten.energy_nj <= high


def test_groups_of_least_cpu_time_are_forgotten_down_to_the_limit() -> None:
    recent, labels = GroupLru(remembered=2, spare=1), [process(str(n)) for n in range(5)]
    rows = sums(np.arange(5), ONE_NS)
    rows["cpu_ns"] = [3, 1, 5, 2, 4]
    recent.note(rows, np.arange(5))
    assert recent.least(labels, lambda _: True).tolist() == [True, True, False, True, False]
