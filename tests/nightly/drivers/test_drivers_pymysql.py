# SPDX-License-Identifier: Apache-2.0
"""The shim of PyMySQL in the real driver, against a real server."""

from __future__ import annotations

import warnings
from contextlib import closing

import pymysql
import pymysql.cursors
import pytest

from qjoule_drivers import instrument, tag
from qjoule_drivers.ring import ERROR, OK
from servers.process import DatabaseServer
from tag_listener import Listener, status, tagged

pytestmark = [pytest.mark.beside, pytest.mark.server]


def test_pymysql_calls(mariadb: DatabaseServer, listener: Listener) -> None:
    with closing(mariadb.connect(database="mysql")) as connection, connection.cursor() as cursor:
        with tag(m="query"):
            cursor.execute("select 1")
        with tag(m="error"), pytest.raises(pymysql.err.ProgrammingError):
            cursor.execute("select nonsense from nowhere")
        with tag(m="ping"):
            connection.ping()
        with tag(m="commit"):
            connection.commit()
        cursor.execute("create temporary table drivers (a int, b varchar(9))")
        with tag(m="many"):
            cursor.executemany(
                "insert into drivers values (%s, %s)", [(n, "x") for n in range(100)]
            )
            cursor.executemany("update drivers set b = %s where a = %s", [("y", 1), ("z", 2)])
        cursor.execute("select connection_id()")
        (thread_id,) = cursor.fetchone()
    process = listener.only()
    begins = tagged(listener)
    assert [b.tags["m"] for b in begins] == ["query", "error", "ping", "commit", *["many"] * 3]
    assert [status(process, b) for b in begins] == [OK, ERROR, OK, OK, OK, OK, OK]
    assert {b.connection["server.session"] for b in begins} == {thread_id}
    assert {b.connection["db.system.name"] for b in begins} == {"mysql"}
    assert process.errors == process.dropped == 0


def test_pymysql_connections_are_told_apart(mariadb: DatabaseServer, listener: Listener) -> None:
    with (
        closing(mariadb.connect(database="mysql")) as unix,
        closing(mariadb.connect(tcp=True, database="mysql")) as tcp,
    ):
        for connection, name in ((unix, "unix"), (tcp, "tcp")):
            with tag(m=name), connection.cursor() as cursor:
                cursor.execute("select 1")
        port = tcp._sock.getsockname()[1]
    by_unix, by_tcp = (begin.connection for begin in tagged(listener))
    assert by_unix["network.transport"] == "unix"
    assert by_unix["server.address"] == str(mariadb.socket)
    assert by_unix["client.inode"] > 0
    assert by_tcp["network.transport"] == "tcp"
    assert (by_tcp["network.local.port"], by_tcp["server.port"]) == (port, mariadb.port)


def test_pymysql_streams_end_with_the_last_row(mariadb: DatabaseServer, listener: Listener) -> None:
    with closing(mariadb.connect(database="mysql")) as connection:
        cursor = connection.cursor(pymysql.cursors.SSCursor)
        with tag(m="stream"):
            cursor.execute("select seq from seq_1_to_1000")
        cursor.fetchmany(10)
        (begin,) = tagged(listener)
        assert begin.number not in listener.only().ends
        assert len(cursor.fetchall()) == 990
        assert status(listener.only(), begin) == OK
        with tag(m="abandoned"):
            cursor.execute("select seq from seq_1_to_1000")
        cursor.fetchone()
        with warnings.catch_warnings(), connection.cursor() as other, tag(m="next"):
            warnings.simplefilter("ignore")  # "Previous unbuffered result was left incomplete"
            other.execute("select 1")
        process = listener.only()
        assert [status(process, b) for b in tagged(listener)] == [OK, OK, OK]
        ends = [process.ends[b.number][0] for b in tagged(listener)]
        assert ends == sorted(ends)


def test_pymysql_several_statements_are_one_call(
    mariadb: DatabaseServer, listener: Listener
) -> None:
    several = pymysql.constants.CLIENT.MULTI_STATEMENTS
    with closing(mariadb.connect(client_flag=several)) as connection:
        cursor = connection.cursor()
        with tag(m="several"):
            cursor.execute("select 1; select 2; select 3")
        (begin,) = tagged(listener)
        assert begin.number not in listener.only().ends
        while cursor.nextset():
            pass
        assert status(listener.only(), begin) == OK


def test_pymysql_reconnects(mariadb: DatabaseServer, listener: Listener) -> None:
    with (
        closing(mariadb.connect(tcp=True, database="mysql")) as connection,
        connection.cursor() as cursor,
    ):
        with tag(m="before"):
            cursor.execute("select 1")
        connection.close()
        with pytest.raises(pymysql.err.InterfaceError), tag(m="closed"):
            cursor.execute("select 1")
        connection.connect()
        with tag(m="after"):
            cursor.execute("select 1")
    before, after = tagged(listener)
    assert before.connection != after.connection
    assert listener.only().errors == 0


def test_pymysql_comments(mariadb: DatabaseServer, listener: Listener) -> None:
    instrument("pymysql", in_statements=["m"])
    running = "select info from information_schema.processlist where info like '%m=%'"
    with (
        closing(mariadb.connect(database="mysql")) as connection,
        connection.cursor() as cursor,
        tag(m="it's /* a */ `tag`; --"),
    ):
        cursor.execute(running)
        ((statement,),) = cursor.fetchall()
    assert statement == running + "/*m='it%27s%20%2F%2A%20a%20%2A%2F%20%60tag%60%3B%20--'*/"
    assert len(tagged(listener)) == 1
