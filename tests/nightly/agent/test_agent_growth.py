# SPDX-License-Identifier: Apache-2.0
"""The engine's memory over simulated hours, by what Python and numpy allocate."""

from __future__ import annotations

import gc
import io
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fake_tracer as ft
from qjoule.agent.config import Config, Metrics
from qjoule.agent.config import Store as StoreKeys
from qjoule.agent.handover import take
from qjoule.agent.notify import Manager
from qjoule.agent.rollups import Rollups
from qjoule.agent.service import Service, kept, limits
from qjoule.agent.store import Store
from qjoule.contract import AGGREGATE, Block, Grade, OwnerKind, TaskEvent
from qjoule.engine.live_groups import PER_SERVER
from qjoule.live.options import LiveOptions
from qjoule.live.source import StreamSource
from qjoule.metrics.shared import Board
from qjoule.model.cells_of_time import BLOCK_WINDOWS
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream, encode_block
from qjoule.trace.meta import Meta, Server

pytestmark = pytest.mark.beside

SECOND_NS = 1_000_000_000
SHAPES = 8
#: Long windows, so that hours take seconds.
WINDOW_S = 10
WINDOW_NS = WINDOW_S * SECOND_NS
#: A block of windows. Memory is compared where blocks end, because within one it rises and falls.
BLOCK_S = BLOCK_WINDOWS * WINDOW_S
INTERVAL_S = BLOCK_S / 16
#: The first two blocks, of 85 minutes each, fill what is bounded.
BLOCKS = 3
#: Bytes; the windows of one block that were kept would take ten times as much.
MAX_GROWTH = 1 << 17


class Hours(io.RawIOBase):
    """A stream that is made while it is read."""

    def __init__(self, windows: int) -> None:
        self._pieces, self._left = self._made(windows), b""

    def read(self, size: int = -1, /) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, b"")):
            self._left += piece
        found, self._left = self._left[:size], self._left[size:]
        return found

    @staticmethod
    def _made(windows: int) -> Iterator[bytes]:
        yield ft.head(4, grade=Grade.MEASURED) + ft.task(ft.BEGIN_NS, 7, TaskEvent.ALIVE, b"db")
        for shape in range(1, SHAPES + 1):
            yield ft.text(shape, b"SELECT %d" % shape)
        yield ft.energy(ft.BEGIN_NS, 0, 0)
        random, raw = np.random.default_rng(1), 0
        for window in range(windows):
            rows = np.zeros(SHAPES + 2, AGGREGATE)
            rows["t0_ns"] = t0_ns = ft.BEGIN_NS + window * WINDOW_NS
            rows["t1_ns"] = t1_ns = t0_ns + WINDOW_NS
            rows["cpu_ns"] = random.integers(1, 100, len(rows)) * 1_000_000
            rows["owner_kind"], rows["tgid"] = OwnerKind.PROCESS, 1000 + window % 100
            queries = rows[:SHAPES]
            queries["owner_kind"], queries["server"], queries["calls"] = OwnerKind.QUERY, 1, 9
            # The last of them is one of several whose text never comes. How many of those are kept
            # is bounded elsewhere (test_live_forgetting.py).
            queries["shape"] = [*range(1, SHAPES), 10_000 + window % 20]
            queries["latency"][:, 12] = 9
            raw += int(rows["cpu_ns"].sum()) // 10_000 + int(random.integers(1000))
            piece = ft.energy(t1_ns, raw & 0xFFFFFFFF, 0)
            yield piece + encode_block(Block.AGGREGATE, rows) + ft.flush(t1_ns)
        yield ft.end(ft.BEGIN_NS + windows * WINDOW_NS)


def test_memory_does_not_grow_over_hours(tmp_path: Path) -> None:
    config = Config(store=StoreKeys(path=str(tmp_path)), metrics=Metrics(shapes=5))
    rollups = Rollups(Store(tmp_path, "host", kept(config)), print)
    rollups.start()
    handed = take(None, limits(config), 1e9)
    now = [1e9]
    service = Service(
        *(config, Config, handed, Manager(), print, Board(), rollups), clock=lambda: now[0]
    )
    meta = Meta(host="host", servers=(Server(1, "db:1", "mysql", attach_mode="symbol"),))
    stream = Stream(Hours(BLOCKS * BLOCK_WINDOWS + 2))
    options = LiveOptions(groups=(PER_SERVER,), refresh_s=BLOCK_S)
    source = StreamSource(stream, ft.context(meta), options)
    in_use: list[int] = []
    tracemalloc.start()
    try:
        for snapshot in source.snapshots(Controls(INTERVAL_S, PER_SERVER, totals=False)):
            now[0] = 1e9 + snapshot.elapsed_s
            service.take(snapshot, meta.servers)
            if snapshot.elapsed_s >= (len(in_use) + 1) * BLOCK_S:
                gc.collect()
                in_use.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        service.close(orderly=False)
    assert handed.counters.windows == BLOCKS * BLOCK_WINDOWS + 2
    assert len(in_use) == BLOCKS
    assert in_use[2] - in_use[1] < MAX_GROWTH, in_use
