# SPDX-License-Identifier: Apache-2.0
"""What MySQL's commands result in beyond counts: outcomes, files, long data, users."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest

from servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing import mysql_story as day
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

FAKE = b"\x03select 1 as m_fake\n"  #: in a packet of number 0 this would be a command
PARTS = 600  #: packets of a file: their numbers wrap from 255 to 0 twice
LONG = b"x" * 100_000


@dataclass
class Told:
    run: Run
    rung: str
    flavour: str
    counted: dict[str, int] = field(default_factory=dict)


def _set_up(server: DatabaseServer) -> None:
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        cursor.execute("set global local_infile = 1")
        for database in ("m_one", "m_two"):
            cursor.execute(f"drop database if exists {database}")
            cursor.execute(f"create database {database}")
        cursor.execute("create table m_one.t (a bigint, b longblob)")
        cursor.execute("create table m_one.k (a int primary key)")
        cursor.execute("drop user if exists m_user")
        cursor.execute("create user m_user identified with mysql_native_password")
        cursor.execute("grant all on *.* to m_user")


def _tell(server: DatabaseServer) -> None:
    with mysql_client(server.socket, database="m_one", flags=wire.CONNECT_ATTRIBUTES) as client:
        _outcomes(client)
        _files(client)
        _long_data(client)
        if server.name == "mariadb":
            with mysql_client(server.socket, database="m_one", flags=wire.BULK) as bulk:
                statement = bulk.prepare(b"insert into t (a) /* m */ values (?) -- bulk\n")
                bulk.bulk_execute(statement, range(100))
                bulk.bulk_execute(statement, range(50))
    with mysql_client(port=server.port, database="m_one") as client:
        _changes(client)


def _outcomes(client: MysqlClient) -> None:
    client.query(b"insert into k values (1), (2) /* m */")
    for text in (b"insert into k (a) values (1)", b"select * from m_missing"):
        with suppress(MysqlError):
            client.query(text)
    client.query(b"select 1 as m_rows")
    statement = client.prepare(b"insert into k /* m_exec */ (k.a) values (?)")
    client.execute(statement, 3)
    with suppress(MysqlError):
        client.execute(statement, 3)


def _files(client: MysqlClient) -> None:
    for early in (False, True):
        statement = b"/* first */ load data local infile 'm' into table t character set binary (b)"
        client.load_file(statement, [FAKE] * PARTS, early=early)
        client.query(b"select 1 as m_after_file")


def _long_data(client: MysqlClient) -> None:
    statement = client.prepare(b"insert into t (b) values (concat(?, 'm_long'))")
    for _ in range(3):
        client.long_data(statement, 0, LONG)
        client.long_data(statement, 0, LONG)
        client.execute_long(statement)
    client.reset_statement(statement)
    client.close_statement(statement)
    client.simple(wire.COM_PING)


def _changes(client: MysqlClient) -> None:
    client.query(b"select 1 as m_in_one")
    client.init_db(b"m_two")
    client.query(b"select 1 as m_in_two")
    for refused in (lambda: client.init_db(b"m_none"), lambda: client.query(b"use m_none")):
        with suppress(MysqlError):
            refused()
        client.query(b"select 1 as m_still_two")
    client.query(b"/* app */ USE `m_one`")
    client.query(b"select 1 as m_again_one")
    client.query(b"select 1; use m_two")
    client.query(b"select 1 as m_again_two")
    client.simple(wire.COM_RESET_CONNECTION)
    client.query(b"select 1 as m_reset_two")
    client.change_user(b"m_user", b"m_one")
    client.query(b"select 1 as m_user_one")


def _told(server: DatabaseServer, directory: Path, flavour: str) -> dict[str, Told]:
    _set_up(server)
    before = day.status(server)
    with both_rungs(directory, server.pid):
        _tell(server)
    after = day.status(server)
    counted = {name: after[name] - before.get(name, 0) for name in after}
    return {
        rung: Told(Run(directory / rung), rung, flavour, counted) for rung in ("socket", "symbol")
    }


@pytest.fixture(scope="module")
def on_mariadb(
    mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _told(mariadb, tmp_path_factory.mktemp("mariadb"), "mariadb")


@pytest.fixture(scope="module")
def on_mysql80(
    mysql80: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _told(mysql80, tmp_path_factory.mktemp("mysql"), "mysql")


@pytest.fixture(scope="module")
def on_mariadb_pool(
    mariadb_pool: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    """A pool's threads serve any client that has sent: only the symbol rung can follow. Compressed
    too.
    """
    directory = tmp_path_factory.mktemp("pool")
    _set_up(mariadb_pool)
    before = day.status(mariadb_pool)
    with recording(directory / "t", "--pid", str(mariadb_pool.pid), "--rung", "symbol"):
        _tell(mariadb_pool)
        with mysql_client(mariadb_pool.socket, flags=wire.ZLIB) as client:
            for number in range(20):
                client.query(b"select %d as m_compressed; set @a = 1" % number)
    after = day.status(mariadb_pool)
    counted = {name: after[name] - before.get(name, 0) for name in after}
    return {"symbol": Told(Run(directory / "t"), "symbol", "mariadb", counted)}


@pytest.fixture(
    params=[(server, rung) for server in ("mariadb", "mysql80") for rung in ("socket", "symbol")]
    + [("mariadb_pool", "symbol")],
    ids="-".join,
)
def told(request: pytest.FixtureRequest) -> Told:
    server, rung = request.param
    result: Told = request.getfixturevalue(f"on_{server}")[rung]
    return result


def _statuses(told: Told, shape: str) -> list[str | None]:
    """The statuses in order, None where not known."""
    found = told.run.queries
    found = found[(found["text"] == shape) & (found["executions"] > 0)].sort_values("begin_ns")
    return [None if pd.isna(status) else status for status in found["status"]]


def test_nothing_is_lost(told: Told) -> None:
    assert told.run.loss == {}


def test_outcomes_are_told_where_the_reply_says(told: Told) -> None:
    assert _statuses(told, "insert into k values (?+)") == ["ok"]
    assert _statuses(told, "insert into k(a) values (?+)") == ["error"]
    assert _statuses(told, "select * from m_missing") == ["error"]
    assert _statuses(told, "select ? as m_rows") == [None], "rows may yet end in an error"
    # MySQL passes executions on without the location of the connection's buffer.
    seen = told.rung == "socket" or told.flavour == "mariadb"
    expected = ["ok", "error"] if seen else [None, None]
    assert _statuses(told, "insert into k(k.a) values (?+)") == expected


def test_a_file_is_part_of_its_statement(told: Told) -> None:
    """Also if it has more than 255 packets, is sent early, or a comment precedes LOAD."""
    assert told.run.having("m_fake").empty
    loads = told.run.having("load data local").sort_values("begin_ns")
    assert len(loads) == 2
    assert told.run.having("m_after_file")["executions"].sum() == 2
    assert list(loads["status"]) == ["ok", "ok"]
    after = told.run.having("m_after_file").sort_values("begin_ns")
    assert (loads["end_ns"].to_numpy() <= after["begin_ns"].to_numpy()).all()


def test_what_serves_a_statement_is_its_work_and_no_execution(told: Told) -> None:
    rows = told.run.having("insert into t(b)")
    assert rows["executions"].sum() == 3
    executed = rows[rows["command"] == "execute"]
    assert len(executed) == 3 + 6 + 2, "executions, long data, RESET and CLOSE"


def test_a_bulk_is_one_execution_as_the_server_counts(told: Told) -> None:
    if told.flavour != "mariadb":
        pytest.skip("COM_STMT_BULK_EXECUTE is MariaDB's")
    bulks = told.run.having("insert into t(a)")
    assert bulks["executions"].sum() == 2
    executed = told.run.queries[told.run.queries["command"] == "execute"]
    assert executed["executions"].sum() == told.counted["Com_stmt_execute"]


def test_database_and_user_follow_the_session(on_mariadb: dict[str, Told]) -> None:
    _check_names(on_mariadb)


def test_database_and_user_follow_the_session_on_mysql(on_mysql80: dict[str, Told]) -> None:
    _check_names(on_mysql80)


def test_database_and_user_follow_the_session_in_a_pool(on_mariadb_pool: dict[str, Told]) -> None:
    told = on_mariadb_pool["symbol"]
    assert told.run.having("m_compressed")["executions"].sum() == 20
    expected = _NAMES | {("m_compressed", "root", None)}
    assert _names(told) == expected


_NAMES = {
    ("m_in_one", "root", "m_one"),
    ("m_in_two", "root", "m_two"),
    ("m_still_two", "root", "m_two"),
    ("m_again_one", "root", "m_one"),
    ("m_again_two", "root", "m_two"),
    ("m_reset_two", "root", "m_two"),
    ("m_user_one", "m_user", "m_one"),
    ("m_rows", "root", "m_one"),
    ("m_after_file", "root", "m_one"),
}


def _names(told: Told) -> set[tuple[str, str | None, str | None]]:
    queries = told.run.queries
    marked = queries[queries["text"].str.contains(" as m_", na=False)]
    markers = marked["text"].str.extract(r" as (m_\w+)")[0]
    rows = zip(markers, marked["user"], marked["database"], strict=True)
    return {(m, *(None if pd.isna(name) else name for name in names)) for m, *names in rows}


def _check_names(on: dict[str, Told]) -> None:
    for told in on.values():
        assert _names(told) == _NAMES, told.rung
    sessions = on["socket"].run.trace.pandas("sessions")
    assert set(sessions["application"].dropna()) == {"m_wire_py"}
    opened = sessions[sessions["event"] == "open"]
    assert set(opened["address"].dropna()) == {"127.0.0.1"}
    assert opened["address"].isna().any(), "unix sockets have none"
    symbols = on["symbol"].run.trace.pandas("sessions")
    assert set(symbols["event"]) == {"met", "user", "database", "kept"}
