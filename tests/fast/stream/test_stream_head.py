# SPDX-License-Identifier: Apache-2.0
"""A stream's head and losses: read by the same code for recordings and the live view."""

from __future__ import annotations

import io

import numpy as np
import pytest

import fake_tracer as ft
from qjoule.contract import LOSS_COUNT, TRACER_CPU, Block, Loss
from qjoule.errors import QjouleError
from qjoule.live.source import StreamSource
from qjoule.snapshots import Controls
from qjoule.stream.announced import read_announced
from qjoule.stream.blocks import Records, Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.losses import Losses, known_causes
from qjoule.trace.meta import Meta, Server

T0, MS = ft.BEGIN_NS, ft.MS
UNKNOWN_CAUSE = len(Loss)


def stream_of(*blocks: bytes) -> Stream:
    return Stream(io.BytesIO(b"".join(blocks)))


def test_a_recording_and_the_live_view_know_the_same_machine() -> None:
    known = Meta(host="db1", servers=(Server(1, "mariadb", rung="symbol"),))
    ingest = Ingest(lambda _tables: None, ft.fingerprint, known)
    for frame in stream_of(ft.head(counters=0b011)):
        ingest.add(frame)
    announced, first = read_announced(iter(stream_of(ft.head(counters=0b011))), known)
    assert announced.meta == ingest.meta
    assert announced.meta.host == "db1"
    assert [announced.domains[number].name for number in (0, 1)] == ["package", "dram"]
    assert first is None


def test_the_first_block_after_the_announcements_is_handed_on() -> None:
    frames = iter(stream_of(ft.head(), ft.energy(T0, 1000, 0), ft.end(T0)))
    _, first = read_announced(frames, Meta())
    assert first is not None
    assert first.kind is Block.ENERGY
    assert [frame.kind for frame in frames] == [Block.END]


def test_a_tracer_that_says_nothing_is_an_error() -> None:
    with pytest.raises(QjouleError, match="ended before it began"):
        read_announced(iter(stream_of()), Meta())


def losses(*rows: tuple[int, int, int, int, int]) -> Records:
    return np.array(list(rows), LOSS_COUNT)


def test_sums_of_loss_only_grow() -> None:
    seen = Losses()
    first = seen.add(losses((T0, 4, 5 * MS, 0, Loss.SEGMENT), (T0, 1, 0, 1, Loss.TEXT)))
    # An older record of the same CPU, read from another ring.
    again = seen.add(losses((T0 - 1, 3, 4 * MS, 0, Loss.SEGMENT)))
    more = seen.add(losses((T0 + 1, 6, 7 * MS, 0, Loss.SEGMENT)))
    assert (first, again, more) == ([(T0, 0, 5 * MS)], [], [(T0 + 1, 0, 2 * MS)])
    assert seen.counts() == {"segment": 6, "text": 1}
    assert seen.lost_ns == 7 * MS


def test_the_tracers_own_loss_has_no_cpu() -> None:
    seen = Losses()
    assert seen.add(losses((T0, 2, 3 * MS, TRACER_CPU, Loss.ENERGY))) == []
    assert seen.counts() == {"energy": 2}


def test_a_cause_that_the_contract_lacks_is_an_invalid_record() -> None:
    row = {"t_ns": T0, "count": 9, "cause": UNKNOWN_CAUSE}
    assert not known_causes(losses((T0, 9, 0, 0, UNKNOWN_CAUSE))).any()
    blocks = ft.head(), ft.energy(T0, 1000, 0), ft.block(Block.LOSS, row)
    ends = ft.energy(T0 + 100 * MS, 2000, 0), ft.end(T0 + 100 * MS)
    ingest = Ingest(lambda _tables: None, ft.fingerprint)
    for frame in stream_of(*blocks, *ends):
        ingest.add(frame)
    live = StreamSource(stream_of(*blocks, *ends), ft.fingerprint, Meta())
    last = list(live.snapshots(Controls(1.0)))[-1].total
    assert ingest.finish(complete=True).loss == last.trace.loss == {"invalid": 1}
