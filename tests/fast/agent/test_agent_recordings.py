# SPDX-License-Identifier: Apache-2.0
"""The flight recorder beside the agent, with a root part of a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.agent.recordings import AGAIN_S, FlightRecorder, made
from qjoule.errors import QjouleError


@dataclass
class FakeRootPart:
    """Records nothing. `started`: how often."""

    directory: Path
    started: int = 0
    runs: bool = False
    refuses: bool = False

    def start(self) -> FakeRootPart:
        if self.refuses:
            raise QjouleError("not permitted")
        self.started += 1
        (self.directory / f"qjoule-20260103-00000{self.started}.qjoule/ring").mkdir(parents=True)
        self.runs = True
        return self

    def exit_code(self, *, wait: bool) -> int | None:
        return 0 if wait or not self.runs else None


def test_it_is_started_again_and_leaves_one_ring_and_the_newest_parts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"qjoule-2026010{day}-120000.qjoule" for day in (1, 2))
    for old in (first, second):
        (old / "ring").mkdir(parents=True)
    parts = [first / f"kept-20260101T00000{n}Z-key" for n in range(3)]
    for part in parts:
        part.mkdir()
    root, said = FakeRootPart(tmp_path), list[str]()
    recorder = FlightRecorder(tmp_path, root.start, 2, said.append)
    recorder.tick(1.0)
    assert root.started == 1
    assert not (first / "ring").exists(), "the last one's may still be needed"
    assert (second / "ring").is_dir()
    assert [part.exists() for part in parts] == [False, True, True]
    root.runs = False
    recorder.tick(3.0)
    assert root.started == 1 and said[-1].endswith("recorder has ended"), "not at once"
    root.refuses = True
    recorder.tick(AGAIN_S + 2)
    assert said[-1] == "recordings: not started: not permitted"
    root.refuses = False
    recorder.tick(2 * AGAIN_S + 4)
    assert root.started == 2


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    assert made(tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new").chmod(0o777)
    (tmp_path / "file").touch()
    for name, words in (("new", "must belong to uid"), ("file", "--recordings")):
        with pytest.raises(QjouleError, match=words):
            made(tmp_path / name)
