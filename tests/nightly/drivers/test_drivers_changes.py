# SPDX-License-Identifier: Apache-2.0
"""Real drivers under a recorder that wants only changes; malicious tags on real servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import pytest
import redis as redis_driver

from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, set_trace, tag, uninstrument
from servers.process import DatabaseServer
from tag_listener import Begin, Listener

pytestmark = [pytest.mark.beside, pytest.mark.server]
HOSTILE = (
    "'; drop table precious; --",
    "*/; drop table precious; /*",
    "%27*/ ; drop table precious",
    "\\'; drop table precious;",
    "x\n; drop table precious",
    "nul\x00'*/; drop table precious",
    "\ud800\u2028" + "'*/ drop table precious;" * 500,
)


def _settle(listener: Listener, call: Callable[[], object]) -> int:
    """Waits until the shim knows that changes are wanted; returns the number of records."""
    call()
    listener.only().want_changes()
    channel_module.channel.check_ns = 0
    call()
    assert not channel_module.channel.wants_ends
    return len(listener.only().begins)


def _of(listener: Listener, since: int) -> list[Begin]:
    return listener.only().begins[since:]


def _walk(listener: Listener, call: Callable[[], object]) -> None:
    """Tags that stay, change, come back, and go; then another trace."""
    since = _settle(listener, call)
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
    told = _of(listener, since)
    assert [begin.tags.get("m") for begin in told] == ["a", "b", "a", None, None]
    assert [begin.trace is not None for begin in told] == [False] * 4 + [True]
    assert all(begin.holds for begin in told)
    assert len({begin.number for begin in told} & listener.only().ends.keys()) == 0
    assert listener.only().errors == listener.only().dropped == 0


def test_pymysql(mariadb: DatabaseServer, listener: Listener) -> None:
    connections: Any = pymysql.connections
    with closing(mariadb.connect(tcp=True)) as connection:
        _walk(listener, lambda: connection.query("select 1"))
        # The wrappers for ends of calls have been removed.
        assert not hasattr(connections.Connection._read_query_result, "_qjoule_original")
    assert len(listener.only().overs) == 1


def test_psycopg(postgres: DatabaseServer, listener: Listener) -> None:
    with postgres.connect() as connection:
        _walk(listener, lambda: connection.execute("select 1"))
    (over,) = listener.only().overs
    assert over[1]["db.system.name"] == "postgresql"


def test_redis(redis: DatabaseServer, listener: Listener) -> None:
    with closing(redis.connect()) as client:
        _walk(listener, client.ping)
    assert len(listener.only().overs) == 1


def test_pymongo(ferretdb: DatabaseServer, listener: Listener) -> None:
    with ferretdb.connect() as client:
        call: Callable[[], object] = lambda: client.admin.command("ping")  # noqa: E731
        _settle(listener, call)
        with tag(m="a"):
            for _ in range(3):
                call()
        told = [begin for begin in listener.only().begins if begin.tags]
        assert len(told) == len({str(begin.connection) for begin in told})
    assert listener.only().errors == 0


def test_cassandra_tells_each_request(cassandra: DatabaseServer, listener: Listener) -> None:
    with cassandra.connect() as client:
        call: Callable[[], object] = lambda: client.execute("select key from system.local")  # noqa: E731
        _settle(listener, call)
        since = len(listener.only().begins)
        with tag(m="a"):
            for _ in range(5):
                call()
        told = [begin for begin in _of(listener, since) if begin.tags]
    assert len(told) >= 5
    assert all(begin.holds and begin.stream > 0 for begin in told)
    assert listener.only().errors == 0


def test_what_is_not_seen_any_more_leaves_a_gap(
    mariadb: DatabaseServer, listener: Listener
) -> None:
    with closing(mariadb.connect()) as connection:
        since = _settle(listener, lambda: connection.query("select 1"))
        with tag(m="a"):
            connection.query("select 1")
            before_ns = listener.only().gap_ns
            uninstrument()
            connection.query("select 2")
            assert listener.only().gap_ns > max(before_ns, _of(listener, since)[-1].t_ns)
            instrument()
            connection.query("select 3")
    assert [begin.tags for begin in _of(listener, since)] == [{"m": "a"}] * 2


def test_a_recorder_that_wants_each_call_again(mariadb: DatabaseServer, listener: Listener) -> None:
    with closing(mariadb.connect()) as connection:
        since = _settle(listener, lambda: connection.query("select 1"))
        listener.only().want_changes(False)
        channel_module.channel.check_ns = 0
        for _ in range(3):
            connection.query("select 1")
    told = _of(listener, since)
    assert [begin.holds for begin in told] == [False] * 3
    assert {begin.number for begin in told} <= listener.only().ends.keys()


@pytest.mark.parametrize("value", HOSTILE)
def test_no_tag_becomes_a_statement(
    mariadb: DatabaseServer, postgres: DatabaseServer, listener: Listener, value: str
) -> None:
    """Through comments and connection attributes, with several statements at once allowed."""
    instrument(in_statements=["m", "key_"], in_connections=["m"])
    several = pymysql.constants.CLIENT.MULTI_STATEMENTS
    with (
        tag(**{"m": value, "key*/'": value}),
        closing(mariadb.connect(client_flag=several)) as mysql,
        mysql.cursor() as cursor,
        psycopg.ClientCursor(postgres.connect(autocommit=True)) as postgresql,
    ):
        cursor.execute("create or replace temporary table mysql.precious (a int)")
        cursor.execute("insert into mysql.precious values (1)")
        cursor.execute("select count(*) from mysql.precious")
        assert cursor.fetchall() == ((1,),)
        assert not cursor.nextset()
        postgresql.execute("create temp table precious (a int)")
        postgresql.execute("insert into precious values (%s)", (1,))
        assert postgresql.execute("select count(*) from precious").fetchall() == [(1,)]
        postgresql.connection.close()
    assert listener.only().errors == 0


def test_a_tag_is_no_redis_command(redis: DatabaseServer, listener: Listener) -> None:
    instrument("redis", in_connections=["m"])
    for value in HOSTILE:
        with tag(m=value + "\r\nFLUSHALL\r\n"), closing(redis.connect()) as client:
            client.set("precious", "1")
            assert client.get("precious") in (b"1", "1")
    assert listener.only().errors == 0
    assert isinstance(client, redis_driver.Redis)
