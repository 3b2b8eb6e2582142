# SPDX-License-Identifier: Apache-2.0
"""Recordings beside the agent: the engine's side, and what an agent elsewhere may list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qjoule.agent.recordings import AGAIN_S, Limits, Order, Recording, Recordings, made
from qjoule.errors import QjouleError
from qjoule.metrics.shared import SharedBytes
from qjoule.remote.control import EngineEnd, ListenerEnd, Wish, both_ends
from qjoule.remote.listing import listing_of
from recordings_engine import FakeRootPart, written


class Engine:
    """One with a process that listens, in this one. `said`: its log."""

    def __init__(self, directory: Path, limits: Limits) -> None:
        self.root = FakeRootPart(directory)
        self.said: list[str] = []
        ours, theirs = both_ends()
        self.desk = ListenerEnd(theirs)
        self.board = SharedBytes()
        self.raw = theirs
        self.recordings = Recordings(directory, self.root, limits, self.said.append)
        self.recordings.end, self.recordings.board = EngineEnd(ours), self.board
        self.now_s = 0.0

    def tick(self, after_s: float = 1.0) -> None:
        self.now_s += after_s
        self.recordings.tick(self.now_s)

    @property
    def states(self) -> dict[str, str]:
        found = listing_of(self.board.get() or b"")
        return {one.name: one.state for one in found.recordings}


def test_one_runs_at_a_time_and_not_longer_than_allowed(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Limits(seconds=30))
    engine.desk.order(Wish.START, 86_400)
    engine.desk.order(Wish.START, 10)
    engine.tick()
    ((which, order, number, seconds),) = engine.root.orders
    assert (which, order, seconds) == (Recording.TIMED, Order.START, 30)
    assert engine.states == {str(number): "recording"} and engine.recordings.busy
    assert any("one runs already" in words for words in engine.said)
    engine.desk.order(Wish.STOP)
    engine.tick()
    engine.tick()
    assert engine.states == {str(number): "ended"} and not engine.recordings.busy


def test_rubbish_instead_of_orders_and_refusals_start_nothing(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Limits())
    for content in (b"\x01", b"\x00" * 5, b"\x09" * 5, b"\x01" * 4000):
        engine.raw.send(content)
        engine.tick()
    assert not engine.root.orders
    engine.root.refuses = True
    engine.desk.order(Wish.START, 10)
    engine.tick()
    assert engine.said[-1] == "recordings: not started: not permitted" and not engine.states
    engine.raw.close()  # the process that listens has ended
    engine.tick()
    engine.tick()
    assert not engine.states


def test_a_flight_recorder_is_started_again_and_leaves_one_ring(tmp_path: Path) -> None:
    for old in ("1000", "2000"):
        (tmp_path / old / "ring").mkdir(parents=True)
    written(tmp_path / "1000" / "kept-20260101T000000Z-key")
    engine = Engine(tmp_path, Limits(flight_s=60))
    engine.tick()
    ((which, order, _, seconds),) = engine.root.orders
    assert (which, order, seconds) == (Recording.KEPT, Order.START, 60)
    assert not (tmp_path / "1000" / "ring").exists(), "the last one's may still be needed"
    assert (tmp_path / "2000" / "ring").is_dir()
    assert "1000-kept-20260101T000000Z-key" in engine.states
    engine.desk.order(Wish.SAVE)
    engine.tick()
    assert engine.root.orders[-1][:2] == (Recording.KEPT, Order.SAVE)
    engine.root.ends_s[Recording.KEPT] = 0.0
    engine.tick()
    assert len(engine.root.orders) == 2, "not at once"
    engine.tick(AGAIN_S)
    assert engine.root.orders[-1][:2] == (Recording.KEPT, Order.START)


def test_what_was_cut_off_is_not_given_out(tmp_path: Path) -> None:
    written(tmp_path / "1000")
    (tmp_path / "1000" / "meta.json").write_text('{"captured": {"bytes": 5}}')
    (tmp_path / "2000").mkdir()
    written(tmp_path / "3000")
    (tmp_path / "3000" / "secret").symlink_to("/etc/shadow")
    engine = Engine(tmp_path, Limits())
    engine.tick()
    assert engine.states == {"1000": "unfinished", "2000": "unfinished", "3000": "ended"}
    found = listing_of(engine.board.get() or b"").named("3000")
    assert found is not None and "secret" not in [one.name for one in found.files]
    assert engine.desk.file("3000", 0) is not None and engine.desk.file("1000", 0) is None


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    assert made(tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new").chmod(0o777)
    (tmp_path / "file").touch()
    for name, words in (("new", "must belong to uid"), ("file", "--recordings")):
        with pytest.raises(QjouleError, match=words):
            made(tmp_path / name)


GOOD: dict[str, Any] = {"name": "1", "state": "ended", "files": [{"name": "a/b", "bytes": 1}]}


def listing(recording: dict[str, Any]) -> bytes:
    document = {"schema": "qjoule.recordings/1", "flight_recorder": None}
    return json.dumps(document | {"recordings": [recording]}).encode()


@pytest.mark.parametrize(
    "content",
    [
        *(listing(GOOD | {"name": name}) for name in ("", "../x", "a b")),
        listing(GOOD | {"state": "\x1b[2J"}),
        *(
            listing(GOOD | {"files": [{"name": name, "bytes": 1}]})
            for name in ("../x", "/etc/x", "a/../x", "a/b/c", ".bashrc")
        ),
        *(listing(GOOD | {"files": [{"name": "a", "bytes": size}]}) for size in (-1, 1 << 60)),
        listing(GOOD | {"files": [{"name": "a", "bytes": 1}] * 2}),
        listing(GOOD | {"files": [{"name": f"f{n}", "bytes": 1} for n in range(200)]}),
        listing(GOOD | {"files": 3}),
        *(b"", b"[]", b"{}", b"\xff", b"[" * 100_000),
    ],
)
def test_a_hostile_list_is_refused(content: bytes) -> None:
    assert listing_of(listing(GOOD)).named("1") is not None
    with pytest.raises(QjouleError, match="no qjoule"):
        listing_of(content)
