# SPDX-License-Identifier: Apache-2.0
"""A recording that is captured first and converted later has the same tables as one that is not."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import fake_tracer as ft
from qjoule.contract import Block, Loss, QueryFlag, SessionEvent, TaskEvent
from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.spool import convert as module
from qjoule.spool.capture import capture
from qjoule.spool.convert import convert
from qjoule.spool.files import CONVERTING, FOLDER, names_of, spool_of
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES
from qjoule.trace.writer import TraceWriter
from tracer_parts.spool_library import tracer_stream

CANARY = b"canary-4711"
_FLAGS = 0x200 | 0x8 | 0x8000  # PROTOCOL_41, CONNECT_WITH_DB, SECURE_CONNECTION
_PASSWORD = b"\x14" + CANARY.ljust(20, b"\1")
LOGIN = struct.pack("<IIB23x", _FLAGS, 1 << 24, 45) + b"alice\0" + _PASSWORD + b"shop\0"
QUERIES = 400 * 4.5 + 2  #: in the spool of `_eventful`
META = Meta(host="here", servers=(Server(1, "shop", "mysql"),))


def _session(event: SessionEvent, t_ns: int, text: bytes = b"", session: int = 101) -> bytes:
    row = {"session": session, "t_ns": t_ns, "text_bytes": len(text), "event": event, "server": 1}
    return ft.block(Block.SESSION, row | {"server_kind": registry.kind_of("mysql")}, text=text)


def _eventful(seconds: float = 4.5) -> list[bytes]:
    """Traffic with whatever a stream can say: texts, logins, tags, transactions, children, loss."""
    pieces = ft.traffic(seconds, per_second=400)
    begin = ft.BEGIN_NS
    pieces[0] += _session(SessionEvent.OPEN, begin, LOGIN)
    pieces[0] += ft.text(77, b"SELECT * FROM t WHERE secret = '%s'" % CANARY)
    tags = b"endpoint='checkout',tenant='%d'" % 7
    row = {"shape": 9, "statement_bytes": len(tags), "text_bytes": len(tags), "dialect": 9}
    pieces[1] = ft.block(Block.TEXT, row, text=tags) + pieces[1]
    flags = QueryFlag.OK | QueryFlag.IN_TRANSACTION
    shared = {"session": 101, "server": 1, "executions": 1, "rung": 1, "command": 1, "pid": 101}
    for number, (shape, flag) in enumerate([(77, flags), (1, QueryFlag.NO_TRANSACTION)]):
        at_ns = begin + 300 * ft.MS + number * ft.MS
        query = {"query": 900_001 + number, "begin_ns": at_ns, "end_ns": at_ns + 5, "flags": flag}
        query |= {"shape": shape, "tags": 9}
        pieces[20 + number] = ft.block(Block.QUERY, shared | query) + pieces[20 + number]
    child = {"child": 5, "query": 900_001, "begin_ns": begin + 301 * ft.MS, "session": 101}
    child |= {"end_ns": begin + 301 * ft.MS + 2, "shape": 2, "query_shape": 77, "server": 1}
    pieces[22] = ft.block(Block.CHILD, child) + pieces[22]
    pieces[40] = ft.task(begin + 700 * ft.MS, 555, TaskEvent.FORK, b"other") + pieces[40]
    ran = ft.segment(begin + 820 * ft.MS, begin + 821 * ft.MS, 555)
    pieces[41] = ft.block(Block.SEGMENT, ran) + pieces[41]
    pieces[50] = _session(SessionEvent.DATABASE, begin + 990 * ft.MS, b"books") + pieces[50]
    loss = {"t_ns": begin + 1000 * ft.MS, "count": 3, "lost_ns": 70, "cause": Loss.SEGMENT}
    pieces[60] = ft.block(Block.LOSS, loss) + pieces[60]
    late = ft.text(78, b"UPDATE late SET x = '%s'" % CANARY)
    pieces[70] = late + pieces[70]
    return pieces


def _captured(
    trace: Path, pieces: list[bytes], *, meta: Meta = META, compress: bool = False
) -> Meta:
    """Captures a stream as the tracer would, without converting it."""
    trace.mkdir()
    (trace / FOLDER).mkdir()
    pipe = trace.parent / f"{trace.name}.pipe"
    with tracer_stream(pipe, spool_of(trace), compress=compress) as stream:
        for frame in Stream(io.BytesIO(b"".join(pieces))):
            if frame.kind in (Block.TEXT, Block.SESSION):
                stream.add_text(frame.kind, frame.records[0], frame.text)
            elif frame.kind is Block.FLUSH:
                stream.write(frame.t_ns, frame.t_ns)
            else:
                stream.add(frame.kind, frame.records)
        stream.write(ft.BEGIN_NS * 2, last=True)
    with pipe.open("rb") as source:
        return capture(Stream(source), trace, fingerprint, meta)


def _tables(trace: Path) -> dict[str, pa.Table]:
    opened = Trace(trace)
    assert not opened.problems
    return {name: opened.table(name) for name in TABLES}


@pytest.fixture(scope="module")
def pieces() -> list[bytes]:
    return _eventful()


@pytest.fixture(scope="module")
def direct(pieces: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace that is written while the stream is read."""
    trace = tmp_path_factory.mktemp("direct") / "trace"
    record(Stream(io.BytesIO(b"".join(pieces))), TraceWriter(trace), fingerprint, META)
    return trace


@pytest.fixture
def captured(pieces: list[bytes], tmp_path: Path) -> Path:
    trace = tmp_path / "trace"
    _captured(trace, pieces)
    return trace


@pytest.mark.parametrize("compress", [False, True])
def test_tables_are_the_same_either_way(
    pieces: list[bytes], direct: Path, tmp_path: Path, compress: bool
) -> None:
    trace = tmp_path / "trace"
    _captured(trace, pieces, compress=compress)
    convert(trace)
    expected, found = _tables(direct), _tables(trace)
    for name in TABLES:
        assert found[name].num_rows == expected[name].num_rows, name
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    assert {name for name in TABLES if expected[name].num_rows} >= {
        *("queries", "segments", "energy", "owners", "sessions", "shapes", "loss", "transactions"),
    }
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
    _captured(trace, pieces, meta=Meta(literals=True, servers=META.servers))
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
            patch.setattr(module, "write_whole", _killed)
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
