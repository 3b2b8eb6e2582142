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
from qjoule.stream.announced import read_announced
from qjoule.stream.blocks import MAX_PAYLOAD_BYTES, Records, Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.losses import Losses, known_causes
from qjoule.trace.meta import Meta, Server


class Trickle(io.RawIOBase):
    """A pipe that gives a few bytes at a time, as a slow tracer would."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = io.BytesIO(data), step

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, self._step))


def small_stream() -> bytes:
    return b"".join(ft.traffic(0.06, 300))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_partial_reads_give_the_same_blocks(step: int) -> None:
    whole = list(Stream(io.BytesIO(small_stream())))
    pieces = list(Stream(Trickle(small_stream(), step)))
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


def test_text_is_exactly_its_bytes() -> None:
    statement = b"SELECT '\x00\xff\x1b[2J'"
    frames = list(Stream(io.BytesIO(ft.head() + ft.text(7, statement) + ft.end(1))))
    assert frames[3].kind is Block.TEXT
    assert frames[3].text == statement
    assert frames[3].records["shape"][0] == 7


def header(kind: int, count: int, payload_bytes: int, magic: int = BLOCK_MAGIC) -> bytes:
    return np.array([(magic, kind, count, payload_bytes, 0)], BLOCK).tobytes()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (header(5, 1, 40, magic=7) + bytes(40), "no block begins"),
        (header(99, 0, 0), "unknown block kind 99"),
        (header(5, 1 << 31, MAX_PAYLOAD_BYTES + 8), "too large"),
        (header(5, 3, 40) + bytes(40), "3 SEGMENT records do not make 40 bytes"),
        (header(8, 1, 8) + bytes(8), "TEXT block without its record"),
        (header(15, 0, 0), "0 records in a END block"),
        (header(1, 1, 16) + bytes([CONTRACT_VERSION]) + bytes(15), "wrong size"),
    ],
)
def test_damage_is_told_in_one_line(damage: bytes, says: str) -> None:
    with pytest.raises(QjouleError, match=says) as caught:
        list(Stream(io.BytesIO(ft.head() + damage)))
    assert "\n" not in str(caught.value)


def test_text_longer_than_its_block_is_refused() -> None:
    record = ft.records(Block.TEXT, [{"text_bytes": 4_000_000_000}])
    damage = header(Block.TEXT, 1, record.nbytes) + record.tobytes()
    with pytest.raises(QjouleError, match="shorter than its text"):
        list(Stream(io.BytesIO(ft.head() + damage)))


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


def test_a_tracer_that_says_nothing_is_an_error() -> None:
    with pytest.raises(QjouleError, match="ended before it began"):
        read_announced(iter(stream_of()), Meta())
