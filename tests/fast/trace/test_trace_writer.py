# SPDX-License-Identifier: Apache-2.0
"""Writing a trace: complete, cut off by kill -9 or a full disk, refused, compacted, repeatable."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
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
from qjoule.trace.meta import Server
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


def test_a_cut_stream_is_an_incomplete_trace(tmp_path: Path) -> None:
    stream = b"".join(ft.traffic(2))
    meta = write(tmp_path / "t", stream[: len(stream) // 2])
    trace = Trace(tmp_path / "t")
    assert not meta.complete
    assert not trace.complete
    assert trace.problems == []
    assert "without an end block" in (trace.meta.stopped or "")
    assert trace.table("segments").num_rows > 1500


def test_a_damaged_stream_keeps_what_came_before(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="damaged"):
        write(tmp_path / "t", b"".join(ft.traffic(2)[:-1]) + b"garbage" * 10)
    trace = Trace(tmp_path / "t")
    assert not trace.complete
    assert "damaged" in (trace.meta.stopped or "")
    assert trace.table("segments").num_rows == 4000


def test_a_tracer_that_failed_says_so(tmp_path: Path) -> None:
    stream = b"".join(ft.traffic(1)[:-1]) + ft.end(ft.BEGIN_NS, reason=19)
    assert "No such device" in (write(tmp_path / "t", stream).stopped or "")


def test_what_is_learnt_while_recording_is_in_the_meta(tmp_path: Path) -> None:
    later = Server(2, "started later")
    stream = Stream(io.BytesIO(b"".join(ft.traffic(1))))
    writer = TraceWriter(tmp_path / "t")
    record(stream, writer, ft.fingerprint, annotate=lambda meta: replace(meta, servers=(later,)))
    assert Trace(tmp_path / "t").meta.servers == (later,)


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(QjouleError, match="not empty"):
        TraceWriter(tmp_path)
    assert files(tmp_path) == {"mine.txt": b"x"}


def test_errors_name_the_directory_even_if_it_is_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QjouleError, match=tmp_path.name):
        TraceWriter(".")


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(QjouleError, match=r"file: .*with -o"):
        TraceWriter(tmp_path / "file")


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


WRITER = """
import sys, fake_tracer as ft
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import Ingest
from qjoule.stream.recording import record
from qjoule.trace.writer import TraceWriter
record(Stream(0), TraceWriter(sys.argv[1]), ft.fingerprint)
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that records its standard input into tmp_path/t."""
    path = os.pathsep.join([str(Path(__file__).parents[2] / "support"), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "t")],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )
    yield process
    process.kill()
    for pipe in (process.stdin, process.stderr):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()
    process.wait()


def test_kill_9_loses_at_most_the_last_second(
    tmp_path: Path, recorder: subprocess.Popen[bytes]
) -> None:
    assert recorder.stdin
    pieces = ft.traffic(6, 500)
    for piece in pieces[:-1]:
        recorder.stdin.write(piece)
    recorder.stdin.flush()
    # The writer must have written all but the last second of what it was sent.
    owed_ns = ft.BEGIN_NS + 5_000 * MS
    deadline = time.monotonic() + 60
    while _reached_ns(tmp_path / "t") < owed_ns:
        assert time.monotonic() < deadline, "the recorder fell behind"
        assert recorder.poll() is None
        time.sleep(0.05)
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    trace = Trace(tmp_path / "t")
    assert trace.problems == []
    assert not trace.complete
    assert trace.end_ns >= owed_ns
    assert trace.table("segments").num_rows > 2000


def _reached_ns(path: Path) -> int:
    try:
        return Trace(path).end_ns
    except QjouleError:
        return 0


def _is_root() -> bool:
    return os.geteuid() == 0


@pytest.mark.needs("mount")
@pytest.mark.skipif(not _is_root(), reason="mounting a small tmpfs needs root")
def test_a_full_disk_stops_with_one_line_and_leaves_a_readable_trace(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        with pytest.raises(QjouleError, match="no space left on device") as caught:
            write(disk / "t", b"".join(ft.traffic(20)))
        assert str(disk / "t") in str(caught.value)
        assert "\n" not in str(caught.value)
        trace = Trace(disk / "t")
        assert not trace.complete
        assert trace.problems == []
        assert trace.table("segments").num_rows > 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


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
    found = Trace(tmp_path / "trace").table("segments")
    for name in (*times, *columns):
        assert found.column(name).to_pylist() == table.column(name).to_pylist()
