# SPDX-License-Identifier: Apache-2.0
"""A MariaDB whose memory is not understood is asked for the texts of prepared statements."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from qjoule.studies.servers.unavailable import Unavailable
from servers.mariadb import mariadb_server
from servers.process import DatabaseServer
from tracing.mysql_client import mysql_client
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

SESSIONS, STATEMENTS, TURNS = 4, 12, 3
#: Its code shows where a session keeps its statements.
READ_FROM = b"_Z17mysqld_stmt_closeP3THDPc"
PASSWORD = "m_word-not-to-be-seen"


@pytest.fixture(scope="module")
def strange(
    no_server_is_left: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DatabaseServer]:
    """A build in which the function has another name, of the same length."""
    programs = tmp_path_factory.mktemp("programs")
    for name in ("mariadbd", "mariadb-install-db"):
        if (found := shutil.which(name, path="/usr/sbin:/usr/bin")) is None:
            pytest.skip(f"{name} is not installed")
        shutil.copy(found, programs)
    server = programs / "mariadbd"
    content = server.read_bytes()
    assert content.count(READ_FROM) == 1
    server.write_bytes(content.replace(READ_FROM, READ_FROM.replace(b"close", b"clOse")))
    try:
        with mariadb_server("--performance-schema=on", programs=programs) as started:
            with closing(started.connect()) as connection, connection.cursor() as cursor:
                cursor.execute(f"create user m_reader@'%' identified by '{PASSWORD}'")
                cursor.execute("grant select on performance_schema.* to m_reader@'%'")
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("told", [True, False], ids=["with credentials", "without"])
def test_texts_by_the_servers_view(strange: DatabaseServer, tmp_path: Path, told: bool) -> None:
    """The same number is another statement in each session. Without credentials each is a row."""
    file = tmp_path / "accounts.toml"
    file.write_text(f'["mariadb:{strange.port}"]\nuser = "m_reader"\npassword = "{PASSWORD}"\n')
    file.chmod(0o600)
    options = ["--pid", str(strange.pid), "--rung", "socket"]
    options += ["--credentials", str(file)] if told else []
    with ExitStack() as stack:
        clients = [stack.enter_context(mysql_client(strange.socket)) for _ in range(SESSIONS)]
        prepared = [
            [
                one.prepare(b"select ? as m_%d_%d, 'secret' as m_literal" % (at, number))
                for number in range(STATEMENTS)
            ]
            for at, one in enumerate(clients)
        ]
        with recording(tmp_path / "t", *options) as recorder:
            for turn in range(TURNS):
                for client, statements in zip(clients, prepared, strict=True):
                    for statement in statements:
                        client.execute(statement, turn)
    run = Run(tmp_path / "t")
    assert "--credentials" not in recorder.said
    counted = run.executions(command="execute")
    assert len(counted) == SESSIONS * STATEMENTS
    assert set(counted.values()) == {TURNS}
    if told:
        expected = {
            f"select ? as m_{at}_{number}, ? as m_literal"
            for at in range(SESSIONS)
            for number in range(STATEMENTS)
        }
        assert set(counted) == expected
    else:
        assert all(text.startswith("(prepared before tracing began") for text in counted)
        assert len(run.flagged(QueryFlag.NO_TEXT)) == counted.total()
    assert run.loss == {}
