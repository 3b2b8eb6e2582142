# SPDX-License-Identifier: Apache-2.0
"""A recording that is captured first and converted later has the same tables as one that is not."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from captured_trace import CANARY, META, QUERIES, captured_trace, eventful
from qjoule.errors import QjouleError
from qjoule.servers.shapes import fingerprint
from qjoule.spool import convert as module
from qjoule.spool.convert import convert
from qjoule.spool.files import CONVERTING, FOLDER, names_of, spool_of
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter


def _tables(trace: Path) -> dict[str, pa.Table]:
    opened = Trace(trace)
    assert not opened.problems
    return {name: opened.table(name) for name in TABLES}


@pytest.fixture(scope="module")
def pieces() -> list[bytes]:
    return eventful()


@pytest.fixture(scope="module")
def direct(pieces: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace that is written while the stream is read."""
    trace = tmp_path_factory.mktemp("direct") / "trace"
    record(Stream(io.BytesIO(b"".join(pieces))), TraceWriter(trace), fingerprint, META)
    return trace


@pytest.fixture
def captured(pieces: list[bytes], tmp_path: Path) -> Path:
    trace = tmp_path / "trace"
    captured_trace(trace, pieces)
    return trace


@pytest.mark.parametrize("compress", [False, True])
def test_tables_are_the_same_either_way(
    pieces: list[bytes], direct: Path, tmp_path: Path, compress: bool
) -> None:
    trace = tmp_path / "trace"
    captured_trace(trace, pieces, compress=compress)
    convert(trace)
    expected, found = _tables(direct), _tables(trace)
    for name in TABLES:
        assert found[name].num_rows == expected[name].num_rows, name
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    assert {name for name in TABLES if expected[name].num_rows} >= {
        *("queries", "segments", "energy", "owners", "sessions", "shapes", "loss", "transactions"),
    }
    texts = found["transactions"]["text"].to_pylist()
    assert any(text.startswith("(began before tracing)") for text in texts)
    either = [json.loads((one / "meta.json").read_text()) for one in (direct, trace)]
    assert either[0] == either[1]
    files = [sorted(path.name for path in one.iterdir()) for one in (direct, trace)]
    assert files[0] == files[1]


def test_no_byte_of_a_literal_or_a_password_is_on_the_disk(captured: Path) -> None:
    for path in captured.rglob("*"):
        assert path.is_dir() or CANARY not in path.read_bytes(), path
    convert(captured, keep=True)
    for path in captured.rglob("*"):
        assert path.is_dir() or CANARY not in path.read_bytes(), path


def test_literals_are_kept_where_the_user_asks_for_them(
    pieces: list[bytes], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    captured_trace(trace, pieces, meta=Meta(literals=True, servers=META.servers))
    convert(trace)
    kept = b"".join(_tables(trace)["statements"]["text"].to_pylist())
    assert CANARY in kept


def test_a_recording_that_is_not_converted_says_what_it_holds(captured: Path) -> None:
    meta = json.loads((captured / "meta.json").read_text())
    assert meta["complete"] is False
    assert meta["captured"]["bytes"] == spool_of(captured).stat().st_size
    assert meta["captured"]["queries"] == QUERIES
    assert meta["loss"] == {"segment": 3}


def test_a_recording_that_was_cut_off_keeps_all_until_the_last_whole_frame(
    captured: Path,
) -> None:
    spool = spool_of(captured)
    os.truncate(spool, spool.stat().st_size * 2 // 3)
    names = names_of(captured)
    os.truncate(names, names.stat().st_size - 10)
    meta = convert(captured).meta
    assert not meta.complete
    assert meta.stopped == "parts of the recording are damaged"
    assert 0.6 * QUERIES < meta.rows["queries"] < 0.7 * QUERIES
    assert Trace(captured).table("queries")["fingerprint"].null_count == 0


def test_a_spool_without_its_names_has_queries_without_texts(captured: Path) -> None:
    names_of(captured).unlink()
    meta = convert(captured).meta
    assert meta.rows["queries"] == QUERIES + 1, "with the child"
    assert Trace(captured).table("queries")["fingerprint"].null_count == meta.rows["queries"]
    assert (meta.complete, meta.stopped) == (False, "the names of the recording are missing")


def test_a_damaged_frame_is_counted_as_loss(captured: Path) -> None:
    spool = spool_of(captured)
    data = bytearray(spool.read_bytes())
    data[len(data) // 2] ^= 1
    spool.write_bytes(data)
    meta = convert(captured).meta
    assert meta.loss["spool"] == 1
    assert not meta.complete


def test_a_second_conversion_has_nothing_to_do(captured: Path) -> None:
    convert(captured)
    before = (captured / "meta.json").read_bytes()
    with pytest.raises(QjouleError, match="nothing to convert"):
        convert(captured)
    assert (captured / "meta.json").read_bytes() == before


def test_two_conversions_at_once_do_not_meet(captured: Path) -> None:
    with module._alone(captured), pytest.raises(QjouleError, match="by another process"):
        convert(captured)


@pytest.mark.parametrize("moment", [0, 3, 40, "tables", "meta"])
def test_a_conversion_that_is_killed_can_be_begun_anew(
    captured: Path, direct: Path, monkeypatch: pytest.MonkeyPatch, moment: int | str
) -> None:
    """At no moment is anything of the capture gone that the tables do not have."""
    before = spool_of(captured).read_bytes()
    steps = []

    def killed(*_words: object) -> None:
        steps.append(1)
        if len(steps) > (moment if isinstance(moment, int) else 10**9):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if moment == "tables":
            patch.setattr(module, "replace_meta", _killed)
        if moment == "meta":
            patch.setattr("qjoule.spool.convert.shutil.rmtree", _killed)
        with pytest.raises(KeyboardInterrupt):
            convert(captured, progress=killed)
    assert spool_of(captured).read_bytes() == before
    convert(captured)
    expected, found = _tables(direct), _tables(captured)
    assert {n: t.num_rows for n, t in found.items()} == {n: t.num_rows for n, t in expected.items()}
    assert not (captured / FOLDER).exists()
    assert not (captured / CONVERTING).exists()


def _killed(*_args: object, **_kwargs: object) -> None:
    raise KeyboardInterrupt


def test_a_capture_can_be_moved(captured: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.move(captured, moved)
    assert convert(moved).meta.complete


def test_a_full_disk_leaves_the_capture(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spool_of(captured).read_bytes()

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("qjoule.trace.writer.write_whole", full)
        with pytest.raises(QjouleError, match=r"(?i)no space left"):
            convert(captured)
    assert spool_of(captured).read_bytes() == before
    assert convert(captured).meta.complete


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_meta_json_is_an_error_and_the_capture_stays(
    captured: Path, content: bytes
) -> None:
    (captured / "meta.json").write_bytes(content)
    before = spool_of(captured).read_bytes()
    with pytest.raises(QjouleError, match=r"meta\.json: it .*; the recording is as it was"):
        convert(captured)
    assert spool_of(captured).read_bytes() == before
