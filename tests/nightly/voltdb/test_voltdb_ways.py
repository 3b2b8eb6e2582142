# SPDX-License-Identifier: Apache-2.0
"""A real VoltDB that is attached to in the middle, and one with another collector."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from servers.voltdb import voltdb_server
from tracing import voltdb_story as day
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CALLS = 1280


@pytest.fixture(scope="module")
def prepared(voltdb: DatabaseServer) -> DatabaseServer:
    day.prepare(voltdb)
    return voltdb


def test_voltdb_attached_in_the_middle(prepared: DatabaseServer, tmp_path: Path) -> None:
    """Whatever runs at that moment, later calls are complete and under their own names."""
    done = threading.Event()

    def call_all_the_time() -> None:
        with prepared.connect() as client:
            for key in itertools.count():
                client.call("get", key)
                if done.is_set():
                    return

    thread = threading.Thread(target=call_all_the_time)
    thread.start()
    try:
        with (
            recording(tmp_path / "t", "--pid", str(prepared.pid)),
            prepared.connect() as client,
        ):
            for key in range(200):
                client.call("Batches", key, 2, 1)
    finally:
        done.set()
        thread.join()
    counts = Run(tmp_path / "t").executions()
    assert counts["Batches"] == 200
    assert set(counts) == {"get", "Batches"}


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
