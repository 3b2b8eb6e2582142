# SPDX-License-Identifier: Apache-2.0
"""Clients may always send new shapes: a live view stays small, and its figures still add up."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest

import fake_tracer
from fake_tracer import BEGIN_NS, MS, block, end, energy, flush, head, text
from qjoule.contract import LATENCY_BUCKETS, Block, OwnerKind, TaskEvent
from qjoule.live.recent import Recent
from qjoule.live.source import StreamSource
from qjoule.model.labels import FORGOTTEN_PROCESSES, FORGOTTEN_SHAPES, OTHER_SHAPES
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream, encode_block
from qjoule.trace.meta import Meta, Server

WINDOW = 100 * MS
PER_WINDOW = 30
STEADY, STEADY_NS, ONE_NS = 1, 20 * MS, 50_000
JOULES = 1000


def window(number: int, rows: np.ndarray) -> bytes:
    t0_ns = BEGIN_NS + number * WINDOW
    rows["t0_ns"], rows["t1_ns"] = t0_ns, t0_ns + WINDOW
    reading = energy(t0_ns + WINDOW, (number + 2) * JOULES, 0)
    return reading + encode_block(Block.AGGREGATE, rows) + flush(t0_ns + WINDOW)


FLOOD, REST = 12, 20  #: windows
KEPT = 100


@pytest.fixture(autouse=True)
def few_groups_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recent.__init__, "__defaults__", (KEPT - 20, 20))


def sums(shapes: np.ndarray, cpu_ns: int) -> np.ndarray:
    rows = fake_tracer.records(Block.AGGREGATE, [{}] * len(shapes))
    rows["owner_kind"], rows["shape"], rows["server"] = OwnerKind.QUERY, shapes, 1
    rows["cpu_ns"], rows["calls"], rows["latency_ns"] = cpu_ns, 1, MS
    rows["latency"][:, LATENCY_BUCKETS // 2] = 1
    return rows


def flooded(*, texts: bool) -> Iterator[bytes]:
    """A steady statement, and for a while always new ones beside it. Names have no digits, which
    would be literals.
    """
    letters = str.maketrans("0123456789", "abcdefghij")
    for number in range(FLOOD + REST):
        rows = sums(np.array([STEADY]), STEADY_NS)
        if number < FLOOD:
            new = np.arange(PER_WINDOW) + 10 + number * PER_WINDOW
            rows = np.concatenate([rows, sums(new, ONE_NS)])
            for shape in new.tolist() if texts else ():
                yield text(shape, b"SELECT " + str(shape).translate(letters).encode())
        yield window(number, rows)


def snapshots(body: bytes, *, totals: bool = True) -> list[Snapshot]:
    stream = head() + text(STEADY, b"SELECT steady") + energy(BEGIN_NS, JOULES, 0) + body
    stream += end(BEGIN_NS + (FLOOD + REST) * WINDOW)
    meta = Meta(servers=(Server(1, "mariadb", rung="symbol"),))
    source = StreamSource(Stream(io.BytesIO(stream)), fake_tracer.fingerprint, meta)
    return list(source.snapshots(Controls(1.0, totals=totals)))


@pytest.mark.parametrize("texts", [True, False])
def test_shapes_are_forgotten_and_totals_still_add_up(texts: bool) -> None:
    seen = snapshots(b"".join(flooded(texts=texts)))
    total = seen[-1].total
    assert max(len(one.total.rows) for one in seen) <= KEPT + PER_WINDOW + 2
    assert len(total.rows) <= KEPT + 2
    assert len(seen[-1].interval.rows) == 1, "only what ran"
    new, steady_windows = FLOOD * PER_WINDOW, FLOOD + REST
    assert sum(row.calls for row in total.rows) == new + steady_windows
    assert sum(row.cpu_ns for row in total.rows) == new * ONE_NS + steady_windows * STEADY_NS
    for figure in ("calls", "cpu_ns"):
        parts = sum(getattr(row, figure) for one in seen for row in one.interval.rows)
        assert parts == sum(getattr(row, figure) for row in total.rows)
    assert sum(one.interval.main.measured_nj for one in seen) == total.main.measured_nj
    cpu_ns = sum(row.cpu_ns for row in (*total.rows, *total.fixed))
    assert cpu_ns == 2 * steady_windows * WINDOW
    assert sum(total.main.parts_nj.values()) == total.main.measured_nj
    assert sum(row.energy_nj for row in total.rows) == total.main.parts_nj["queries"]
    by_shape = {row.shape: row for row in total.rows}
    steady = by_shape["SELECT steady"]
    assert (steady.calls, steady.cpu_ns) == (steady_windows, steady_windows * STEADY_NS)
    forgotten = by_shape[FORGOTTEN_SHAPES if texts else OTHER_SHAPES]
    assert forgotten.calls >= new - KEPT
    low, high = forgotten.energy_nj_ci95
    assert low <= forgotten.energy_nj <= high


def test_processes_with_ever_new_names_are_forgotten() -> None:
    body = []
    for number in range(FLOOD):
        pids = np.arange(PER_WINDOW) + 1000 + number * PER_WINDOW
        rows = sums(np.zeros(PER_WINDOW), ONE_NS)
        rows["owner_kind"], rows["calls"], rows["server"] = OwnerKind.PROCESS, 0, 0
        rows["tgid"] = pids
        named = [
            {"pid": pid, "tgid": pid, "event": TaskEvent.EXEC, "comm": b"p%d" % pid}
            for pid in pids.tolist()
        ]
        body.append(block(Block.TASK, *named) + window(number, rows))
    total = snapshots(b"".join(body))[-1].total
    processes = [row for row in total.fixed if row.kind == "other_processes"]
    assert len(processes) <= KEPT + PER_WINDOW
    assert sum(row.cpu_ns for row in processes) == FLOOD * PER_WINDOW * ONE_NS
    assert FORGOTTEN_PROCESSES in {row.keys["process"] for row in processes}


def test_a_total_that_nobody_looks_at_is_not_made() -> None:
    seen = snapshots(b"".join(flooded(texts=True)), totals=False)
    with_totals = snapshots(b"".join(flooded(texts=True)))
    assert all(one.total is one.interval for one in seen)
    assert [one.interval for one in seen] == [one.interval for one in with_totals]
