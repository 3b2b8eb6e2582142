# SPDX-License-Identifier: Apache-2.0
"""What MySQL or MariaDB is queried for with --credentials: the programs of sessions from before,
and, where its memory is not understood, the texts of prepared statements.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from qjoule.contract import QueryFlag
from qjoule.errors import QjouleError
from qjoule.servers.client import Account
from qjoule.servers.mysql.client import Connections, PreparedStatements
from qjoule.servers.mysql.wire import KEY
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import mysql_server, or_skip
from tracing.mysql_client import mysql_client
from tracing.recording import Run, attribute, credentials, recording, until_named

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

PASSWORD = "p_word-not-to-be-seen"
VIEWS = "--performance-schema=on"
SESSIONS, STATEMENTS, TURNS = 4, 12, 3
ATTACH_MODES = ("socket", "symbol")
PROGRAMS = [(way, at) for way in ("tcp", "local") for at in range(3)]
USERS = (
    "create user p_client@'%'",
    f"create user p_reader@'%' identified by '{PASSWORD}'",
    "grant select on performance_schema.* to p_reader@'%'",
    "grant process on *.* to p_reader@'%'",
)


def _strange_mariadb(place: Path) -> AbstractContextManager[DatabaseServer]:
    """A build in which the function whose code shows where statements are has another name, of the
    same length.
    """
    name = b"_Z17mysqld_stmt_closeP3THDPc"
    for program in ("mariadbd", "mariadb-install-db"):
        if (installed := shutil.which(program, path="/usr/sbin:/usr/bin")) is None:
            raise Unavailable(f"{program} is not installed")
        shutil.copy(installed, place)
    content = (place / "mariadbd").read_bytes()
    assert content.count(name) == 1
    (place / "mariadbd").write_bytes(content.replace(name, name.replace(b"close", b"clOse")))
    return mariadb_server(VIEWS, programs=place)


@dataclass
class Trials:
    server: DatabaseServer
    product: str
    runs: dict[tuple[str, bool], Run] = field(default_factory=dict)  #: by attach mode, and if asked
    directory: Path = Path()


def _credentials(directory: Path, product: str) -> tuple[str, ...]:
    account = f'user = "p_reader"\npassword = "{PASSWORD}"\nusers = ["mysql", "nobody"]'
    return credentials(directory, f"[{product}]\n{account}\n")


def _client(server: DatabaseServer, way: str, at: int) -> Any:
    where: dict[str, Any] = {"unix_socket": str(server.socket)}
    if way == "tcp":
        where = {"host": "127.0.0.1", "port": server.port}
    name = f"shop-{way}-{at}"
    return pymysql.connect(**where, user="p_client", ssl_disabled=True, program_name=name)


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def trials(
    request: pytest.FixtureRequest,
    no_server_is_left: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Trials]:
    """Four recordings of the same clients: each attach mode, with credentials and without."""
    directory = tmp_path_factory.mktemp("asked")
    with ExitStack() as stack:
        with or_skip():
            started = (
                mysql_server(VIEWS) if request.param == "mysql" else _strange_mariadb(directory)
            )
            server = stack.enter_context(started)
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            for statement in USERS:
                cursor.execute(statement)
        trials = Trials(server, request.param, directory=directory)
        drivers = [stack.enter_context(closing(_client(server, *program))) for program in PROGRAMS]
        clients = [stack.enter_context(mysql_client(server.socket)) for _ in range(SESSIONS)]
        prepared = [
            [
                client.prepare(b"select ? as m_%d_%d, 'secret' as m_literal" % (at, number))
                for number in range(STATEMENTS)
            ]
            for at, client in enumerate(clients)
        ]
        with ExitStack() as recordings:
            recorders = {}
            for attach_mode in ATTACH_MODES:
                for with_credentials in (True, False):
                    options = ["--pid", str(server.pid), "--attach", attach_mode]
                    options += _credentials(directory, request.param) if with_credentials else ()
                    recorders[attach_mode, with_credentials] = recordings.enter_context(
                        recording(directory / f"{attach_mode}-{with_credentials}", *options)
                    )
            for driver in drivers:
                driver.query("select 1 as early")
            for attach_mode in ATTACH_MODES:
                until_named(
                    directory / f"{attach_mode}-True", *(f"shop-{way}-{at}" for way, at in PROGRAMS)
                )
            for (way, at), driver in zip(PROGRAMS, drivers, strict=True):
                driver.query(f"select 1 as {way}_{at}")
            for turn in range(TURNS):
                for client, numbers in zip(clients, prepared, strict=True):
                    for number in numbers:
                        client.execute(number, turn)
        for (attach_mode, with_credentials), recorder in recorders.items():
            assert "--credentials" not in recorder.messages
            trials.runs[attach_mode, with_credentials] = Run(
                directory / f"{attach_mode}-{with_credentials}"
            )
        yield trials


@pytest.mark.parametrize("attach_mode", ATTACH_MODES)
def test_programs_by_the_servers_view(trials: Trials, attach_mode: str) -> None:
    names = {}
    for with_credentials in (True, False):
        run = trials.runs[attach_mode, with_credentials]
        queries = run.queries[run.queries["text"].str.contains(" as (?:tcp|local)_", na=False)]
        assert len(queries) == len(PROGRAMS)
        assert run.loss.keys() <= {"opaque_session"}, "the other recordings ask, too"
        marks = queries["text"].str.rpartition(" ")[2]
        names[with_credentials] = dict(zip(marks, queries["application"], strict=True))
    assert names[True] == {f"{way}_{at}": f"shop-{way}-{at}" for way, at in PROGRAMS}
    assert not [name for name in names[False].values() if isinstance(name, str)]
    rows = attribute(trials.directory / f"{attach_mode}-True", "--by", "application")["rows"]
    assert set(names[True].values()) <= {row["application"] for row in rows}


def test_texts_by_the_servers_view(trials: Trials) -> None:
    """The same statement number means another statement in each session; unknown ones are rows."""
    expected = {
        f"select ? as m_{at}_{number}, ? as m_literal"
        for at in range(SESSIONS)
        for number in range(STATEMENTS)
    }
    for with_credentials in (True, False):
        run = trials.runs["socket", with_credentials]
        counted = run.executions(command="execute")
        assert len(counted) == len(expected)
        assert set(counted.values()) == {TURNS}
        if with_credentials or trials.product == "mysql":  # its memory is understood
            assert set(counted) == expected
        else:
            assert all(text.startswith("(prepared before tracing began") for text in counted)
            assert len(run.flagged(QueryFlag.NO_TEXT)) == counted.total()


def test_a_server_with_other_process_ids_names_nobody(trials: Trials) -> None:
    """This is so in a container, or behind a forwarded port."""
    server = trials.server
    account = Account("p_reader", PASSWORD, process=server.pid)
    with closing(Connections(account, server.port)) as source, closing(_client(server, "tcp", 7)):
        assert "shop-tcp-7" in [name.application for name in source.names()]
        assert source.unseen == ""
    other = Account("p_reader", PASSWORD, process=server.pid + 1)
    with (
        closing(Connections(other, server.port)) as source,
        pytest.raises(QjouleError, match=f"it is {server.pid} there, {server.pid + 1} here"),
    ):
        list(source.names())
    with (
        closing(PreparedStatements(other, server.port)) as statements,
        pytest.raises(QjouleError, match="process ids"),
    ):
        statements.texts([KEY.pack(server.pid, 1)])
