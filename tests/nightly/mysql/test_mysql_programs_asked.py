# SPDX-License-Identifier: Apache-2.0
"""A MySQL or MariaDB is asked which programs had sessions open before tracing began."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from qjoule.errors import QjouleError
from qjoule.servers.mysql import texts
from qjoule.servers.mysql.connections import connect
from qjoule.servers.mysql.unseen import KEY
from qjoule.servers.texts_by_id import Account
from qjoule.studies.servers.unavailable import Unavailable
from servers.mariadb import mariadb_server
from servers.mysql import mysql_server
from servers.process import DatabaseServer
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

STARTS: dict[str, Callable[..., AbstractContextManager[DatabaseServer]]] = {
    "mariadb": mariadb_server,
    "mysql": mysql_server,
}
PASSWORD = "p_word-not-to-be-seen"
WAYS = ("tcp", "local")


@pytest.fixture(scope="module", params=STARTS)
def server(
    request: pytest.FixtureRequest,
    no_server_is_left: None,  # noqa: ARG001
) -> Iterator[DatabaseServer]:
    try:
        with STARTS[request.param]("--performance-schema=on") as started:
            with closing(started.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("create user p_client@'%'")
                cursor.execute(f"create user p_reader@'%' identified by '{PASSWORD}'")
                cursor.execute("grant select on performance_schema.* to p_reader@'%'")
                cursor.execute("grant process on *.* to p_reader@'%'")
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


def _client(server: DatabaseServer, way: str, at: int) -> Any:
    where: dict[str, Any] = {"unix_socket": str(server.socket)}
    if way == "tcp":
        where = {"host": "127.0.0.1", "port": server.port}
    return pymysql.connect(
        **where, user="p_client", ssl_disabled=True, program_name=f"shop-{way}-{at}"
    )


@pytest.mark.parametrize("rung", ["socket", "symbol"])
@pytest.mark.parametrize("told", [True, False], ids=["with credentials", "without"])
def test_programs_by_the_servers_view(
    server: DatabaseServer, tmp_path: Path, rung: str, told: bool
) -> None:
    file = tmp_path / "accounts.toml"
    product = "mariadb" if "mariadb" in Path(server.argv[0]).name else "mysql"
    file.write_text(f'[{product}]\nuser = "p_reader"\npassword = "{PASSWORD}"\n')
    file.chmod(0o600)
    options = ["--pid", str(server.pid), "--rung", rung]
    options += ["--credentials", str(file)] if told else []
    programs = [(way, at) for way in WAYS for at in range(3)]
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(_client(server, *one))) for one in programs]
        with recording(tmp_path / "t", *options) as recorder:
            for (way, at), client in zip(programs, clients, strict=True):
                client.query(f"select 1 as {way}_{at}")
    assert "--credentials" not in recorder.said
    run = Run(tmp_path / "t")
    found = run.queries[run.queries["text"].str.contains(" as ")]
    names = {row["text"].rpartition(" ")[2]: row["application"] for _, row in found.iterrows()}
    if told:
        assert names == {f"{way}_{at}": f"shop-{way}-{at}" for way, at in programs}
        rows = attribute(tmp_path / "t", "--by", "application")["rows"]
        assert set(names.values()) <= {row["application"] for row in rows}
    else:
        assert len(found) == len(programs)
        assert found["application"].isna().all()
    assert run.loss == {}


def test_an_account_without_process_is_said_once(server: DatabaseServer, tmp_path: Path) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"create user p_few@'%' identified by '{PASSWORD}'")
        cursor.execute("grant select on performance_schema.* to p_few@'%'")
    file = tmp_path / "accounts.toml"
    product = "mariadb" if "mariadb" in Path(server.argv[0]).name else "mysql"
    file.write_text(f'[{product}]\nuser = "p_few"\npassword = "{PASSWORD}"\n')
    file.chmod(0o600)
    options = "--pid", str(server.pid), "--credentials", str(file)
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(_client(server, "tcp", at))) for at in range(3)]
        own: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": server.port,
            "user": "p_few",
            "password": PASSWORD,
        }
        mine = stack.enter_context(closing(pymysql.connect(**own, program_name="own")))
        with recording(tmp_path / "t", *options) as recorder:
            for client in (*clients, mine):
                client.query("select 1 as few")
    assert recorder.said.count("grant PROCESS to see them") == 1
    run = Run(tmp_path / "t")
    found = run.queries[run.queries["text"].str.contains(" as few")]
    assert len(found) == len(clients) + 1
    assert list(found["application"].dropna()) == ["own"]


def test_a_server_with_other_process_ids_names_nobody(server: DatabaseServer) -> None:
    """As in a container, or behind a forwarded port."""
    here = Account("p_reader", PASSWORD, process=server.pid)
    with closing(connect(here, server.port)) as source, closing(_client(server, "tcp", 7)):
        assert "shop-tcp-7" in [told.application for told in source.names()]
        assert source.unseen == ""
    other = Account("p_reader", PASSWORD, process=server.pid + 1)
    with (
        closing(connect(other, server.port)) as source,
        pytest.raises(QjouleError, match=f"it is {server.pid} there, {server.pid + 1} here"),
    ):
        list(source.names())
    with (
        closing(texts.connect(other, server.port)) as statements,
        pytest.raises(QjouleError, match="process ids"),
    ):
        statements.texts([KEY.pack(server.pid, 1)])
