# SPDX-License-Identifier: Apache-2.0
"""The shims of PyMySQL and redis-py in the real drivers, against real servers.

Wrappers of the other drivers are tested around fakes: tests/fast/drivers/test_drivers_wrappers.py.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pymysql
import pymysql.cursors
import pytest
import redis as redis_driver
import redis.asyncio as redis_asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, set_trace, state, tag, uninstrument
from qjoule_drivers.ring import ERROR, OK
from qjoule_studies.servers.process import DatabaseServer
from tag_listener import Begin, Listener, settle, status, tagged

pytestmark = [pytest.mark.beside, pytest.mark.server]
HOSTILE = (
    "'; drop table precious; --",
    "*/; drop table precious; /*",
    "%27*/ ; drop table precious",
    "\\'; drop table precious;",
    "nul\x00'*/; drop table precious",
    "\ud800\u2028" + "'*/ drop table precious;" * 500,
)
MANY = pymysql.constants.CLIENT.MULTI_STATEMENTS


# ---- PyMySQL ----------------------------------------------------------------------------------


def test_pymysql_calls_have_their_connection_tags_and_end(
    mariadb: DatabaseServer, listener: Listener
) -> None:
    with (
        closing(mariadb.connect(tcp=True, database="mysql")) as tcp,
        closing(mariadb.connect(database="mysql")) as connection,
        connection.cursor() as cursor,
    ):
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
            rows = [(n, "x") for n in range(100)]
            cursor.executemany("insert into drivers values (%s, %s)", rows)
            cursor.executemany("update drivers set b = %s where a = %s", [("y", 1), ("z", 2)])
        cursor.execute("select connection_id()")
        (thread_id,) = cursor.fetchone()
        with tag(m="tcp"):
            tcp.query("select 1")
        port = tcp._sock.getsockname()[1]
    process = listener.only()
    *begins, by_tcp = tagged(listener)
    assert [b.tags["m"] for b in begins] == ["query", "error", "ping", "commit", *["many"] * 3]
    assert [status(process, b) for b in begins] == [OK, ERROR, OK, OK, OK, OK, OK]
    by_unix = begins[0].connection
    assert by_unix["client.inode"] > 0
    expected = {"server.session": thread_id, "db.system.name": "mysql"}
    expected |= {"network.transport": "unix", "server.address": str(mariadb.socket)}
    assert all(b.connection == by_unix for b in begins)
    assert by_unix.items() >= expected.items()
    assert by_tcp.connection["network.transport"] == "tcp"
    assert by_tcp.connection["network.local.port"] == port
    assert by_tcp.connection["server.port"] == mariadb.port
    assert process.errors == process.dropped == 0


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


def test_pymysql_s_several_statements_are_one_call(
    mariadb: DatabaseServer, listener: Listener
) -> None:
    with closing(mariadb.connect(client_flag=MANY)) as connection:
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


def test_shims_are_taken_off_and_put_on_while_connections_live(
    mariadb: DatabaseServer, listener: Listener
) -> None:
    connections: Any = pymysql.connections
    uninstrument()
    assert "wrapped" not in " ".join(state().values())
    connection: Any = mariadb.connect(database="mysql")
    cursor: Any = connection.cursor(pymysql.cursors.SSCursor)
    with tag(m="before"):
        cursor.execute("select seq from seq_1_to_100")
    instrument()
    instrument()
    assert hasattr(connections.Connection._execute_command, "_qjoule_original")
    cursor.fetchone()
    assert len(cursor.fetchall()) == 99
    with tag(m="now"):
        cursor.execute("select seq from seq_1_to_100")
    uninstrument()
    assert len(cursor.fetchall()) == 100
    del cursor, connection
    gc.collect()
    assert [begin.tags["m"] for begin in tagged(listener)] == ["now"]


@pytest.mark.parametrize("name", ["mariadb", "mysql80"])
def test_tags_in_pymysql_s_statements_and_connections(
    name: str, request: pytest.FixtureRequest, listener: Listener
) -> None:
    """Both servers lack query attributes, so statements get comments."""
    server: DatabaseServer = request.getfixturevalue(name)
    instrument("pymysql", in_statements=["m"], in_connections=["release"])
    running = "select info from information_schema.processlist where id = connection_id()"
    sent: list[bytes] = []
    with tag(m="it's /* a */ `tag`; --", release="1.4"), closing(server.connect()) as session:
        connection: Any = session
        write = connection.write_packet

        def spy(data: bytes) -> None:
            sent.append(bytes(data))
            write(data)

        connection.write_packet = spy
        connection.connect()
        with connection.cursor() as cursor:
            cursor.execute(running)
            ((statement,),) = cursor.fetchall()
    assert statement == running + "/*m='it%27s%20%2F%2A%20a%20%2A%2F%20%60tag%60%3B%20--'*/"
    login = b"".join(sent)  # with TLS, a request for it comes first
    assert b"\x0eqjoule.release\x031.4" in login
    assert b"qjoule.m" not in login
    assert listener.only().errors == 0


@pytest.mark.parametrize("value", HOSTILE)
def test_no_tag_becomes_a_statement(
    mariadb: DatabaseServer, redis: DatabaseServer, listener: Listener, value: str
) -> None:
    """Through comments and connection attributes, with several statements at once allowed."""
    instrument(in_statements=["m", "key_"], in_connections=["m"])
    with (
        tag(**{"m": value, "key*/'": value}),
        closing(mariadb.connect(client_flag=MANY)) as mysql,
        mysql.cursor() as cursor,
    ):
        cursor.execute("create or replace temporary table mysql.precious (a int)")
        cursor.execute("insert into mysql.precious values (1)")
        cursor.execute("select count(*) from mysql.precious")
        assert cursor.fetchall() == ((1,),)
        assert not cursor.nextset()
    with tag(m=value + "\r\nFLUSHALL\r\n"), closing(redis.connect()) as client:
        client.set("precious", "1")
        assert client.get("precious") in (b"1", "1")
    assert listener.only().errors == 0


# ---- redis-py ---------------------------------------------------------------------------------


def test_redis_calls_have_their_tags_and_end(redis: DatabaseServer, listener: Listener) -> None:
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


def test_asynchronous_redis_calls_have_the_tags_of_their_task(
    redis: DatabaseServer, listener: Listener
) -> None:
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


def test_redis_s_client_name_has_tags(redis: DatabaseServer, listener: Listener) -> None:
    instrument("redis", in_connections=["release", "job"])
    with tag(release="1.4", job="a b", tenant="42"), closing(redis.connect()) as client:
        assert client.client_getname() == "job=a%20b,release=1.4"
    with tag(release="1.4"), closing(redis.connect(client_name="its-own")) as own:
        assert own.client_getname() == "its-own"
    with tag(release="x" * 10_000), closing(redis.connect()) as client:
        assert client.client_getname() is None  # too long: omitted
    assert listener.only().errors == 0


def test_redis_s_health_checks_and_reconnections_are_calls_of_their_own(
    redis: DatabaseServer, listener: Listener
) -> None:
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
    for name in ("checked", "reconnected"):
        calls = [begin for begin in tagged(listener) if begin.tags["m"] == name]
        assert len(calls) >= 2
        ends = [process.ends[call.number][0] for call in calls]
        # The last one is the command's own: it begins when all the others have ended.
        assert calls[-1].t_ns >= max(ends[:-1])
        assert ends[-1] == max(ends)
    assert process.errors == 0


# ---- with and without a recorder, and one that wants only changes -----------------------------


def test_calls_without_a_recorder_or_a_server_are_as_before(
    mariadb: DatabaseServer, listener: Listener
) -> None:
    with pytest.raises(redis_driver.ConnectionError), tag(m="x"):
        redis_driver.Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0)).ping()
    assert not listener.processes or listener.only().errors == 0
    listener.close()
    with closing(mariadb.connect(database="mysql")) as connection, tag(m="x"):
        connection.query("select 1")


def _settle(listener: Listener, call: Callable[[], object]) -> Callable[[], list[Begin]]:
    """Makes the channel report changes only; returns a function for what it reported since."""
    call()
    settle(listener, channel_module.channel)
    call()
    assert not channel_module.channel.wants_ends
    since = len(listener.only().begins)
    return lambda: listener.only().begins[since:]


@pytest.mark.parametrize("name", ["mariadb", "redis"])
def test_a_recorder_that_wants_only_changes(
    name: str, request: pytest.FixtureRequest, listener: Listener
) -> None:
    """Tags that stay, change, come back, and go; then another trace."""
    server: DatabaseServer = request.getfixturevalue(name)
    with closing(server.connect()) as client:
        call: Callable[[], object] = getattr(client, "ping")  # noqa: B009 (both have one)
        reported = _settle(listener, call)
        for m in ("a", "a", "a", "b", "a"):
            with tag(m=m, tenant=7):
                call()
        call()
        call()
        set_trace((bytes(15) + b"\1", bytes(7) + b"\2"))
        try:
            call()
        finally:
            set_trace(None)
        begins = reported()
    assert [begin.tags.get("m") for begin in begins] == ["a", "b", "a", None, None]
    assert [begin.trace is not None for begin in begins] == [False] * 4 + [True]
    assert all(begin.holds for begin in begins)
    process = listener.only()
    assert not {begin.number for begin in begins} & process.ends.keys()
    assert (process.errors, process.dropped, len(process.overs)) == (0, 0, 1)


def test_calls_that_shims_do_not_see_leave_a_gap_and_each_call_may_be_asked_for_again(
    mariadb: DatabaseServer, listener: Listener
) -> None:
    with closing(mariadb.connect()) as connection:
        reported = _settle(listener, lambda: connection.query("select 1"))
        with tag(m="a"):
            connection.query("select 1")
            before_ns = listener.only().gap_ns
            uninstrument()
            connection.query("select 2")
            assert listener.only().gap_ns > max(before_ns, reported()[-1].t_ns)
            instrument()
            connection.query("select 3")
        assert [begin.tags for begin in reported()] == [{"m": "a"}] * 2
        listener.only().want_changes(False)
        channel_module.channel.to.until_ns = 0
        for _ in range(3):
            connection.query("select 1")
        begins = reported()[2:]
    assert [begin.holds for begin in begins] == [False] * 3
    assert {begin.number for begin in begins} <= listener.only().ends.keys()
