# SPDX-License-Identifier: Apache-2.0
"""A Redis with io-threads: counts and texts are exact, whichever thread reads or writes."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from qjoule.contract import Rung
from servers.process import DatabaseServer, Unavailable
from servers.redis import command_stats, redis_server
from tracing import long_runs
from tracing import redis_story as day
from tracing.recording import Run, attribute, recording
from tracing.releases import planned

pytestmark = [pytest.mark.root, pytest.mark.server]

COMMANDS = long_runs.statements(4000)
NAMED = 0.98  #: share of the server's CPU time
CURVE = "estimated:10,12,20,30"  #: W


def _story(server: DatabaseServer) -> None:
    day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "set", "user:__rand_int__:name", "x")
    day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "get", "user:__rand_int__:name")
    day.benchmark(server, "-n", str(COMMANDS // 16 * 16), "-P", "16", "incr", "hits:42")
    with server.connect() as client:
        client.set("long:1", b"v" * day.LONG_VALUE)


@pytest.mark.parametrize("do_reads", ["no", "yes"])
def test_redis_io_threads_are_counted_exactly(do_reads: str, tmp_path: Path) -> None:
    """A running server shows which its io-threads do. If they only write, the
    main thread's time belongs to its requests, and is named.
    """
    reads = do_reads == "yes"
    options = ("--io-threads", "2", "--io-threads-do-reads", do_reads)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(redis_server(*options))
        except Unavailable as reason:
            pytest.skip(str(reason))
        choice = planned(server).choice
        referee = stack.enter_context(server.connect())
        before = command_stats(referee)
        where = "--pid", str(server.pid), "--ring-mb", "64", "--energy", CURVE
        with recording(tmp_path / "t", *where):
            asked = day.ask_at_once(server)
            _story(server)
            after = command_stats(referee)
    assert choice.exact is not reads, choice.why
    assert choice.rung is (Rung.STATISTICAL if reads else Rung.SOCKET)
    assert reads is ("1 io-threads, which read and write" in choice.why)
    run, none = Run(tmp_path / "t"), {"calls": 0}
    assert run.loss == {}
    owners = run.trace.pandas("owners")
    assert "io_thd_?" in set(owners[owners["kind"] == "server"]["role"])
    calls = Counter(
        {name: int(row["calls"] - before.get(name, none)["calls"]) for name, row in after.items()}
    )
    counted = run.executions()
    del calls["info"], counted["INFO"], counted["CLIENT SETINFO"]  # this test's own
    assert counted.total() == calls.total()
    expected = {"GET x:?": asked, "SET user:?:name": COMMANDS, "GET user:?:name": COMMANDS}
    expected |= {"INCR hits:?": COMMANDS // 16 * 16, "SET long:?": 1}
    assert {text: counted[text] for text in expected} == expected
    queries, segments = run.queries, run.trace.pandas("segments")
    assert set(queries["rung"]) == {"statistical" if reads else "socket"}
    assert (queries["end_ns"] > queries["begin_ns"]).all()
    assert bool(segments["query"].isin(queries["query"]).any()) is not reads
    by_server = attribute(tmp_path / "t")["coverage_by_server"]
    assert by_server[f"redis:{server.port}"]["named"] >= NAMED, by_server
