# SPDX-License-Identifier: Apache-2.0
"""Counts and shapes on a real Valkey, traced as a Redis. `INFO commandstats` is the referee."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from servers.valkey import valkey_server
from tracing import redis_story as day
from tracing.recording import Run, Told, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def valkey() -> Iterator[DatabaseServer]:
    with valkey_server() as server:
        yield server


@pytest.fixture(scope="module")
def told(valkey: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Told[day.Story]:
    directory = tmp_path_factory.mktemp("valkey") / "trace"
    with valkey.connect() as referee:
        with recording(directory, "--pid", str(valkey.pid), "--ring-mb", "64"):
            story = day.tell(valkey, referee)
        return Told(story, Run(directory))


def test_valkey_nothing_is_lost(told: Told[day.Story]) -> None:
    assert told.run.loss == {}
    assert set(told.run.queries["rung"]) == {"socket"}
    assert told.run.trace.meta.servers[0].kind == "valkey"


def test_valkey_every_command_counts(told: Told[day.Story]) -> None:
    """The server's own count, except for what scripts called: that came over no socket."""
    calls = told.story.calls
    counted = told.run.executions()
    del counted["INFO"]  # the queries of this test's own checks
    assert counted.total() == calls.total() - day.IN_SCRIPT * day.SCRIPTS


def test_valkey_commands_count_under_their_own_shape(told: Told[day.Story]) -> None:
    counted = told.run.executions()
    expected = {
        "SET user:?:name": day.PLAIN,
        "GET user:?:name": day.PLAIN,
        "INCR hits:?": day.PIPELINED,
        "EVAL": day.SCRIPTS,
        "MULTI; SET order:?; LPUSH orders:open; EXEC": 4 * day.TRANSACTIONS,
    }
    assert {text: counted[text] for text in expected} == expected


def test_valkey_that_reads_on_several_threads_is_counted_only(tmp_path: Path) -> None:
    with (
        valkey_server("--io-threads", "3") as server,
        server.connect() as client,
        recording(tmp_path / "t", "--pid", str(server.pid)),
    ):
        for number in range(100):
            client.set(f"user:{number}", 1)
    run = Run(tmp_path / "t")
    assert run.executions()["SET user:?"] == 100
    assert set(run.queries["rung"]) == {"statistical"}


def test_doctor_names_valkey_and_its_version(valkey: DatabaseServer) -> None:
    done = qjoule("doctor", "--json")
    assert f"pid {valkey.pid}" in done.stdout or str(valkey.pid) in done.stdout
    assert "valkey" in done.stdout.lower()


def test_io_threads_that_are_started_later_read_nothing_unseen(tmp_path: Path) -> None:
    """Valkey 9 starts them at any time. The plan was made before, for one thread that reads."""
    with (
        valkey_server("--io-threads-always-active", "yes") as server,
        server.connect() as client,
        recording(tmp_path / "t", "--pid", str(server.pid)),
    ):
        client.set("before:1", 1)
        client.config_set("io-threads", 3)
        asked = day.ask_at_once(server)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    assert counted["SET before:?"] == 1
    assert counted["GET x:?"] == asked
    assert set(run.having("SET before")["rung"]) == {"socket"}
    assert "statistical" in set(run.having("GET x:?")["rung"])
