# SPDX-License-Identifier: Apache-2.0
"""Tags sent to the server itself, in each server's own way.

The server sees them, and they do no harm to its prepared statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
import redis as redis_driver
import redis.asyncio as redis_asyncio
from cassandra.protocol import OptionsMessage, QueryMessage

from qjoule_drivers import instrument, tag
from qjoule_drivers.shims.cassandra import _put_payload
from servers.process import DatabaseServer
from tag_listener import Listener

pytestmark = [pytest.mark.beside, pytest.mark.server]
HOSTILE = "it's */ ; -- \\ \x00\n%s ünï" + "x" * 10_000


def _application_name(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute(
        "select application_name from pg_stat_activity where pid = pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return str(row[0])


def test_postgresql_s_application_name(postgres: DatabaseServer, listener: Listener) -> None:
    instrument("psycopg", in_connections=["release", "job"])
    with tag(release="1.4", job="night ly", tenant="42"):
        with postgres.connect() as connection:
            assert _application_name(connection) == "job=night%20ly,release=1.4"
        with postgres.connect(application_name="its own") as connection:
            assert _application_name(connection) == "its own"
    with postgres.connect() as connection:
        assert "=" not in _application_name(connection)
    with tag(release=HOSTILE, job="j"), postgres.connect() as connection:
        assert _application_name(connection) == "job=j"  # what does not fit is omitted entirely
    assert listener.only().errors == 0


def test_postgresql_s_application_name_of_an_asynchronous_connection(
    postgres: DatabaseServer, listener: Listener
) -> None:
    instrument("psycopg", in_connections=["release"])

    async def ask() -> str:
        connection = await psycopg.AsyncConnection.connect(
            host="127.0.0.1", port=postgres.port, dbname="postgres", user="postgres"
        )
        async with connection:
            cursor = await connection.execute("show application_name")
            row = await cursor.fetchone()
            assert row is not None
            return str(row[0])

    with tag(release="1.4"):
        assert asyncio.run(ask()) == "release=1.4"
    assert listener.only().errors == 0


def test_postgresql_s_comments_leave_prepared_statements_alone(
    postgres: DatabaseServer, listener: Listener
) -> None:
    instrument("psycopg", in_statements=["endpoint"])
    with postgres.connect() as connection:
        with tag(endpoint="check out", tenant="7"):
            for number in range(20):
                connection.execute("select %s::int as carried", (number,))
            row = connection.execute(
                "select query from pg_stat_activity where pid = pg_backend_pid()"
            ).fetchone()
        with connection.cursor() as cursor:
            cursor.execute(
                "select statement, generic_plans + custom_plans from pg_prepared_statements"
                " where statement like '%% as carried%%'"
            )
            prepared = cursor.fetchall()
    assert row is not None
    assert row[0].endswith("/*endpoint='check%20out'*/")
    # The driver prepares a statement on its sixth use, and only once.
    assert prepared == [("select $1::int as carried/*endpoint='check%20out'*/", 15)]
    assert listener.only().errors == 0


def _spied(seen: list[bytes], send: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Wraps `send` to also record what is sent."""

    def spy(data: bytes) -> object:
        seen.append(bytes(data))
        return send(data)

    return spy


def test_mysql_s_connection_attributes(mariadb: DatabaseServer, listener: Listener) -> None:
    instrument("pymysql", in_connections=["release", "job"])
    sent: list[bytes] = []
    with tag(release="1.4", job=HOSTILE, tenant="42"), closing(mariadb.connect()) as opened:
        connection: Any = opened
        connection.write_packet = _spied(sent, connection.write_packet)
        connection.connect()
        with connection.cursor() as cursor:
            cursor.execute("select 1")
            assert cursor.fetchall() == ((1,),)
    assert b"\x0eqjoule.release\x031.4" in sent[0]
    assert b"qjoule.job" in sent[0]
    assert b"tenant" not in sent[0]
    assert listener.only().errors == 0


@pytest.mark.parametrize("name", ["mariadb", "mysql80"])
def test_servers_without_query_attributes_get_comments(
    name: str, request: pytest.FixtureRequest, listener: Listener
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    instrument("pymysql", in_statements=["endpoint"])
    with tag(endpoint="x"), closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("select info from information_schema.processlist where id = connection_id()")
        ((text,),) = cursor.fetchall()
    assert text.endswith("/*endpoint='x'*/")
    assert listener.only().errors == 0


def test_redis_s_client_name(redis: DatabaseServer, listener: Listener) -> None:
    instrument("redis", in_connections=["release", "job"])
    with tag(release="1.4", job="a b", tenant="42"), closing(redis.connect()) as client:
        assert client.client_getname() == "job=a%20b,release=1.4"
    with tag(release="1.4"), closing(redis.connect(client_name="its-own")) as own:
        assert own.client_getname() == "its-own"
    with tag(release=HOSTILE), closing(redis.connect()) as client:
        assert client.client_getname() is None  # too long: omitted
    with closing(redis.connect()) as client:
        assert client.client_getname() is None

    async def ask() -> Any:
        async with redis_asyncio.Redis(host="127.0.0.1", port=redis.port) as client:
            return await client.client_getname()

    with tag(release="1.4"):
        assert asyncio.run(ask()) == "release=1.4"
    assert listener.only().errors == 0


def test_cql_s_custom_payload(cassandra: DatabaseServer, listener: Listener) -> None:
    """It is in the frames sent, and nothing is prepared twice because of it."""
    instrument("cassandra", in_statements=["endpoint"])
    with cassandra.connect() as client:
        statement = client.session.prepare("select key from system.local where key = ?")
        frames: list[bytes] = []
        for pool in client.session._pools.values():
            for connection in pool.get_connections():
                connection.push = _spied(frames, connection.push)
        prepared = "select count(*) from system.prepared_statements"
        (before,) = client.execute(prepared).one()
        for endpoint in ("a", "b", "c"):
            with tag(endpoint=endpoint, tenant="7"):
                assert len(list(client.execute(statement, ("local",)))) == 1
        (after,) = client.execute(prepared).one()
    assert after == before
    mark = b"qjoule.endpoint\x00\x00\x00\x01"
    assert [frame.split(mark)[1][:1] for frame in frames if mark in frame] == [b"a", b"b", b"c"]
    assert not any(b"tenant" in frame for frame in frames)
    assert listener.only().errors == 0


@pytest.mark.usefixtures("listener")
def test_cql_s_custom_payload_only_where_the_protocol_has_one() -> None:
    instrument("cassandra", in_statements=["endpoint"])
    with tag(endpoint="x"):
        query, options = QueryMessage("select 1", 1), OptionsMessage()
        _put_payload(query, 3)
        _put_payload(options, 4)
        assert (query.custom_payload, options.custom_payload) == (None, None)
        query.custom_payload = {"qjoule.endpoint": b"its own", "other": b"1"}
        _put_payload(query, 4)
        assert query.custom_payload == {"qjoule.endpoint": b"its own", "other": b"1"}


def test_redis_s_health_checks_and_reconnections_leave_the_call_its_tags(
    redis: DatabaseServer, listener: Listener
) -> None:
    """What the driver sends by itself is recorded as separate calls, before the command's."""
    with closing(redis.connect(health_check_interval=1)) as client:
        connection: Any = client.connection
        connection.next_health_check = 0
        with tag(m="checked"):
            assert client.set("carriers", "1")
        connection.disconnect()
        with tag(m="reconnected"):
            connection.send_command("PING")
            assert connection.read_response() in (b"PONG", "PONG")
    process = listener.only()
    begins = [begin for begin in process.begins if "m" in begin.tags]
    for name, at_least in (("checked", 2), ("reconnected", 2)):
        calls = [begin for begin in begins if begin.tags["m"] == name]
        assert len(calls) >= at_least
        ends = [process.ends[call.number][0] for call in calls]
        # The last one is the command's own: it begins when all the others have ended.
        assert calls[-1].t_ns >= max(ends[:-1])
        assert ends[-1] == max(ends)
    assert process.errors == 0


def test_redis_that_cannot_be_reached_fails_as_before(listener: Listener) -> None:
    client = redis_driver.Redis(host="127.0.0.1", port=1)
    with pytest.raises(redis_driver.ConnectionError), tag(m="x"):
        client.ping()
    assert not listener.processes or listener.only().errors == 0
