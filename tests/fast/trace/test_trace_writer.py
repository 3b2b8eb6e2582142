# SPDX-License-Identifier: Apache-2.0
"""Writing a trace: complete, cut off by kill -9 or for lack of room, merged, repeatable."""

from __future__ import annotations

import io
import json
import resource
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import fake_tracer as ft
from qjoule.errors import QjouleError
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.recording import record
from qjoule.trace import Meta, Trace
from qjoule.trace import compact as compaction
from qjoule.trace.parts import list_parts
from qjoule.trace.schema import conform
from qjoule.trace.writer import TraceWriter

MS = ft.MS


def write(path: Path, stream: bytes) -> Meta:
    return record(Stream(io.BytesIO(stream)), TraceWriter(path), ft.fingerprint, Meta(host="h"))


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
    assert {part.name for part in (tmp_path / "t" / "segments").iterdir()} == {
        "part-000000-000003.parquet"
    }


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


def test_what_is_there_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QjouleError, match=rf"{tmp_path.name} is not empty"):
        TraceWriter(".")
    with pytest.raises(QjouleError, match=r"mine.txt: .*with -o"):
        TraceWriter(tmp_path / "mine.txt")
    assert files(tmp_path) == {"mine.txt": b"x"}


def test_meta_is_incomplete_from_the_first_moment(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t", Meta(complete=False, host="h"))
    assert json.loads((tmp_path / "t/meta.json").read_bytes())["complete"] is False
    writer.write_meta(Meta(complete=True))
    assert json.loads((tmp_path / "t/meta.json").read_bytes())["complete"] is False
    writer.close(Meta(complete=True))
    assert json.loads((tmp_path / "t/meta.json").read_bytes())["complete"] is True


def test_small_parts_are_merged_while_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qjoule.trace.writer.MERGE_EVERY", 4)
    writer = TraceWriter(tmp_path / "t")
    rows = 0
    for batch in _batches(8):
        writer.write(batch)
        rows += batch["segments"].num_rows
        writer._batches.join()
    assert len(list_parts(tmp_path / "t", "segments")) < 10
    assert Trace(tmp_path / "t").table("segments").num_rows == rows
    writer.close(Meta(complete=True))
    assert Trace(tmp_path / "t").table("segments").num_rows == rows


def _batches(seconds: float) -> list[dict[str, pa.Table]]:
    batches: list[dict[str, pa.Table]] = []
    ingest = Ingest(lambda tables: batches.append(dict(tables)), ft.fingerprint)
    for frame in Stream(io.BytesIO(b"".join(ft.traffic(seconds, 200)))):
        ingest.add(frame)
    ingest.flush(everything=True)
    return [batch for batch in batches if "segments" in batch]


def test_a_merge_cut_before_the_old_parts_go_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qjoule.trace.writer.merge_all", lambda *_: None)
    write(tmp_path / "t", b"".join(ft.traffic(3)))
    monkeypatch.undo()
    before = Trace(tmp_path / "t").table("segments")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    compaction.merge_all(tmp_path / "t", "segments")
    monkeypatch.undo()
    assert len(list((tmp_path / "t/segments").iterdir())) > 2
    trace = Trace(tmp_path / "t")
    assert trace.problems == []
    assert trace.table("segments").equals(before)


def test_the_directory_is_a_readable_trace_at_any_moment(tmp_path: Path) -> None:
    """So kill -9 costs what was not written yet, a second at most."""
    writer = TraceWriter(tmp_path / "t")
    ingest = Ingest(writer.write, ft.fingerprint)
    for frame in Stream(io.BytesIO(b"".join(ft.traffic(6, 500)[:-1]))):
        ingest.add(frame)
    writer._batches.join()
    trace = Trace(tmp_path / "t")
    assert trace.problems == []
    assert not trace.complete
    assert trace.end_ns >= ft.BEGIN_NS + 5_000 * ft.MS
    assert trace.table("segments").num_rows > 2000
    writer.close(Meta())


def test_a_file_size_limit_is_told_like_a_full_disk(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(QjouleError, match="file too large"):
            write(tmp_path / "t", b"".join(ft.traffic(4)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    trace = Trace(tmp_path / "t")
    assert not trace.complete
    assert trace.problems == []
    assert not any(name.endswith(".tmp") for name in files(tmp_path / "t"))


def test_ids_and_counts_of_any_size_survive(tmp_path: Path) -> None:
    extremes = [0, 2**64 - 1, 1, 2**63, 2**63 - 1, None, 2**64 - 1, 0] * 40
    rows = len(extremes)
    columns = {name: pa.array(extremes, pa.uint64()) for name in ("query", "cycles", "llc_misses")}
    times = {"t0_ns": [-(2**63)] * rows, "t1_ns": [2**63 - 1] * rows}
    table = pa.table({**times, **columns, "cpu": [0] * rows, "owner": [1] * rows})
    writer = TraceWriter(tmp_path / "trace")
    writer.write({"segments": conform("segments", table)})
    writer.close(Meta())
    read = Trace(tmp_path / "trace").table("segments")
    for name in (*times, *columns):
        assert read.column(name).to_pylist() == table.column(name).to_pylist()
