# SPDX-License-Identifier: Apache-2.0
"""Each driver's wrappers around a fake connection: begins, ends, carriers, and the fast path."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra.protocol import ErrorMessage, OptionsMessage, QueryMessage

from qjoule_drivers import channel as channel_module
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer, ReportCache
from qjoule_drivers.comments import put_in_connections, put_in_statements
from qjoule_drivers.context import innermost, outermost
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims import cassandra, psycopg, pymongo, pymysql, redis
from qjoule_drivers.shims import shim as peer
from tag_listener import Listener, settle, status, tagged

LATER_NS = 1 << 62
Answer = Callable[..., object]


class Connection:
    """The parts of the drivers' connections that wrappers use."""

    def __init__(self) -> None:
        self.server, self._sock = socket.socketpair()
        self._qjoule_peer: Peer | None = None
        self._qjoule_call = 0
        self._socket = self._sock
        self._result = SimpleNamespace(unbuffered_active=False, has_next=False)
        self.conn = SimpleNamespace(sock=self._sock, get_conn=self._sock)
        self.pgconn = SimpleNamespace(socket=self._sock.fileno(), backend_pid=77)
        self.server_thread_id = (77,)
        self.health_check_interval = 0
        self.is_connected = True
        self._writer = SimpleNamespace(get_extra_info=lambda _: self._sock)


def _sent(*_: object) -> None:
    """A driver's method that sends a request."""


def _pymysql(connection: Connection, answer: Answer) -> None:
    pymysql._execute_command(_sent)(connection, None, None)
    pymysql._read_query_result(answer)(connection)


def _redis(connection: Connection, answer: Answer) -> None:
    redis._send_packed_command(_sent)(connection, None)
    redis._read_response(answer)(connection)


def _psycopg(connection: Connection, answer: Answer) -> None:
    psycopg._wait(answer)(connection, None)


def _pymongo(connection: Connection, answer: Answer) -> None:
    pymongo._send_message(_sent)(connection, None, None)
    peer.ending(answer)(connection, None)


def _cassandra(connection: Connection, answer: Answer) -> None:
    def send(_self: object, _msg: object, _request_id: int, callback: Answer) -> None:
        try:
            callback(answer())
        except RuntimeError:
            callback(ErrorMessage(0, "", None))
            raise

    cassandra._send_msg(send)(connection, None, 7, lambda _: None)


def _asynchronous(begin: Any, end: Any) -> Callable[[Connection, Answer], None]:
    async def sent(*_: object) -> None:
        pass

    def run(connection: Connection, answer: Answer) -> None:
        async def answered(*_: object) -> object:
            return answer()

        async def both() -> None:
            if end is None:
                await begin(answered)(connection, None)
            else:
                await begin(sent)(connection, None, *([None] if begin in _WITH_SIZE else []))
                await end(answered)(connection, None)

        asyncio.run(both())

    return run


_WITH_SIZE = (pymongo._send_message_async,)
SYNCHRONOUS = {
    "pymysql": (pymysql.SHIM, _pymysql),
    "redis": (redis.SHIM, _redis),
    "psycopg": (psycopg.SHIM, _psycopg),
    "pymongo": (pymongo.SHIM, _pymongo),
    "cassandra": (cassandra.SHIM, _cassandra),
}
ASYNCHRONOUS = {
    "redis.asyncio": (
        redis.SHIM,
        _asynchronous(redis._send_packed_command_async, redis._read_response_async),
    ),
    "psycopg async": (psycopg.SHIM, _asynchronous(psycopg._wait_async, None)),
    "pymongo async": (
        pymongo.SHIM,
        _asynchronous(pymongo._send_message_async, pymongo._receive_message_async),
    ),
}


@pytest.fixture
def reporting(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> Channel:
    """The channel that the shims use, all of them active."""
    monkeypatch.setattr(channel_module, "channel", channel)
    for module in (cassandra, psycopg, pymongo, pymysql, redis, peer):
        monkeypatch.setattr(module, "channel", channel)
    for shim, _ in SYNCHRONOUS.values():
        monkeypatch.setattr(shim, "active", True)
    return channel


@pytest.mark.usefixtures("reporting")
@pytest.mark.parametrize("name", [*SYNCHRONOUS, *ASYNCHRONOUS])
def test_a_call_has_its_connection_its_tags_and_its_end(name: str, listener: Listener) -> None:
    shim, call = {**SYNCHRONOUS, **ASYNCHRONOUS}[name]
    connection = Connection()

    def fails(*_: object) -> None:
        raise RuntimeError

    with tag(m="fine"):
        call(connection, lambda *_: None)
    with tag(m="error"), pytest.raises(RuntimeError):
        call(connection, fails)
    process, (fine, error) = listener.only(), tagged(listener)
    assert [begin.tags["m"] for begin in (fine, error)] == ["fine", "error"]
    assert [status(process, begin) for begin in (fine, error)] == [OK, ERROR]
    systems = {"psycopg": "postgresql", "pymongo": "mongodb", "pymysql": "mysql"}
    assert fine.connection["db.system.name"] == systems.get(shim.name, shim.name)
    assert fine.connection["client.inode"] > 0
    assert fine.stream == (8 if shim is cassandra.SHIM else 0)
    assert (process.errors, process.dropped) == (0, 0)


# ---- tags that are sent to the server itself --------------------------------------------------


@pytest.fixture
def named(reporting: Channel) -> Iterator[None]:
    """Tags that go into statements and connections."""
    del reporting
    put_in_statements(["endpoint"])
    put_in_connections(["endpoint"])
    with tag(endpoint="a b", tenant="7"):
        yield
    put_in_statements(())
    put_in_connections(())


@pytest.mark.usefixtures("named")
def test_cql_s_payload_is_sent_where_the_protocol_has_one() -> None:
    query, options = QueryMessage("select 1", 1), OptionsMessage()
    cassandra._put_payload(query, 3)
    cassandra._put_payload(options, 4)
    assert (query.custom_payload, options.custom_payload) == (None, None)
    cassandra._put_payload(query, 4)
    assert query.custom_payload == {"qjoule.endpoint": b"a b"}
    query.custom_payload = {"qjoule.endpoint": b"its own", "other": b"1"}
    cassandra._put_payload(query, 4)
    assert query.custom_payload == {"qjoule.endpoint": b"its own", "other": b"1"}


@pytest.mark.usefixtures("named")
def test_mongodb_s_commands_get_a_comment_unless_they_have_one() -> None:
    assert pymongo._commented({"find": "t"}) == {"find": "t", "comment": "endpoint='a%20b'"}
    for unchanged in ({"find": "t", "comment": "its own"}, {"ping": 1}, {}):
        assert pymongo._commented(unchanged) == unchanged
    batch = pymongo._do_batched_op_msg(lambda _namespace, _operation, command: command)
    assert "comment" in batch("t", 1, {"insert": "t"})


@pytest.mark.usefixtures("named")
def test_postgresql_s_statements_and_connections_are_named() -> None:
    query = SimpleNamespace(query=b"select 1")
    psycopg._convert(_sent)(query)
    assert query.query == b"select 1/*endpoint='a%20b'*/"
    assert psycopg._with_name({}) == {"fallback_application_name": "endpoint=a%20b"}
    own = {"fallback_application_name": "its own"}
    assert psycopg._with_name(own) == own


# ---- the fast path: a call whose data is already recorded -------------------------------------


@pytest.fixture(params=list(SYNCHRONOUS))
def call(
    request: pytest.FixtureRequest, listener: Listener, reporting: Channel
) -> Callable[[], None]:
    """A call through the driver's wrapper, to a recorder that wants only changes."""
    settle(listener, reporting)
    reporting.to.until_ns = LATER_NS
    connection, run = Connection(), SYNCHRONOUS[request.param][1]
    return lambda: run(connection, lambda *_: None)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Calls that did not take the fast path."""
    calls: list[object] = []
    begin = Channel.begin

    def counted(channel: Channel, *args: Any) -> int:
        calls.append(args)
        return begin(channel, *args)

    monkeypatch.setattr(Channel, "begin", counted)
    return calls


def test_the_fast_path_is_taken_until_something_changes(
    call: Callable[[], None], begun: list[object], listener: Listener, reporting: Channel
) -> None:
    begun.clear()
    for endpoint in ("a", "b"):
        with tag(endpoint=endpoint):
            for _ in range(3):
                call()
    assert len(begun) == 2
    with tag(endpoint="b"):
        call()
        reporting.interrupt()  # a gap: all is reported again
        call()
        call()
    assert len(begun) == 4
    endpoints = [begin.tags["endpoint"] for begin in listener.only().begins]
    assert endpoints == ["a", "b", "b"]
    call()
    begun.clear()
    reporting.to.until_ns = 0  # it is time to look for a recorder
    call()
    assert len(begun) == 1


def test_a_standing_that_ended_never_holds_again() -> None:
    standing = ReportCache(innermost, LATER_NS)
    assert standing.frame() is innermost()
    standing.end()
    standing.until_ns = LATER_NS  # by a thread that has just checked
    assert standing.frame() is not innermost()


@pytest.mark.usefixtures("listener")
def test_a_connection_that_reported_before_a_gap_has_not_reported(channel: Channel) -> None:
    """For a thread that is stopped between writing its record and noting that it did."""
    connection = Peer({})
    channel.begin(None)
    before = channel.to
    channel.interrupt()
    connection.frame, connection.to = outermost, before
    assert connection.to.frame() is not connection.frame
    assert channel.begin(connection)
