# SPDX-License-Identifier: Apache-2.0
"""Blocks to tables: every column, invalid records, bounds, privacy. Also: the tracer's output
that they come in.
"""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fake_tracer as ft
from qjoule.contract import (
    BLOCK,
    BLOCK_MAGIC,
    CONTRACT_VERSION,
    LOSS_COUNT,
    MORE_COUNTERS,
    QUERY,
    WHOLE,
    Block,
    DomainKind,
    Loss,
    OwnerKind,
    TaskEvent,
)
from qjoule.errors import QjouleError
from qjoule.live.sources import StreamSource
from qjoule.snapshots import Controls
from qjoule.stream.block_reader import Losses
from qjoule.stream.blocks import MAX_PAYLOAD_BYTES, Stream, encode_block
from qjoule.stream.ingest import Ingest, Tables
from qjoule.trace.meta import Meta
from qjoule.trace.meta_file import parse_meta
from qjoule.trace.schema import TABLES

T0 = ft.BEGIN_NS
MS = ft.MS


class Collected:
    """The output of an ingest, joined by table."""

    def __init__(self, stream: bytes, meta: Meta | None = None, **options: Any) -> None:
        self.batches: list[Tables] = []
        ingest = Ingest(self.batches.append, ft.context(meta), **options)
        for frame in Stream(io.BytesIO(stream)):
            ingest.add(frame)
        self.meta = ingest.finish(complete=True)

    def rows(self, name: str) -> list[dict[str, Any]]:
        parts = [batch[name] for batch in self.batches if name in batch]
        for part in parts:
            part.validate(full=True)
            assert part.schema.equals(TABLES[name])
        return pa.concat_tables(parts).to_pylist() if parts else []


def test_meta_describes_the_machine_as_the_stream_does() -> None:
    late = {"domain": 2, "kind": DomainKind.APPEARED, "name": b"intel-rapl:1"}
    stream = ft.head(counters=0b011) + ft.block(Block.DOMAIN, late) + ft.end(T0 + 5)
    meta = Collected(stream, Meta(host="db1")).meta
    assert meta.host == "db1"
    assert (meta.begin_ns, meta.end_ns, meta.window_ns) == (T0, T0 + 5, 20 * MS)
    assert meta.start == "2023-11-14T22:13:20.000Z"
    assert meta.counters == ("cycles", "instructions")
    energy = meta.energy
    assert (energy.source, energy.grade, energy.reason) == ("replay", "simulated", "asked for")
    assert energy.appeared == ("intel-rapl:1",) and parse_meta(meta.to_json().encode()) == meta
    assert [(d.name, d.range) for d in meta.domains] == [("package", 1 << 32), ("dram", 1 << 32)]
    assert [cpu.cpu for cpu in meta.cpus] == [0, 1]


def test_segments_counters_and_validity() -> None:
    plain = ft.block(Block.SEGMENT, ft.segment(T0 + 5, T0 + 9, 7, cpu=1, valid=7, counted=7))
    query = {"query": 3, "owner_kind": OwnerKind.QUERY}
    segments = ft.records(
        Block.SEGMENT,
        [
            ft.segment(T0 + 1, T0 + 4, 8, valid=0b101, counted=13107, cpu=9, **query),
            ft.segment(T0 + 2, T0 + 4, 8, valid=0b111, counted=WHOLE),
            ft.segment(T0 + 3, T0 + 4, 8, cpu=1),
        ],
    )
    counts = np.array([10, 20, 30])
    counted = ft.block(
        Block.SEGMENT_COUNTERS, *({"segment": each, "counters": counts} for each in segments)
    )
    rows = Collected(ft.head() + plain + counted + ft.end(T0 + 10)).rows("segments")
    assert [row["t0_ns"] - T0 for row in rows] == [1, 2, 3, 5]
    first, full, lacking, last = rows
    assert (first["cycles"], first["instructions"], first["llc_misses"]) == (10, None, 30)
    assert first["counted"] == pytest.approx(0.2)
    assert (first["query"], first["package"]) == (3, None), "cpu 9 was never announced"
    assert (full["instructions"], full["counted"]) == (20, 1.0)
    assert (lacking["cycles"], lacking["counted"]) == (None, None)
    assert (last["query"], last["package"]) == (None, 0)
    assert (last["cycles"], last["counted"]) == (None, None)


def test_further_counters_are_lists_by_the_names_of_the_meta() -> None:
    plain = ft.block(Block.SEGMENT, ft.segment(T0 + 5, T0 + 9, 7))
    counting = ft.segment(T0 + 1, T0 + 4, 8, valid=0b111, counted=WHOLE)
    segments = ft.records(Block.SEGMENT, [counting, ft.segment(T0 + 2, T0 + 4, 8)])
    counted = [{"segment": each, "counters": np.array([10, 20, 30])} for each in segments]
    shares = np.zeros(MORE_COUNTERS, np.uint16)
    shares[:2] = WHOLE, WHOLE // 5
    more = np.arange(MORE_COUNTERS)
    records = ft.records(Block.SEGMENT_COUNTERS, counted)
    block = ft.block(
        Block.SEGMENT_MORE, *({"counted": r, "shares": shares, "more": more} for r in records)
    )
    meta = Meta(more_counters=("branch-misses", "instructions:u", "r01c2"))
    collected = Collected(ft.head() + plain + block + ft.end(T0 + 10), meta=meta)
    first, second, last = collected.rows("segments")
    assert first["cycles"] == 10
    assert second["cycles"] is None
    for row in (first, second):
        assert row["more"] == [0, 1, None]
        assert row["more_counted"] == pytest.approx([1, 0.2, 0])
    assert (last["more"], last["more_counted"]) == ([None] * 3, [0] * 3), "it has none"
    nameless = Collected(ft.head() + block + ft.end(T0 + 10)).rows("segments")
    assert [row["more"] for row in nameless] == [None, None]


def test_literals_stay_home_unless_asked_for() -> None:
    stream = ft.head() + ft.text(1, b"SELECT 4111") + ft.end(T0 + 1)
    assert Collected(stream).rows("statements") == []
    (statement,) = Collected(stream, Meta(literals=True)).rows("statements")
    assert statement["text"] == b"SELECT 4111"


def test_distinct_shapes_are_bounded() -> None:
    limit, hashes = 100, 10_000
    texts = b"".join(ft.text(i, b"SELECT %s" % _letters(i)) for i in range(1, hashes + 1))
    queries = np.zeros(hashes, QUERY)
    queries["shape"] = queries["query"] = np.arange(1, hashes + 1)
    queries["begin_ns"] = queries["end_ns"] = T0
    stream = ft.head() + texts + encode_block(Block.QUERY, queries) + ft.end(T0 + 1)
    collected = Collected(stream, max_shapes=limit)
    shapes = collected.rows("shapes")
    assert len(shapes) == limit + 1
    assert [row["fingerprint"] for row in shapes].count("other") == 1
    fingerprints = [row["fingerprint"] for row in collected.rows("queries")]
    assert fingerprints.count("other") == hashes - limit
    assert len(set(fingerprints)) == limit + 1


def _letters(number: int) -> bytes:
    """A number in letters: the stand-in normaliser would remove digits."""
    return bytes(ord("a") + int(digit) for digit in str(number))


def test_batches_follow_the_stream_and_do_not_overlap_in_time() -> None:
    collected = Collected(b"".join(ft.traffic(3)), batch_ns=500_000_000)
    batches = [b for b in collected.batches if "segments" in b]
    assert len(batches) >= 5
    spans = [batch["segments"].column("t0_ns").to_numpy() for batch in batches]
    for before, after in pairwise(spans):
        assert before.max() < after.min()
    for span in spans:
        assert bool(np.all(span[1:] >= span[:-1]))
        assert span[-1] - span[0] < 1_000_000_000


def test_senseless_records_are_counted_not_kept() -> None:
    times = (("t1_ns", T0 - 1), ("t1_ns", 1 << 63))
    wrong = (*times, ("pid", 1 << 22), ("owner_kind", 6), ("owner_kind", OwnerKind.IDLE))
    good = ft.segment(T0, T0 + 1, 5)
    segments = (good, *({**good, field: value} for field, value in wrong))
    stream = ft.head() + ft.block(Block.SEGMENT, *segments)
    stream += ft.task(T0, 5, TaskEvent.ALIVE) + ft.task(T0, 1 << 23, TaskEvent.FORK)
    stream += ft.block(Block.SESSION, {"session": 1, "event": 9})
    for die in (2**16 - 2, 2**32 - 1, 2**16 - 1, 2**16, 2**32 - 2):  # three are none
        stream += ft.block(Block.DOMAIN, {"domain": die % 1000, "die": die, "name": b"core"})
    stream += ft.block(Block.ENERGY, {"t_ns": T0, "raw": 1, "domain": 7})  # never announced
    collected = Collected(stream + ft.end(T0 + 9))
    assert len(collected.rows("segments")) == 1
    assert collected.meta.loss == {"invalid": 11}
    assert (collected.rows("loss")[-1]["cause"], collected.rows("loss")[-1]["count"]) == (
        "invalid",
        11,
    )
    assert [domain.die for domain in collected.meta.domains if domain.name == "core"] == [
        None,
        2**16 - 2,
    ]


# --------------------------------------------------------------------------------------------------
#
# The tracer's output: framing, truncated streams, garbage, the machine it announces, losses.


class Trickle(io.RawIOBase):
    """A pipe that gives a few bytes at a time, as a slow tracer would."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = io.BytesIO(data), step

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, self._step))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_partial_reads_give_the_same_blocks(step: int) -> None:
    data = b"".join(ft.traffic(0.06, 300))
    at_once, pieces = list(Stream(io.BytesIO(data))), list(Stream(Trickle(data, step)))
    assert [f.kind for f in at_once] == [f.kind for f in pieces]
    for a, b in zip(at_once, pieces, strict=True):
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


def stream_of(*blocks: bytes) -> Stream:
    return Stream(io.BytesIO(b"".join(blocks)))


def test_sums_of_loss_only_grow() -> None:
    losses = Losses()
    first = losses.add(
        np.array([(T0, 4, 5 * MS, 0, Loss.SEGMENT), (T0, 1, 0, 1, Loss.TEXT)], LOSS_COUNT)
    )
    # An older record of the same CPU, read from another ring.
    again = losses.add(np.array([(T0 - 1, 3, 4 * MS, 0, Loss.SEGMENT)], LOSS_COUNT))
    more = losses.add(np.array([(T0 + 1, 6, 7 * MS, 0, Loss.SEGMENT)], LOSS_COUNT))
    assert (first, again, more) == ([(T0, 0, 5 * MS)], [], [(T0 + 1, 0, 2 * MS)])
    assert losses.counts() == {"segment": 6, "text": 1}
    assert losses.lost_ns == 7 * MS


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
