# SPDX-License-Identifier: Apache-2.0
"""The flight recorder beside the agent, with a root part of a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qjoule.agent.recordings import AGAIN_S, FlightRecorder, made
from qjoule.errors import QjouleError


@dataclass
class FakeRootPart:
    """Records nothing. `started`: the numbers."""

    directory: Path
    started: list[int] = field(default_factory=list)
    runs: bool = False
    refuses: bool = False

    def start(self, number: int) -> FakeRootPart:
        if self.refuses:
            raise QjouleError("not permitted")
        self.started.append(number)
        (self.directory / str(number) / "ring").mkdir(parents=True)
        self.runs = True
        return self

    def exit_code(self, *, wait: bool) -> int | None:
        return 0 if wait or not self.runs else None


def test_it_is_started_again_and_leaves_one_ring_and_the_newest_parts(tmp_path: Path) -> None:
    for old in ("1000", "2000"):
        (tmp_path / old / "ring").mkdir(parents=True)
    parts = [tmp_path / old / f"kept-20260101T00000{n}Z-key" for n, old in enumerate(["1000"] * 3)]
    for part in parts:
        part.mkdir()
    root, said = FakeRootPart(tmp_path), list[str]()
    recorder = FlightRecorder(tmp_path, root.start, 2, said.append, clock=lambda: 1500.0)
    recorder.tick(1.0)
    assert root.started == [1500]
    assert not (tmp_path / "1000" / "ring").exists(), "the last one's may still be needed"
    assert (tmp_path / "2000" / "ring").is_dir()
    assert [part.exists() for part in parts] == [False, True, True]
    root.runs = False
    recorder.tick(3.0)
    assert len(root.started) == 1 and said[-1].endswith("1500 has ended"), "not at once"
    root.refuses = True
    recorder.tick(AGAIN_S + 2)
    assert said[-1] == "recordings: not started: not permitted"
    root.refuses = False
    recorder.tick(2 * AGAIN_S + 4)
    assert root.started == [1500, 1501]


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    assert made(tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new").chmod(0o777)
    (tmp_path / "file").touch()
    for name, words in (("new", "must belong to uid"), ("file", "--recordings")):
        with pytest.raises(QjouleError, match=words):
            made(tmp_path / name)
