# SPDX-License-Identifier: Apache-2.0
"""Counts and shapes on a real Valkey, compared with `INFO commandstats`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from servers.databases import valkey_server
from tracing import redis_story as day
from tracing.recording import Run, check_no_waits, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def valkey() -> Iterator[DatabaseServer]:
    with valkey_server() as server:
        yield server


def test_valkey_counts_are_its_own(valkey: DatabaseServer, tmp_path: Path) -> None:
    """Except for what scripts called: that came over no socket."""
    options = "--pid", str(valkey.pid), "--ring-mb", "64"
    with valkey.connect() as referee, recording(tmp_path / "t", *options):
        story = day.tell(valkey, referee)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert set(run.queries["attach_mode"]) == {"socket"}
    assert run.trace.meta.servers[0].kind == "valkey"
    counted = run.executions()
    del counted["INFO"]  # the queries of this test's own checks
    assert counted.total() == story.calls.total() - day.IN_SCRIPT * day.SCRIPTS
    assert {text: counted[text] for text in day.COMMON_SHAPES} == day.COMMON_SHAPES
    check_no_waits(run.trace)


def test_io_threads_that_read_are_counted_only(tmp_path: Path) -> None:
    """Valkey 9 starts them at any time. The plan was made before, for one thread that reads."""
    with ExitStack() as stack:
        early = stack.enter_context(valkey_server("--io-threads", "3"))
        late = stack.enter_context(valkey_server("--io-threads-always-active", "yes"))
        pids = (f"--pid={server.pid}" for server in (early, late))
        clients = [stack.enter_context(server.connect()) for server in (early, late)]
        with recording(tmp_path / "t", *pids):
            for number in range(100):
                clients[0].set(f"user:{number}", 1)
            clients[1].set("before:1", 1)
            clients[1].config_set("io-threads", 3)
            gets = day.ask_at_once(late)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    assert (counted["SET user:?"], counted["SET before:?"], counted["GET x:?"]) == (100, 1, gets)
    assert set(run.having("SET user:")["attach_mode"]) == {"statistical"}
    assert set(run.having("SET before:")["attach_mode"]) == {"socket"}
    assert "statistical" in set(run.having("GET x:")["attach_mode"])
