# SPDX-License-Identifier: Apache-2.0
"""64 clients at once, each with its own texts: every statement is counted under its own text.

10,000 statements for each protocol; 100,000 by `make test-counts`.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from servers.postgres import postgres_server
from servers.process import DatabaseServer, Unavailable
from tracing import long_runs
from tracing.at_once import at_once
from tracing.recording import Run, both_rungs

pytestmark = [pytest.mark.root, pytest.mark.server]

CLIENTS = 64
STATEMENTS = long_runs.statements(10_000)
ROUNDS = STATEMENTS // CLIENTS // 2
MARKER = re.compile(r"m_client_\d+")
TIMEOUT_S = 60.0


def _simple(connection: Any, table: str) -> None:
    for value in range(ROUNDS):
        connection.execute(f"select {value} from {table}")
        connection.execute(f"delete from {table} where a = {value}")


def _extended(connection: Any, table: str) -> None:
    for value in range(ROUNDS):
        connection.execute(f"select %s::int from {table}", [value], prepare=False)
        connection.execute(f"delete from {table} where a = %s", [value], prepare=False)


def _prepared(connection: Any, table: str) -> None:
    """The names of prepared statements are the same in all sessions."""
    for value in range(ROUNDS):
        connection.execute(f"select %s::int from {table}", [value], prepare=True)
        connection.execute(f"delete from {table} where a = %s", [value], prepare=True)


def _pipeline(connection: Any, table: str) -> None:
    """A pipeline of ten statements of one shape, then ten of another."""
    for first in range(0, ROUNDS, 10):
        for statement in (f"select %s::int from {table}", f"delete from {table} where a = %s"):
            with connection.pipeline():
                for value in range(first, min(first + 10, ROUNDS)):
                    connection.execute(statement, [value], prepare=True)


PROTOCOLS: dict[str, Callable[[Any, str], None]] = {
    "simple": _simple,
    "extended": _extended,
    "prepared": _prepared,
    "pipeline": _pipeline,
}


def _load(server: DatabaseServer, protocol: str) -> None:
    ready = threading.Barrier(CLIENTS)

    def client(number: int) -> None:
        with closing(server.connect(tcp=bool(number % 2))) as connection:
            ready.wait(TIMEOUT_S)
            PROTOCOLS[protocol](connection, f"m_client_{number}")

    at_once(client, range(CLIENTS))


def _counted(server: DatabaseServer) -> Counter[str]:
    """Counts by client from pg_stat_statements, which distinguishes names of tables."""
    counts: Counter[str] = Counter()
    with server.connect() as connection:
        for text, calls in connection.execute(
            "select query, calls from pg_stat_statements where query !~ 'create'"
        ):
            if found := MARKER.search(text):
                counts[found[0]] += calls
    return counts


def test_many_clients_of_every_protocol(tmp_path: Path) -> None:
    try:
        with postgres_server("max_connections=100") as server:
            with server.connect() as connection:
                connection.execute("create extension pg_stat_statements")
                for number in range(CLIENTS):
                    connection.execute(f"create table m_client_{number} (a int)")
            with both_rungs(tmp_path, server.pid):
                for protocol in PROTOCOLS:
                    _load(server, protocol)
            counted = _counted(server)
    except Unavailable as reason:
        pytest.skip(str(reason))
    expected = {f"m_client_{n}": 2 * ROUNDS * len(PROTOCOLS) for n in range(CLIENTS)}
    assert counted == expected
    for rung in ("socket", "symbol"):
        _check(Run(tmp_path / rung), expected)


def _check(run: Run, expected: dict[str, int]) -> None:
    queries = run.queries
    queries["marker"] = [
        found[0] if isinstance(text, str) and (found := MARKER.search(text)) else None
        for text in queries["text"]
    ]
    marked = queries[queries["marker"].notna()]
    assert dict(marked.groupby("marker")["executions"].sum()) == expected
    assert (marked.groupby("session")["marker"].nunique() == 1).all(), "a text in another's session"
    assert run.loss == {}
