# SPDX-License-Identifier: Apache-2.0
"""A Redis with io-threads: counts and texts are exact, whichever thread reads or writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.contract import Rung
from qjoule.machine.kernel_facts import read_kernel_facts
from qjoule.servers.choice import Choice
from qjoule.servers.discovery import find_servers
from qjoule.servers.plan import build_plan
from servers.process import DatabaseServer, Unavailable
from servers.redis import command_stats, redis_server
from tracing import long_runs
from tracing import redis_story as day
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

COMMANDS = long_runs.statements(4000)
NAMED = 0.98  #: share of the server's CPU time
CURVE = "estimated:10,12,20,30"  #: W


@dataclass
class Told:
    reads: bool  #: io-threads also read
    port: int
    choice: Choice
    calls: Counter[str]
    asked_at_once: int
    trace: Path
    run: Run


@pytest.fixture(scope="module", params=["no", "yes"])
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Told]:
    trace = tmp_path_factory.mktemp("io") / "trace"
    options = ("--io-threads", "2", "--io-threads-do-reads", request.param)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(redis_server(*options))
        except Unavailable as reason:
            pytest.skip(str(reason))
        choice = _choice(server)
        referee = stack.enter_context(server.connect())
        before = command_stats(referee)
        with recording(trace, "--pid", str(server.pid), "--ring-mb", "64", "--energy", CURVE):
            asked = day.ask_at_once(server)
            _story(server)
            after = command_stats(referee)
    calls = Counter(
        {
            name: int(row["calls"] - before.get(name, {"calls": 0})["calls"])
            for name, row in after.items()
        }
    )
    del calls["info"]  # this test's own
    yield Told(request.param == "yes", server.port, choice, +calls, asked, trace, Run(trace))


def _story(server: DatabaseServer) -> None:
    day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "set", "user:__rand_int__:name", "x")
    day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "get", "user:__rand_int__:name")
    day.benchmark(server, "-n", str(COMMANDS // 16 * 16), "-P", "16", "incr", "hits:42")
    with server.connect() as client:
        client.set("long:1", b"v" * day.LONG_VALUE)


def _choice(server: DatabaseServer) -> Choice:
    found = [one for one in find_servers() if server.pid in one.tgids]
    (only,) = build_plan(found, read_kernel_facts()).servers
    return only.choice


def test_redis_io_threads_that_only_write_are_exact(told: Told) -> None:
    """And a running server shows which of reading and writing its io-threads do."""
    assert told.choice.exact is not told.reads, told.choice.why
    assert told.choice.rung is (Rung.STATISTICAL if told.reads else Rung.SOCKET)
    assert told.reads is ("1 io-threads, which read and write" in told.choice.why)


def test_redis_io_threads_lose_nothing(told: Told) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    owners = told.run.trace.pandas("owners")
    assert "io_thd_?" in set(owners[owners["kind"] == "server"]["role"])


def test_redis_io_threads_every_command_counts(told: Told) -> None:
    counted = told.run.executions()
    del counted["INFO"]
    del counted["CLIENT SETINFO"]
    assert counted.total() == told.calls.total()
    expected = {
        "GET x:?": told.asked_at_once,
        "SET user:?:name": COMMANDS,
        "GET user:?:name": COMMANDS,
        "INCR hits:?": COMMANDS // 16 * 16,
        "SET long:?": 1,
    }
    assert {text: counted[text] for text in expected} == expected


def test_redis_io_threads_own_no_time_where_they_read(told: Told) -> None:
    """If they only write, the main thread's time belongs to its requests, and is named."""
    queries = told.run.queries
    assert set(queries["rung"]) == {"statistical" if told.reads else "socket"}
    assert (queries["end_ns"] > queries["begin_ns"]).all()
    segments = told.run.trace.pandas("segments")
    assert bool(segments["query"].isin(queries["query"]).any()) is not told.reads
    by_server = attribute(told.trace)["coverage_by_server"]
    assert by_server[f"redis:{told.port}"]["named"] >= NAMED, by_server
