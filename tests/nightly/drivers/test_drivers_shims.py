# SPDX-License-Identifier: Apache-2.0
"""The shims in real drivers, against real servers: each call with its connection, tags and end."""

from __future__ import annotations

import asyncio
import gc
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import pymysql.cursors
import pytest
import redis as redis_driver
import redis.asyncio as redis_asyncio
from cassandra.query import BatchStatement

from qjoule_drivers import instrument, state, tag, uninstrument
from qjoule_drivers.ring import ERROR, OK
from servers.process import DatabaseServer
from tag_listener import Listener, status, tagged

pytestmark = [pytest.mark.beside, pytest.mark.server]


def test_taken_off_again(mariadb: DatabaseServer, listener: Listener) -> None:
    connections: Any = pymysql.connections
    original = connections.Connection._execute_command
    uninstrument()
    assert "wrapped" not in " ".join(state().values())
    with closing(mariadb.connect(database="mysql")) as connection:
        with tag(m="untold"):
            connection.query("select 1")
        instrument()
        instrument()
        assert connections.Connection._execute_command is not original
        with tag(m="told"):
            connection.query("select 1")
    assert [begin.tags["m"] for begin in tagged(listener)] == ["told"]


def test_nobody_listens(mariadb: DatabaseServer, listener: Listener) -> None:
    listener.close()
    with (
        closing(mariadb.connect(database="mysql")) as connection,
        connection.cursor() as cursor,
        tag(m="x"),
    ):
        cursor.execute("select 1")
        assert cursor.fetchall() == ((1,),)


def test_psycopg_calls(postgres: DatabaseServer, listener: Listener) -> None:
    with postgres.connect() as connection:
        pid = connection.info.backend_pid
        with tag(m="query"):
            connection.execute("select 1")
        with tag(m="error"), pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from nowhere")
        with tag(m="rollback"):
            connection.rollback()
        with tag(m="many"), connection.cursor() as cursor:
            cursor.execute("create temp table drivers (a int)")
            cursor.executemany("insert into drivers values (%s)", [(n,) for n in range(50)])
            with cursor.copy("copy drivers from stdin") as copy:
                copy.write_row((7,))
        with (
            tag(m="stream"),
            connection.transaction(),
            connection.cursor("named") as cursor,
        ):
            cursor.itersize = 10
            assert len(list(cursor.execute("select * from drivers"))) == 51
        with tag(m="pipeline"), connection.pipeline():
            for n in range(5):
                connection.execute("select %s::int", (n,))
    process = listener.only()
    begins = tagged(listener)
    names = [begin.tags["m"] for begin in begins]
    assert names[:3] == ["query", "error", "rollback"]
    assert {"many", "stream", "pipeline"} <= set(names)
    assert names.count("stream") >= 6
    assert status(process, begins[1]) == ERROR
    assert {b.connection["server.session"] for b in begins} == {pid}
    assert all(b.number in process.ends for b in begins)
    assert process.errors == 0


def test_psycopg_asynchronous(postgres: DatabaseServer, listener: Listener) -> None:
    async def ask(name: str) -> None:
        connection = await psycopg.AsyncConnection.connect(
            host=str(postgres.socket.parent), port=postgres.port, dbname="postgres", user="postgres"
        )
        async with connection:
            for _ in range(20):
                with tag(m=name, again="1"):
                    await connection.execute("select 1")
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(ask("a"), ask("b"))

    asyncio.run(both())
    begins = tagged(listener)
    by_session = {b.connection["server.session"]: b.tags["m"] for b in begins}
    assert sorted(by_session.values()) == ["a", "b"]
    assert all(by_session[b.connection["server.session"]] == b.tags["m"] for b in begins)


def test_redis_calls(redis: DatabaseServer, listener: Listener) -> None:
    with closing(redis.connect()) as client:
        client.ping()
        with tag(m="set"):
            client.set("drivers", "1")
        with tag(m="pipeline"), client.pipeline() as pipeline:
            for n in range(10):
                pipeline.incrby("drivers", n)
            pipeline.execute()
        with tag(m="error"), pytest.raises(redis_driver.ResponseError):
            client.execute_command("NONSENSE")
    process = listener.only()
    begins = tagged(listener)
    # If a call has to open its connection first, the server's greeting counts for that call.
    assert list(dict.fromkeys(b.tags["m"] for b in begins)) == ["set", "pipeline", "error"]
    last = {begin.tags["m"]: begin for begin in begins}
    assert [status(process, last[m]) for m in last] == [OK, OK, ERROR]
    assert begins[0].connection["network.transport"] == "unix"
    assert process.errors == 0


def test_redis_asynchronous(redis: DatabaseServer, listener: Listener) -> None:
    async def ask() -> None:
        async with redis_asyncio.Redis(host="127.0.0.1", port=redis.port) as client:
            await client.ping()

            async def work(name: str) -> None:
                for _ in range(20):
                    with tag(m=name):
                        await client.get(name)

            await asyncio.gather(*(work(f"w{n}") for n in range(4)))

    asyncio.run(ask())
    names = [begin.tags["m"] for begin in tagged(listener)]
    assert sorted(set(names)) == ["w0", "w1", "w2", "w3"]
    assert all(names.count(name) >= 20 for name in set(names))
    assert {b.connection["server.port"] for b in tagged(listener)} == {redis.port}


def test_cassandra_calls(cassandra: DatabaseServer, listener: Listener) -> None:
    with cassandra.connect() as client:
        client.execute(
            "create keyspace drivers with replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        client.execute("create table drivers.t (a int primary key, b text)")
        prepared = client.session.prepare("insert into drivers.t (a, b) values (?, ?)")
        with tag(m="async"):
            futures = [
                client.session.execute_async(prepared, (n, "x"), custom_payload=None)
                for n in range(50)
            ]
        for future in futures:
            future.result()
        with tag(m="paged"):
            statement = client.session.prepare("select a from drivers.t")
            statement.fetch_size = 10
            assert len(list(client.execute(statement))) == 50
        batch = BatchStatement()
        for n in range(3):
            batch.add(prepared, (n, "y"))
        with tag(m="batch"):
            client.session.execute(batch)
        with tag(m="error"), pytest.raises(Exception, match="does not exist"):
            client.execute("select * from drivers.nothing")
    process = listener.only()
    begins = tagged(listener)
    names = [begin.tags["m"] for begin in begins]
    assert names.count("async") == 50
    assert names.count("paged") >= 6  # its preparation, and five pages
    assert (names.count("batch"), names.count("error")) == (1, 1)
    assert all(begin.number in process.ends for begin in begins)
    assert {status(process, b) for b in begins if b.tags["m"] != "error"} == {OK}
    assert {status(process, b) for b in begins if b.tags["m"] == "error"} == {ERROR}
    assert all(begin.stream > 0 for begin in begins)
    assert process.errors == 0


def test_objects_made_before_live_on_after(mariadb: DatabaseServer, listener: Listener) -> None:
    """A connection from before `instrument()` is used, and collected after `uninstrument()`."""
    uninstrument()
    connection: Any = mariadb.connect(database="mysql")
    cursor: Any = connection.cursor(pymysql.cursors.SSCursor)
    cursor.execute("select seq from seq_1_to_100")
    instrument()
    cursor.fetchone()
    assert len(cursor.fetchall()) == 99
    with tag(m="now"):
        cursor.execute("select seq from seq_1_to_100")
    uninstrument()
    assert len(cursor.fetchall()) == 100
    del cursor, connection
    gc.collect()
    assert len(tagged(listener)) == 1
