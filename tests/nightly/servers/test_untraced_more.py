# SPDX-License-Identifier: Apache-2.0
"""Servers that come and go untraced: what `top` names, and what no output names."""

from __future__ import annotations

from pathlib import Path

import pytest

from exclusive.test_untraced_servers import COMMANDS, program, serving, stranger, work
from tracing.live_top import Top
from tracing.recording import Recorder, attribute

pytestmark = [pytest.mark.root, pytest.mark.server]

__all__ = ["program"]  # a fixture


def test_top_names_a_server_that_starts_untraced(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path / "keeps") as keeps:
        with serving(program, tmp_path / "a") as server:
            pids = ("--pid", str(server.pid), "--pid", str(keeps.pid))
            top = Top("--energy", "none", *pids)
            top.wait_for(1)
        try:
            with serving(stranger(program), tmp_path / "b") as other:
                pid = other.pid
                for _ in range(6):
                    work(other, 500)
                    top.wait_for(1)
            work(keeps, 10)
            snapshots = top.finish(lambda row: bool(row["server"]))
        finally:
            top.close()
    changes = [
        change for one in snapshots for change in one["interval"]["trace"].get("changes", ())
    ]
    assert any(change["what"] == "exited" for change in changes)
    hidden = [change for change in changes if change["pid"] == pid]
    assert hidden and max(change["cpu_ns"] or 0 for change in hidden) > 0


def test_a_server_that_runs_on_is_not_told(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as server:
        recorder = Recorder(trace, "--energy", "none", "--pid", str(server.pid))
        try:
            recorder.attached()
            stranger(program)
            work(server)
            assert recorder.stop() == 0, recorder.words
            words = recorder.words
        finally:
            recorder.end()
    assert "exited" not in words and "untraced" not in words
    document = attribute(trace)
    assert "changes" not in document["trace"]
    assert sum(row["calls"] for row in document["rows"]) >= COMMANDS
