# SPDX-License-Identifier: Apache-2.0
"""A flight recorder that lacks room, was killed, or whose files are damaged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from captured_trace import eventful
from qjoule.errors import QjouleError
from qjoule.spool import save as saving
from qjoule.spool.convert import convert
from qjoule.spool.recorder import Bounds
from qjoule.spool.ring_files import RingFiles
from qjoule.spool.save import Saved, left_behind, save
from qjoule.trace.meta import Part
from qjoule.trace.reader import Trace
from ring_trace import KEEP_S, RingTrace, conserved, joined, ring_trace


def test_no_room_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
        monkeypatch.setattr(saving, "_to_disk", _full)
        assert ring.save() == "not saved: No space left on device"
        monkeypatch.undo()
        ring.feed(joined(eventful(4.5)[150:-1]))
        assert convert(ring.saved().directory).meta.complete
    assert not [one for one in ring.trace.iterdir() if one.name.startswith(".saving")]


def _full(_file: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_unexpected_error_is_answered_and_the_next_save_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
        monkeypatch.setattr(saving, "_to_disk", _wrong)
        assert ring.save() == "not saved: KeyError: 'gone'"
        monkeypatch.undo()
        assert isinstance(ring.save(), Saved)


def _wrong(_file: object) -> None:
    raise KeyError("gone")


def test_a_save_leaves_room_for_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)[:150]))
        little = os.statvfs(tmp_path)
        fields = list(little)
        fields[4] = 1  # f_bavail
        monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
        assert "MB are free" in str(ring.save())


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


def _ended(tmp_path: Path) -> RingTrace:
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)))
    (ring.trace / "meta.json").write_text(ring.capture.meta.to_json())
    return ring


def _dumped(trace: Path) -> Saved:
    moment, meta = left_behind(trace)
    return save(trace, moment, meta, Part("end"))


def test_what_an_ended_recorder_holds_can_still_be_saved(tmp_path: Path) -> None:
    ring = _ended(tmp_path)
    made = convert(_dumped(ring.trace).directory)
    assert made.meta.complete
    assert made.meta.end_ns == ring.capture.now().moment.t_ns


def test_a_ring_cut_at_any_byte_keeps_its_whole_frames(tmp_path: Path) -> None:
    """As after a power cut, in the segment that was being written, and in its names."""
    ring = _ended(tmp_path)
    files = RingFiles(ring.trace)
    last = ring.capture.now().moment.segments[-1]
    for path in (files.spool(last.segment), files.names(last.segment)):
        size = path.stat().st_size
        for number, cut in enumerate(np.linspace(0, size - 1, 12).astype(int).tolist()):
            copy = tmp_path / f"{path.name}-{number}"
            shutil.copytree(ring.trace, copy)
            os.truncate(RingFiles(copy).folder / path.name, cut)
            made = convert(_dumped(copy).directory)
            assert (made.meta.end_ns or 0) <= ring.capture.now().moment.t_ns
            conserved(Trace(next(copy.glob("kept-*"))))


def test_a_damaged_old_segment_costs_what_precedes_it(tmp_path: Path) -> None:
    ring = _ended(tmp_path)
    segments = ring.capture.now().moment.segments
    middle = segments[len(segments) // 2]
    path = RingFiles(ring.trace).spool(middle.segment)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    saved = _dumped(ring.trace)
    assert saved.late == 1
    meta = convert(saved.directory).meta
    assert meta.complete and (meta.begin_ns or 0) > middle.begin_ns


def test_a_recorder_that_was_killed_while_it_saved(tmp_path: Path) -> None:
    """The unfinished part has a name that nothing reads; the ring is whole."""
    ring = _ended(tmp_path)
    unfinished = ring.trace / ".saving-1"
    (unfinished / "capture").mkdir(parents=True)
    (unfinished / "capture" / "spool").write_bytes(b"cut")
    assert convert(_dumped(ring.trace).directory).meta.complete


def test_a_directory_without_a_ring_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ring").mkdir()
    with pytest.raises(QjouleError, match=r"meta\.json"):
        left_behind(tmp_path)
