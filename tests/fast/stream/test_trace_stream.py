# SPDX-License-Identifier: Apache-2.0
"""The tracer's output: framing, truncated streams, garbage, the machine it announces, losses."""

from __future__ import annotations

import io

import numpy as np
import pytest

import fake_tracer as ft
from qjoule.contract import BLOCK, BLOCK_MAGIC, CONTRACT_VERSION, LOSS_COUNT, Block, Loss
from qjoule.errors import QjouleError
from qjoule.live.source import StreamSource
from qjoule.snapshots import Controls
from qjoule.stream.blocks import MAX_PAYLOAD_BYTES, Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.losses import Losses


class Trickle(io.RawIOBase):
    """A pipe that gives a few bytes at a time, as a slow tracer would."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = io.BytesIO(data), step

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, self._step))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_partial_reads_give_the_same_blocks(step: int) -> None:
    data = b"".join(ft.traffic(0.06, 300))
    whole, pieces = list(Stream(io.BytesIO(data))), list(Stream(Trickle(data, step)))
    assert [f.kind for f in whole] == [f.kind for f in pieces]
    for a, b in zip(whole, pieces, strict=True):
        assert a.records.tobytes() == b.records.tobytes()
        assert (a.text, a.t_ns) == (b.text, b.t_ns)


def test_every_truncation_ends_early_and_never_fails() -> None:
    data = ft.head() + ft.text(1, b"SELECT 1") + ft.flush(5) + ft.end(9)
    for size in range(len(data)):
        stream = Stream(io.BytesIO(data[:size]))
        list(stream)
        assert not stream.complete
        assert stream.ended_early is not None


def header(kind: int, count: int, payload_bytes: int, magic: int = BLOCK_MAGIC) -> bytes:
    return np.array([(magic, kind, count, payload_bytes, 0)], BLOCK).tobytes()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (header(5, 1, 40, magic=7) + bytes(40), "no block begins"),
        (header(99, 0, 0), "unknown block kind 99"),
        (header(5, 1 << 31, MAX_PAYLOAD_BYTES + 8), "too large"),
        (header(8, 1, 8) + bytes(8), "TEXT block without its record"),
        (header(1, 1, 16) + bytes([CONTRACT_VERSION]) + bytes(15), "wrong size"),
    ],
)
def test_damage_is_told_in_one_line(damage: bytes, says: str) -> None:
    with pytest.raises(QjouleError, match=says) as caught:
        list(Stream(io.BytesIO(ft.head() + damage)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "advice"),
    [(CONTRACT_VERSION + 1, "upgrade qjoule"), (CONTRACT_VERSION - 1, "rebuild the tracer")],
)
def test_another_contract_version_or_no_hello_is_refused(version: int, advice: str) -> None:
    with pytest.raises(QjouleError, match=advice):
        list(Stream(io.BytesIO(ft.head(version=version))))
    with pytest.raises(QjouleError, match="hello"):
        list(Stream(io.BytesIO(ft.flush(1))))


T0, MS = ft.BEGIN_NS, ft.MS


def stream_of(*blocks: bytes) -> Stream:
    return Stream(io.BytesIO(b"".join(blocks)))


def test_sums_of_loss_only_grow() -> None:
    seen = Losses()
    first = seen.add(
        np.array([(T0, 4, 5 * MS, 0, Loss.SEGMENT), (T0, 1, 0, 1, Loss.TEXT)], LOSS_COUNT)
    )
    # An older record of the same CPU, read from another ring.
    again = seen.add(np.array([(T0 - 1, 3, 4 * MS, 0, Loss.SEGMENT)], LOSS_COUNT))
    more = seen.add(np.array([(T0 + 1, 6, 7 * MS, 0, Loss.SEGMENT)], LOSS_COUNT))
    assert (first, again, more) == ([(T0, 0, 5 * MS)], [], [(T0 + 1, 0, 2 * MS)])
    assert seen.counts() == {"segment": 6, "text": 1}
    assert seen.lost_ns == 7 * MS


def test_a_cause_that_the_contract_lacks_is_an_invalid_record() -> None:
    row = {"t_ns": T0, "count": 9, "cause": len(Loss)}
    blocks = ft.head(), ft.energy(T0, 1000, 0), ft.block(Block.LOSS, row)
    ends = ft.energy(T0 + 100 * MS, 2000, 0), ft.end(T0 + 100 * MS)
    ingest = Ingest(lambda _tables: None, ft.context())
    for frame in stream_of(*blocks, *ends):
        ingest.add(frame)
    live = StreamSource(stream_of(*blocks, *ends), ft.context())
    last = list(live.snapshots(Controls(1.0)))[-1].total
    assert ingest.finish(complete=True).loss == last.trace.loss == {"invalid": 1}
