# SPDX-License-Identifier: Apache-2.0
"""What a flight recorder holds and saves, by the tracer's own code, also if it is damaged."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

import fake_tracer as ft
from captured_trace import (
    CANARY,
    KEEP_S,
    QUERY,
    captured_trace,
    conserved,
    eventful,
    joined,
    ring_trace,
)
from qjoule.contract import Block, QueryFlag
from qjoule.spool import save as saving
from qjoule.spool.convert import convert
from qjoule.spool.files import SEGMENTS, RingFiles, names_of, spool_of
from qjoule.spool.frames import SpoolReader, StoredFrame, stored_frame
from qjoule.spool.names import Counted, NamesReader
from qjoule.spool.recorder import Bounds
from qjoule.spool.save import Saved, left_behind, save
from qjoule.trace.meta import Change, Part
from qjoule.trace.meta_file import parse_meta
from qjoule.trace.reader import Trace

S = 1_000_000_000


@pytest.mark.parametrize("compress", [False, True])
def test_a_part_is_what_a_whole_recording_says_of_its_time(tmp_path: Path, compress: bool) -> None:
    """Wrapped several times: times, energy and calls of the kept interval are the whole's."""
    pieces = eventful(9.0)
    captured_trace(tmp_path / "whole", pieces)
    convert(tmp_path / "whole")
    whole = Trace(tmp_path / "whole")
    with ring_trace(tmp_path / "r", KEEP_S, compress=compress) as ring:
        ring.feed(joined(pieces[:-1]))
        saved = ring.saved()
    converted = convert(saved.directory)
    assert converted.meta.complete
    assert converted.meta.part is not None and converted.meta.part.why == "dump"
    part = Trace(saved.directory)
    begin, end = part.meta.begin_ns or 0, part.meta.end_ns or 0
    assert KEEP_S <= (end - begin) / S <= KEEP_S * 1.3
    # The reading at its begin is in the frame before.
    for table, column, since in (("queries", "end_ns", begin), ("energy", "t_ns", begin + 1)):
        theirs, ours = whole.pandas(table), part.pandas(table)
        theirs = theirs[(theirs[column] >= since) & (theirs[column] <= end)]
        assert len(ours) == len(theirs) > 90, table
        assert list(ours[column]) == list(theirs[column])
    assert set(part.pandas("shapes")["fingerprint"]) <= set(whole.pandas("shapes")["fingerprint"])
    assert part.pandas("queries")["fingerprint"].notna().sum() > 90
    result = conserved(part)
    assert result.trace.complete
    assert not result.trace.loss  # it was lost before the part
    readings = part.pandas("energy")
    raw = readings[readings["domain"] == "package"]["raw"]
    measured_nj = (int(raw.iloc[-1]) - int(raw.iloc[0])) * 2.0**-14 * 1e9
    assert result.domains[0].measured_nj == pytest.approx(measured_nj, rel=1e-6)


def test_a_ring_wraps_and_neither_records_nor_names_grow(tmp_path: Path) -> None:
    sizes: list[int] = []
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        files = RingFiles(ring.trace)

        def measure(_t_ns: int) -> None:
            sizes.append(sum(path.stat().st_size for path in files.folder.iterdir()))

        ring.feed(joined(eventful(30.0)[:-1]), measure)
        assert len(list(files.folder.glob("spool-*"))) == SEGMENTS
        assert len(list(files.folder.glob("names-*"))) <= SEGMENTS
        assert len(list(files.folder.glob("state-*"))) <= SEGMENTS
        segments = ring.capture.now().moment.segments
        assert segments[-1].segment > 5 * SEGMENTS
    half = len(sizes) // 2
    assert max(sizes[half:]) <= max(sizes[:half]) * 1.05


def test_a_segment_written_over_while_it_is_copied_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = eventful(12.0)[:-1]
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(pieces[:200]))
        now = ring.capture.now()
        later_pieces = iter([joined(pieces[200:230])])
        copied: list[int] = []

        def during(file: BinaryIO, at: int) -> StoredFrame | None:
            if not copied:  # the tracer goes on while the first frame is copied
                ring.feed(next(later_pieces))
            copied.append(1)
            return stored_frame(file, at)

        monkeypatch.setattr(saving, "stored_frame", during)
        everything = Part("dump", keep_s=None)
        saved = save(ring.trace, now.moment, now.meta, everything)
    assert saved.late >= 1
    with spool_of(saved.directory).open("rb") as file:
        numbers = [frame.number for frame in SpoolReader(file)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] > now.moment.segments[0].frame
    assert convert(saved.directory).meta.complete


def test_loss_of_a_part_is_what_was_lost_in_it(tmp_path: Path) -> None:
    """The stream's sums run since tracing began."""
    pieces = ft.traffic(8.0)[:-1]
    for window, count in ((50, 3), (350, 10)):
        loss = {"t_ns": ft.BEGIN_NS + window * 20 * ft.MS, "count": count, "lost_ns": 70 * count}
        pieces[window] = ft.block(Block.LOSS, loss) + pieces[window]
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(pieces))
        saved = ring.saved()
    meta = convert(saved.directory).meta
    assert meta.loss == {"segment": 7}
    assert meta.lost_cpu_ns == 490
    table = Trace(saved.directory).pandas("loss")
    assert list(table["count"]) == [7]


def test_a_login_long_ago_still_names_its_queries(tmp_path: Path) -> None:
    pieces = eventful(9.0)[:-1]
    at_ns = ft.BEGIN_NS + 430 * 20 * ft.MS
    late = {"query": 900_500, "begin_ns": at_ns, "end_ns": at_ns + 5, "shape": 77, "tags": 9}
    pieces[431] = ft.block(Block.QUERY, QUERY | late) + pieces[431]
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(pieces))
        saved = ring.saved()
    assert CANARY not in joined(p.read_bytes() for p in saved.directory.rglob("*") if p.is_file())
    convert(saved.directory)
    queries = Trace(saved.directory).pandas("queries")
    (late_query,) = queries[queries["query"] == 900_500].to_dict("records")
    assert (late_query["user"], late_query["database"]) == ("alice", "books")
    assert dict(late_query["tags"])["endpoint"] == "checkout"
    assert late_query["shape"] == 77 and late_query["fingerprint"]


def test_a_query_that_began_before_the_part_is_marked(tmp_path: Path) -> None:
    pieces = ft.traffic(8.0)[:-1]
    row = {"query": 900_001, "shape": 3, "session": 107, "pid": 107, "tgid": 100, "server": 1}
    row |= {
        "begin_ns": ft.BEGIN_NS + S,
        "end_ns": ft.BEGIN_NS + 7 * S,
        "executions": 1,
        "attach_mode": 1,
    }
    pieces[351] = ft.block(Block.QUERY, row) + pieces[351]
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(pieces))
        saved = ring.saved()
    convert(saved.directory)
    trace = Trace(saved.directory)
    queries = trace.pandas("queries")
    marked = queries[[bool(int(flags) & QueryFlag.CUT) for flags in queries["flags"]]]
    assert 900_001 in set(marked["query"])
    assert (marked["begin_ns"] < trace.begin_ns).all()
    assert len(marked) == (queries["begin_ns"] < trace.begin_ns).sum()
    result = conserved(trace)
    assert "saved by a flight recorder: a test" in " ".join(result.model.notes)


# ---- no room, cut off, damaged -------------------------------------------------------------------


def test_a_save_that_fails_is_answered_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: object) -> None:
        raise OSError(28, "No space left on device")

    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
        with monkeypatch.context() as patch:
            patch.setattr(saving, "_to_disk", fail)
            assert ring.save() == "not saved: No space left on device"
        ring.feed(joined(eventful(4.5)[150:-1]))
        assert convert(ring.saved().directory).meta.complete
    assert not list(ring.trace.glob(".saving*"))


def test_triggers_wait_and_the_number_of_saves_is_bounded(tmp_path: Path) -> None:
    with ring_trace(tmp_path / "r", KEEP_S, bounds=Bounds(saves=3, pause_s=60)) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
        assert isinstance(ring.save("query", triggered=True), Saved)
        assert "within 60 s" in str(ring.save("shape", triggered=True))
        assert isinstance(ring.save(), Saved)  # who asks need not wait
        ring.now_s = 61
        assert isinstance(ring.save("query", triggered=True), Saved)
        assert "3 parts are saved" in str(ring.save())
        lines = ring.recorder.summary()
    assert [line.split(":")[0] for line in lines] == ["not saved 1 time", "not saved 1 time"]


def test_a_ring_cut_at_any_byte_keeps_its_whole_frames(tmp_path: Path) -> None:
    """The cut is as after a power failure: in the segment that was being written, and in its
    names."""
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)))
    (ring.trace / "meta.json").write_text(ring.capture.meta.to_json())
    files = RingFiles(ring.trace)
    last = ring.capture.now().moment.segments[-1]
    for path in (files.spool(last.segment), files.names(last.segment)):
        size = path.stat().st_size
        for number, cut in enumerate(np.linspace(0, size - 1, 5).astype(int).tolist()):
            ring_copy = tmp_path / f"{path.name}-{number}"
            shutil.copytree(ring.trace, ring_copy)
            os.truncate(RingFiles(ring_copy).folder / path.name, cut)
            moment, meta = left_behind(ring_copy)
            converted = convert(save(ring_copy, moment, meta, Part("end")).directory)
            assert (converted.meta.end_ns or 0) <= ring.capture.now().moment.t_ns
            conserved(Trace(next(ring_copy.glob("kept-*"))))


def test_what_happened_before_the_part_is_no_news_in_it(tmp_path: Path) -> None:
    """Changes of servers, and what was lost on the way from applications."""
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(ft.traffic(8.0)[:-1]))
        now = ring.capture.now()
        counted = Counted(1, 2, 3)
        segments = tuple(replace(begins, counted=counted) for begins in now.moment.segments)
        moment = replace(now.moment, segments=segments)
        begin_ns = segments[0].begin_ns
        before, later = begin_ns - S, begin_ns + 2 * S
        changes = (
            Change("exited", "a", before, before + 1),
            Change("exited", "b", before),
            Change("followed", "c", before, pid=3),
            Change("followed", "d", later, pid=4),
            Change("untraced", "e", before, later),
            Change("unseen", "f"),
        )
        meta = replace(now.meta, changes=changes)
        saved = save(ring.trace, moment, meta, Part("dump"), counted=Counted(5, 7, 9))
    saved_changes = parse_meta((saved.directory / "meta.json").read_bytes()).changes
    assert [change.name for change in saved_changes] == ["b", "d", "e", "f"]
    with names_of(saved.directory).open("rb") as file:
        assert Counted(4, 5, 6) in [line for line in NamesReader(file) if isinstance(line, Counted)]


def test_a_save_leaves_room_for_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
        little = os.statvfs(tmp_path)
        fields = list(little)
        fields[4] = 1  # f_bavail
        monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
        assert "MB are free" in str(ring.save())
