# SPDX-License-Identifier: Apache-2.0
"""64 clients at once, each with its own texts: every statement is counted under its own text.

10,000 statements a server and rung; 100,000 by `make test-counts`.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing import long_runs
from tracing import mysql_story as day
from tracing.at_once import at_once
from tracing.mysql_client import MysqlClient
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

CLIENTS = 64
STATEMENTS = long_runs.statements(10_000)
ROUNDS = -(-STATEMENTS // (4 * CLIENTS))
MARKER = re.compile(r"m_client_\d+")
TIMEOUT_S = 60.0


def _client(server: DatabaseServer, number: int, ready: threading.Barrier) -> None:
    """Texts and prepared statements alternate. The statements' ids are the same in all sessions."""
    client = MysqlClient(port=server.port) if number % 2 else MysqlClient(server.socket)
    ready.wait(TIMEOUT_S)
    marker = b"m_client_%d" % number
    prepared = client.prepare(b"select ? + 1 as " + marker)
    other = client.prepare(b"set @last = (select ? as " + marker + b")")
    for value in range(ROUNDS):
        client.query(b"select %d as %s" % (value, marker))
        client.execute(prepared, value)
        client.query(b"set @last = (select %d as %s)" % (value, marker))
        client.execute(other, value)
    client.quit()


def _load(server: DatabaseServer) -> Counter[str]:
    """Runs the clients; returns the server's own counts of their statements."""
    before = day.status(server)
    ready = threading.Barrier(CLIENTS)
    at_once(lambda number: _client(server, number, ready), range(CLIENTS))
    after = day.status(server)
    names = ["Com_select", "Com_set_option", "Com_stmt_execute"]
    names += ["Com_stmt_prepare", "Com_stmt_reprepare"]
    return Counter({name: after[name] - before[name] for name in names})


def _check(run: Run, counted: Counter[str]) -> None:
    queries = run.queries
    queries["marker"] = [
        found[0] if isinstance(text, str) and (found := MARKER.search(text)) else None
        for text in queries["text"]
    ]
    marked = queries[queries["marker"].notna()]
    executions = marked.groupby("marker")["executions"].sum()
    assert dict(executions) == {f"m_client_{n}": 4 * ROUNDS for n in range(CLIENTS)}
    assert marked["executions"].sum() == CLIENTS * ROUNDS * 4
    by_session = marked.groupby("session")["marker"].nunique()
    assert (by_session == 1).all(), "a text in another's session"
    # From 8.0.22 on, MySQL prepares again, and counts that, when parameters first come with other
    # types.
    prepared = counted["Com_stmt_prepare"] - counted["Com_stmt_reprepare"]
    assert prepared == (marked["command"] == "prepare").sum()
    executed = marked[marked["command"] == "execute"]["executions"].sum()
    assert counted["Com_stmt_execute"] == executed
    selects = marked[marked["text"].str.startswith("select")]["executions"].sum()
    sets = marked[marked["text"].str.startswith("set @")]["executions"].sum()
    assert counted["Com_select"] == selects
    assert counted["Com_set_option"] >= sets == selects, "drivers set options of their own"
    assert run.loss == {}


@pytest.mark.parametrize("server", ["mariadb", "mysql80", "mysql8033"])
def test_many_clients(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    running: DatabaseServer = request.getfixturevalue(server)
    with both_rungs(tmp_path, running.pid):
        counted = _load(running)
    for rung in ("socket", "symbol"):
        _check(Run(tmp_path / rung), counted)


def test_many_clients_of_a_pool(mariadb_pool: DatabaseServer, tmp_path: Path) -> None:
    with recording(tmp_path / "t", "--pid", str(mariadb_pool.pid), "--ring-mb", "64"):
        counted = _load(mariadb_pool)
    _check(Run(tmp_path / "t"), counted)
