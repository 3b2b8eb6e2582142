# SPDX-License-Identifier: Apache-2.0
"""Two versions of one server at once: each is counted exactly, and no row mixes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from servers.mariadb import mariadb_server
from servers.mysql import mysql_server
from servers.postgres import postgres_server
from servers.process import DatabaseServer
from tracing.recording import Run, attribute, recording
from tracing.releases import releases, running

pytestmark = [pytest.mark.root, pytest.mark.server]

EXECUTED = (300, 170)
Pair = tuple[DatabaseServer, DatabaseServer]


@pytest.fixture(params=["mysql", pytest.param("postgres", marks=pytest.mark.versions)])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """MariaDB and MySQL, or PostgreSQL of the distribution and of a newer suite."""
    with ExitStack() as stack:
        if request.param == "mysql":
            yield stack.enter_context(mariadb_server()), stack.enter_context(mysql_server())
        else:
            newer = running(releases("postgres")[0].values[0])
            yield stack.enter_context(postgres_server()), stack.enter_context(newer)


def _send(server: DatabaseServer, count: int) -> None:
    with closing(server.connect(tcp=True)) as connection, connection.cursor() as cursor:
        for value in range(count):
            cursor.execute(f"select {value} as m_both")


def test_each_is_counted_exactly(pair: Pair, tmp_path: Path) -> None:
    pids = [option for server in pair for option in ("--pid", str(server.pid))]
    with recording(tmp_path / "t", *pids, "--ids"):
        clients = [
            threading.Thread(target=_send, args=work) for work in zip(pair, EXECUTED, strict=True)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert Run(tmp_path / "t").loss == {}
    rows = attribute(tmp_path / "t", "--by", "server,fingerprint")["rows"]
    counted = {row["server"]: row["calls"] for row in rows if "m_both" in row["shape"]}
    ports = {server.port: count for server, count in zip(pair, EXECUTED, strict=True)}
    assert {int(name.rpartition(":")[2]): calls for name, calls in counted.items()} == ports
    traced = Run(tmp_path / "t").trace.meta.servers
    assert len({(one.kind, one.version) for one in traced}) == 2
    ids = next(row["ids"] for row in rows if "m_both" in row["shape"])
    if "mysql_digest" in ids:
        found = {one["of"]: one["id"] for one in ids["mysql_digest"]}
        assert [found[of] is None for of in sorted(found)] == [True, False], "MariaDB has none"
