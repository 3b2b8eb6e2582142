# SPDX-License-Identifier: Apache-2.0
"""The memory in a live view: what it learns is passed on, and what is known is used."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest

import fake_tracer
from fake_tracer import BEGIN_NS, MS, block, end, energy, flush, head, text
from qjoule.contract import LATENCY_BUCKETS, Block, OwnerKind
from qjoule.live.source import StreamSource
from qjoule.model.coefficients_used import Calibrated
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.memory_used import Remembered
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta, Server

WINDOW = 100 * MS
WINDOWS = 700  #: one whole block, and a part of another
META = Meta(host="box", servers=(Server(1, "shop-db", "mysql", "8.0"),))
CONDITIONS = Conditions("6.1", "", "", "", "replay simulated")


def frames() -> Iterator[bytes]:
    """Two statements at random, each of a power of its own."""
    random = np.random.default_rng(1)
    yield head() + text(1, b"SELECT a") + text(2, b"SELECT b") + energy(BEGIN_NS, 1000, 0)
    raw = 0.0
    for number in range(WINDOWS):
        t0_ns = BEGIN_NS + number * WINDOW
        ms = random.uniform(5, 90, 2) * (random.random(2) < 0.7)
        raw += 2_000 + 5 * float(ms.max()) + float(ms @ np.array([13.0, 7.0]))
        rows = [
            {
                **{"t0_ns": t0_ns, "t1_ns": t0_ns + WINDOW, "owner_kind": OwnerKind.QUERY},
                **{"shape": shape + 1, "server": 1, "calls": 3, "latency_ns": 3 * MS},
                **{"cpu_ns": round(float(ms[shape]) * MS)},
                "latency": np.zeros(LATENCY_BUCKETS, np.uint32),
            }
            for shape in range(2)
            if ms[shape]
        ]
        yield energy(t0_ns + WINDOW, 1000 + round(raw * 10), 0)
        yield (block(Block.AGGREGATE, *rows) if rows else b"") + flush(t0_ns + WINDOW)
    yield end(BEGIN_NS + WINDOWS * WINDOW)


@pytest.fixture(scope="module")
def stream() -> bytes:
    return b"".join(frames())


def view(
    stream: bytes, cells: tuple[Cell, ...] = (), resets: int = 0
) -> tuple[list[Snapshot], list[Cell]]:
    """The snapshots of a view that knows `cells` at first, and the cells that it learns."""
    learned: list[Cell] = []
    known = Calibrated(memory=Remembered(cells, CONDITIONS, "a memory" if cells else ""))
    source = StreamSource(
        Stream(io.BytesIO(stream)),
        fake_tracer.fingerprint,
        META,
        choose=lambda _meta: known,
        told=learned.extend,
    )
    controls, snapshots = Controls(10.0), []
    for number, snapshot in enumerate(source.snapshots(controls)):
        snapshots.append(snapshot)
        if number < resets:
            controls.reset()
    return snapshots, learned


def test_what_the_view_learns_is_passed_on_once(stream: bytes) -> None:
    """One cell, of the only block that was full, although the view has several groupings."""
    (cell,) = view(stream)[1]
    assert len(cell.keys) == 2
    assert cell.conditions == CONDITIONS
    _, reset = view(stream, resets=1)
    assert len({int(cell.members[0]) for cell in reset}) == len(reset) <= 2


def test_what_is_known_is_used_and_said(stream: bytes) -> None:
    """The same stream is the same source: its own cell is not recalled, nor told as another."""
    plain, cells = view(stream)
    known, more = view(stream, tuple(cells))
    assert known[-1].total.model.memory == "a memory"
    assert [cell.members.tolist() for cell in more] == [cell.members.tolist() for cell in cells]
    of_rows = [
        [(row.keys, row.energy_nj) for row in snapshots[-1].total.rows]
        for snapshots in (known, plain)
    ]
    assert of_rows[0] == of_rows[1]
    for snapshot in known:
        measured = snapshot.total.main
        assert sum(measured.parts_nj.values()) == measured.measured_nj
