# SPDX-License-Identifier: Apache-2.0
"""Reading a trace: order, memory, damage, versions; writing one: cut off, merged, repeatable."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fake_tracer as ft
from qjoule.errors import QjouleError
from qjoule.lazy_import import pq
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.record import record
from qjoule.trace import Meta, Trace
from qjoule.trace.merging import merge_all
from qjoule.trace.schema import MORE, TABLES
from qjoule.trace.vocabulary import FORMAT_VERSION, VERSION_KEY
from qjoule.trace.writer import TraceWriter


def write(path: Path, stream: bytes) -> Meta:
    return record(Stream(io.BytesIO(stream)), TraceWriter(path), ft.context(Meta(host="h")))


@pytest.fixture
def parted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete trace whose parts were not merged."""
    monkeypatch.setattr("qjoule.trace.writer.merge_all", lambda *_: None)
    write(tmp_path / "t", b"".join(ft.traffic(10, 500)))
    return tmp_path / "t"


def segments(path: Path, t0_ns: list[int], **columns: list[int | None]) -> None:
    size = len(t0_ns)
    table = {"t0_ns": t0_ns, "t1_ns": [t + 1 for t in t0_ns], "cpu": [0] * size}
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table(table | {"owner": list(range(size))} | columns),
        path / "segments.parquet",
        row_group_size=3,
    )


def test_segments_in_any_order_are_read_in_order_of_time(tmp_path: Path) -> None:
    times = np.random.default_rng(1).permutation(50).tolist()
    segments(tmp_path, times)
    batches = list(Trace(tmp_path).iter_segments(batch_rows=7))
    assert all(0 < batch.num_rows <= 7 for batch in batches)
    table = pa.concat_tables(batches)
    assert table.schema.equals(TABLES["segments"])
    assert table.column("t0_ns").to_pylist() == list(range(50))
    assert [times[owner] for owner in table.column("owner").to_pylist()] == list(range(50))


@pytest.mark.parametrize(
    "meta",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"format": "other"}', b'{"format": "qjoule.trace"}',
     b'{"format": "qjoule.trace", "version": 1, "cpus": [{"cpu": "x"}]}',
     b"[" * 100_000],
)  # fmt: skip
def test_a_trace_without_a_readable_meta_is_incomplete_but_read(
    tmp_path: Path, meta: bytes
) -> None:
    segments(tmp_path, [5, 9])
    (tmp_path / "meta.json").write_bytes(meta)
    trace = Trace(tmp_path)
    assert not trace.complete
    assert len(trace.problems) == 1
    assert trace.problems[0].startswith("meta.json")
    assert (trace.begin_ns, trace.end_ns) == (5, 10)


@pytest.mark.parametrize("name", ["meta.json", "segments.parquet"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, name: str, kind: str) -> None:
    segments(tmp_path, [1])
    (tmp_path / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(QjouleError, match=r"no regular file|not a trace"):
        Trace(tmp_path)


def test_one_large_text_in_many_rows_is_not_written_out(tmp_path: Path) -> None:
    """A file of 50 KB would take 2 GB."""
    segments(tmp_path, [1])
    rows = {"shape": np.arange(2000), "text": ["x" * (1 << 20)] * 2000}
    rows |= {"fingerprint": ["f"] * 2000}
    pq.write_table(pa.table(rows), tmp_path / "shapes.parquet", compression="zstd")
    trace = Trace(tmp_path)
    assert (tmp_path / "shapes.parquet").stat().st_size < 100_000
    assert trace.table("shapes").num_rows == 0
    assert any("MiB of text" in problem for problem in trace.problems)


def test_a_row_group_of_too_many_rows_is_skipped(tmp_path: Path) -> None:
    segments(tmp_path, [1])
    table = {name: np.zeros(10_000_001, np.int64) for name in ("t0_ns", "t1_ns", "cpu", "owner")}
    pq.write_table(pa.table(table), tmp_path / "segments.parquet", row_group_size=1 << 26)
    trace = Trace(tmp_path)
    assert trace.problems[-1] == "segments.parquet is damaged or cut off; skipped"


def test_a_newer_format_of_a_trace_or_of_a_part_is_refused(tmp_path: Path) -> None:
    segments(tmp_path, [1])
    (tmp_path / "meta.json").write_text(json.dumps({"format": "qjoule.trace", "version": 99}))
    with pytest.raises(QjouleError, match=r"version 99.*upgrade"):
        Trace(tmp_path)
    (tmp_path / "meta.json").unlink()
    table = pq.read_table(tmp_path / "segments.parquet")
    newer = table.replace_schema_metadata({VERSION_KEY: str(FORMAT_VERSION + 1).encode()})
    pq.write_table(newer, tmp_path / "segments.parquet")
    with pytest.raises(QjouleError, match="upgrade"):
        Trace(tmp_path)


def test_a_missing_part_is_counted(parted: Path) -> None:
    rows = Trace(parted).table("segments").num_rows
    (parted / "segments/part-000002.parquet").unlink()
    trace = Trace(parted)
    assert any("1 part(s) are missing" in problem for problem in trace.problems)
    assert any("rows can be read of" in problem for problem in trace.problems)
    assert not trace.complete
    assert 0 < trace.table("segments").num_rows < rows


def test_a_flipped_byte_in_the_data_is_found_by_its_checksum(parted: Path) -> None:
    part = parted / "segments/part-000001.parquet"
    data = bytearray(part.read_bytes())
    data[200] ^= 0xFF
    part.write_bytes(data)
    trace = Trace(parted)
    assert trace.problems == [], "the footer is whole: damage shows when the data is read"
    rows = sum(batch.num_rows for batch in trace.iter_segments())
    assert rows < trace.meta.rows["segments"]
    assert any("damaged in row group 0" in problem for problem in trace.problems)
    assert not trace.complete


def test_missing_and_null_required_columns_are_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"owner": [1]}), tmp_path / "owners.parquet")
    segments(tmp_path, [1], cpu=[None])
    trace = Trace(tmp_path)
    assert trace.table("owners").num_rows == trace.table("segments").num_rows == 0
    assert any("column kind is missing" in problem for problem in trace.problems)
    assert any("column cpu" in problem for problem in trace.problems)


def test_loss_is_the_sum_of_each_cpus_latest(tmp_path: Path) -> None:
    columns = {"t_ns": [1, 2, 2, 3], "cpu": [0, 0, 1, None], "count": [1, 4, 2, 9]}
    columns["lost_ns"] = [10, 40, 20, 0]
    causes = ["segment", "segment", "segment", "pump"]
    pq.write_table(pa.table(columns | {"cause": causes}), tmp_path / "loss.parquet")
    trace = Trace(tmp_path)
    assert trace.loss == {"pump": 9, "segment": 6}
    assert trace.lost_cpu_ns == 60


def test_long_traces_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """A trace of 3 million segments never needs more memory than a few row groups."""
    group, groups = 1 << 16, 48
    schema = pa.schema([(name, pa.int64()) for name in ("t0_ns", "t1_ns", "cpu", "owner")])
    with pq.ParquetWriter(tmp_path / "segments.parquet", schema) as writer:
        for index in range(groups):
            t0_ns = np.arange(index * group, (index + 1) * group)
            columns = [t0_ns, t0_ns + 1, t0_ns % 4, t0_ns % 100]
            writer.write_table(pa.table(columns, schema=schema))
    trace = Trace(tmp_path)
    peak, rows = 0, 0
    tracemalloc.start()
    for batch in trace.iter_segments(batch_rows=10_000):
        rows += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert rows == group * groups
    fixed = [field.type for field in TABLES["segments"] if field.name not in MORE]
    total_bytes = rows * sum(kind.bit_width // 8 for kind in fixed)
    assert peak < total_bytes / 4


# ---- writing -------------------------------------------------------------------------------------


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_whole_trace(tmp_path: Path) -> None:
    meta = write(tmp_path / "t", b"".join(ft.traffic(8)))
    trace = Trace(tmp_path / "t")
    assert trace.problems == []
    assert trace.complete
    assert trace.meta == meta
    assert trace.meta.rows["segments"] == trace.table("segments").num_rows == 16000
    assert trace.table("queries").num_rows == 16000
    assert trace.table("energy").num_rows == 800


def test_same_stream_same_bytes(tmp_path: Path) -> None:
    stream = b"".join(ft.traffic(2, seed=5))
    write(tmp_path / "a", stream)
    write(tmp_path / "b", stream)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_stream_that_ends_early_is_an_incomplete_trace(tmp_path: Path) -> None:
    stream = b"".join(ft.traffic(2)[:-1])
    write(tmp_path / "cut", stream[: len(stream) // 2])
    with pytest.raises(QjouleError, match="damaged"):
        write(tmp_path / "damaged", stream + b"garbage" * 10)
    write(tmp_path / "failed", stream + ft.end(ft.BEGIN_NS, reason=19))
    for name, rows, stopped in (
        ("cut", 1500, "without an end block"),
        ("damaged", 4000, "damaged"),
        ("failed", 4000, "No such device"),
    ):
        trace = Trace(tmp_path / name)
        assert not trace.complete
        assert trace.problems == []
        assert stopped in (trace.meta.stopped or "")
        assert trace.table("segments").num_rows >= rows


def test_a_merge_cut_before_the_old_parts_go_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qjoule.trace.writer.merge_all", lambda *_: None)
    write(tmp_path / "t", b"".join(ft.traffic(3)))
    monkeypatch.undo()
    before = Trace(tmp_path / "t").table("segments")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    merge_all(tmp_path / "t", "segments")
    monkeypatch.undo()
    assert len(list((tmp_path / "t/segments").iterdir())) > 2
    trace = Trace(tmp_path / "t")
    assert trace.problems == []
    assert trace.table("segments").equals(before)


def test_the_directory_is_a_readable_trace_at_any_moment(tmp_path: Path) -> None:
    """Even kill -9 costs only what was not written yet, a second at most."""
    writer = TraceWriter(tmp_path / "t")
    ingest = Ingest(writer.write, ft.context())
    for frame in Stream(io.BytesIO(b"".join(ft.traffic(6, 500)[:-1]))):
        ingest.add(frame)
    writer._batches.join()
    trace = Trace(tmp_path / "t")
    assert trace.problems == []
    assert not trace.complete
    assert trace.end_ns >= ft.BEGIN_NS + 5_000 * ft.MS
    assert trace.table("segments").num_rows > 2000
    writer.close(Meta())
