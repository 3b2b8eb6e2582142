# SPDX-License-Identifier: Apache-2.0
"""Each connection is a session of its own, also where a server gives a new connection the thread
and the memory of the one before.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nightly.servers.test_all_servers import LOADS, Load
from servers.process import DatabaseServer
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

CONNECTIONS = 8
STATEMENTS = 3  #: of each connection

LOAD_OF = {
    **LOADS,
    "mariadb_pool": LOADS["mariadb"],
    "mysql8033": LOADS["mysql80"],
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mariadb", ("--rung", "socket")),
        ("mariadb", ("--rung", "symbol")),
        ("mariadb_pool", ("--rung", "symbol")),
        ("mysql80", ("--rung", "symbol")),
        ("mysql8033", ("--rung", "symbol")),
        ("postgres", ("--rung", "socket")),
        ("postgres", ("--rung", "symbol")),
        ("redis", ()),
        ("ferretdb", ()),
        ("cassandra", ("--agent",)),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one).strip("-") or "ordinary",
)
def test_every_connection_is_a_session(
    name: str, options: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    load = LOAD_OF[name]
    with recording(tmp_path / "t", "--pid", str(server.pid), *options):
        for _ in range(CONNECTIONS):
            _connect_once(server, load)
    run = Run(tmp_path / "t")
    found = run.queries[run.queries["text"].str.casefold() == load.shape.casefold()]
    by_session = found.groupby("session")["executions"].sum()
    assert by_session.tolist() == [STATEMENTS] * CONNECTIONS
    rows = attribute(tmp_path / "t", "--by", "session")["rows"]
    assert set(by_session.index.astype(str)) <= {row["session"] for row in rows}


def _connect_once(server: DatabaseServer, load: Load) -> None:
    with server.connect() as connection:
        for number in range(1, STATEMENTS + 1):
            load.run(connection, number)
