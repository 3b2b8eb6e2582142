# SPDX-License-Identifier: Apache-2.0
"""The memory in a live view: what it learns is passed on, and what is known is used."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

import fake_tracer
from fake_tracer import BEGIN_NS, MS, block, end, energy, flush, head, text
from qjoule.contract import LATENCY_BUCKETS, Block, OwnerKind
from qjoule.live.options import LiveOptions
from qjoule.live.source import StreamSource
from qjoule.model.coefficients_used import Calibrated, Remembered
from qjoule.model.fit.cells import Cell, Conditions
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
        ms = random.uniform(5, 90, 2)
        raw += 2_000 + 5 * float(ms.max()) + float(ms @ np.array([13.0, 7.0]))
        rows = [
            {
                **{"t0_ns": t0_ns, "t1_ns": t0_ns + WINDOW, "owner_kind": OwnerKind.QUERY},
                **{"shape": shape + 1, "server": 1, "calls": 3, "latency_ns": 3 * MS},
                **{"cpu_ns": round(float(ms[shape]) * MS)},
                "latency": np.zeros(LATENCY_BUCKETS, np.uint32),
            }
            for shape in range(2)
        ]
        yield energy(t0_ns + WINDOW, 1000 + round(raw * 10), 0)
        yield block(Block.AGGREGATE, *rows) + flush(t0_ns + WINDOW)
    yield end(BEGIN_NS + WINDOWS * WINDOW)


def view(stream: bytes, known: tuple[Cell, ...] = ()) -> tuple[Snapshot, list[Cell]]:
    """The last snapshot of a view that knows these cells, and the cells that it learns."""
    cells: list[Cell] = []
    used = Calibrated(memory=Remembered(known, CONDITIONS, "a memory" if known else ""))
    options = LiveOptions(choose=lambda _meta: used, told=cells.extend)
    source = StreamSource(Stream(io.BytesIO(stream)), fake_tracer.context(META), options)
    return list(source.snapshots(Controls(10.0)))[-1], cells


def test_what_is_learned_is_passed_on_and_what_is_known_is_used_and_said() -> None:
    """The same stream is the same source: its own cell is not recalled, nor told as another."""
    stream = b"".join(frames())
    plain, cells = view(stream)
    assert [(len(cell.keys), cell.conditions) for cell in cells] == [(2, CONDITIONS)]
    known, more = view(stream, tuple(cells))
    assert known.total.model.memory == "a memory"
    assert [cell.members.tolist() for cell in more] == [cells[0].members.tolist()]
    assert [row.energy_nj for row in known.total.rows] == [
        row.energy_nj for row in plain.total.rows
    ]
