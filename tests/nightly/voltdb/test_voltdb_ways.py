# SPDX-License-Identifier: Apache-2.0
"""A real VoltDB with another collector."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.databases import voltdb_server
from tracing import voltdb_story as day
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CALLS = 1280


def test_voltdb_other_collector_and_plain_references(tmp_path: Path) -> None:
    """Names are elsewhere in the heap, and move differently."""
    plain = ("-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers")
    with voltdb_server("-XX:+UseParallelGC", "-Xmn16m", *plain) as server:
        day.prepare(server)
        with recording(tmp_path / "t", "--pid", str(server.pid), "--ring-mb", "64"):
            story = day.tell(server, CALLS)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert set(run.executions()) == set(story.invocations) - {
        name for name in story.invocations if name.startswith("AdHoc")
    } | set(story.ad_hoc)
    assert run.executions().total() == story.invocations.total()
