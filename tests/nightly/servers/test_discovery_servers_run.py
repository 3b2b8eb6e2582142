# SPDX-License-Identifier: Apache-2.0
"""The servers that the tests start are real, answer, and stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qjoule.servers.discovery import find_servers
from qjoule.servers.supported import documented
from servers.mariadb import mariadb_server
from servers.process import DatabaseServer, processes_in

pytestmark = pytest.mark.server


@pytest.mark.parametrize("name", ["mariadb", "mariadb_pool", "mysql80", "postgres"])
@pytest.mark.parametrize("tcp", [False, True])
def test_each_server_answers(name: str, tcp: bool, request: pytest.FixtureRequest) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    connection = server.connect(tcp=tcp)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        assert cursor.fetchone()[0] == 42
    connection.close()
    assert Path(f"/proc/{server.pid}").exists()
    assert server.tgids[0] == server.pid


@pytest.mark.parametrize("name", ["mariadb", "mysql80", "postgres", "redis"])
def test_docs_name_the_versions_that_are_run(name: str, request: pytest.FixtureRequest) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    (found,) = (one for one in find_servers() if server.pid in one.tgids)
    (supported,) = (one for one in documented() if one.flavour == found.flavour)
    assert any(f"{found.version}.".startswith(f"{version}.") for version in supported.tested)


def test_the_pool_is_a_pool(mariadb_pool: DatabaseServer) -> None:
    with mariadb_pool.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@thread_handling")
        assert cursor.fetchone()[0] == "pool-of-threads"


def test_postgres_has_its_children_and_statistics(postgres: DatabaseServer) -> None:
    with postgres.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone()[0] in postgres.tgids
        cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        cursor.execute("SELECT count(*) FROM pg_stat_statements")
    if os.geteuid() == 0:
        assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


def test_a_server_ends_with_its_block_even_when_the_test_fails() -> None:
    with pytest.raises(ZeroDivisionError), mariadb_server() as server:
        directory = server.directory
        raise ZeroDivisionError
    assert not processes_in(directory)
    assert not directory.exists()


def test_a_server_can_be_killed_and_started_again() -> None:
    with mariadb_server() as server:
        first = server.pid
        assert processes_in(server.directory) == [first]
        server.kill()
        assert not processes_in(server.directory)
        server.start()
        assert server.pid != first
        server.connect().close()
