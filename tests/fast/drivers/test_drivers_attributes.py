# SPDX-License-Identifier: Apache-2.0
"""Tags as MySQL's query attributes: negotiated, sent with every statement, never partially."""

from __future__ import annotations

import gc
import socket
import struct
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule_drivers import instrument, tag, uninstrument
from qjoule_drivers.attributes import CAPABILITY, attributes
from qjoule_drivers.comments import put_in_statements

#: LONG_PASSWORD, CONNECT_WITH_DB, PROTOCOL_41, SECURE_CONNECTION, MULTI_RESULTS, PLUGIN_AUTH.
PLAIN = 1 | 8 | 1 << 9 | 1 << 15 | 1 << 17 | 1 << 19
OK = b"\0\0\0\2\0\0\0"
CHUNK = 0xFFFFFF  #: size of a packet that the next one continues
COM_QUIT, COM_QUERY, COM_PING = 1, 3, 14


class _Server:
    """Sends a greeting, accepts every client, answers OK to all, and keeps what it was sent."""

    def __init__(self) -> None:
        self.version, self.capabilities = "8.0.33", PLAIN | CAPABILITY
        self.agreed: list[bool] = []  #: of each connection
        self.commands: list[bytes] = []  #: of all of them
        self._ends = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def connect(self, kind: Any = pymysql.connections.Connection, **options: Any) -> Any:
        port = self._listening.getsockname()[1]
        return kind(host="127.0.0.1", port=port, user="u", password="", **options)

    def close(self) -> None:
        self._ends = True
        socket.create_connection(self._listening.getsockname()).close()
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            connected, _ = self._listening.accept()
            if self._ends:
                connected.close()
                return
            connected.settimeout(60)
            with connected, connected.makefile("rb") as stream:
                self._serve_one(connected, stream)

    def _serve_one(self, connected: socket.socket, stream: Any) -> None:
        low, high = self.capabilities & 0xFFFF, self.capabilities >> 16
        greeting = b"\x0a" + self.version.encode() + b"\0" + struct.pack("<I", 7) + b"saltsalt\0"
        greeting += struct.pack("<HBHHB10x", low, 45, 2, high, 21)
        connected.sendall(_packet(0, greeting + b"saltsaltsalt\0mysql_native_password\0"))
        login, _ = _read(stream)
        self.agreed.append(bool(struct.unpack_from("<I", login)[0] & CAPABILITY))
        connected.sendall(_packet(2, OK))
        while True:
            command, packets = _read(stream)
            if not command or command[0] == COM_QUIT:
                return
            self.commands.append(command)
            connected.sendall(_packet(packets, OK))


def _packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


def _read(stream: Any) -> tuple[bytes, int]:
    """A command, and the number of its packets."""
    command, packets, size = b"", 0, CHUNK
    while size == CHUNK:
        size = int.from_bytes(stream.read(4)[:3], "little")
        command += stream.read(size)
        packets += 1
    return command, packets


def _decoded(query: bytes, encoding: str = "utf-8") -> tuple[dict[str, str], bytes]:
    """Attributes and text of a COM_QUERY, parsed as the server's documentation describes."""
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        assert at <= len(query)
        return query[at - size : at]

    def number() -> int:
        first = take(1)[0]
        assert first <= 0xFC
        return first if first < 0xFB else int.from_bytes(take(2), "little")

    assert take(1) == bytes([COM_QUERY])
    count, sets = number(), number()
    assert sets == 1
    names, values = [], []
    if count:
        assert not any(take((count + 7) // 8))
        assert take(1) == b"\1"
        for _ in range(count):
            assert take(2) == b"\xfe\0"
            names.append(take(number()).decode("ascii"))
        values = [take(number()).decode(encoding) for _ in range(count)]
    return dict(zip(names, values, strict=True)), query[at:]


@pytest.fixture
def server() -> Iterator[_Server]:
    running = _Server()
    try:
        instrument("pymysql", in_statements=["endpoint", "tenant"])
        yield running
    finally:
        uninstrument()
        put_in_statements(())
        running.close()


def _queries(server: _Server) -> list[tuple[dict[str, str], bytes]]:
    return [_decoded(command) for command in server.commands if command[0] == COM_QUERY]


def test_every_statement_has_its_attributes_and_its_own_text(server: _Server) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        with tag(endpoint="a b", tenant=7, secret="no"):
            cursor.execute("update t set a = %s", ("ü",))
            connection.ping()
            connection.commit()
        cursor.execute(b"update u")
    tags = {"qjoule.endpoint": "a b", "qjoule.tenant": "7"}
    assert _queries(server)[-3:] == [
        (tags, "update t set a = 'ü'".encode()),
        (tags, b"COMMIT"),
        ({}, b"update u"),
    ]
    assert [command[0] for command in server.commands].count(COM_PING) == 1
    assert server.agreed == [True]


@given(
    st.dictionaries(
        st.sampled_from([f"k{n}" for n in range(32)]), st.text(min_size=1), min_size=1, max_size=32
    )
)
def test_whatever_tags_there_are_they_end_before_the_text(tags: dict[str, str]) -> None:
    put_in_statements(tags)
    try:
        with tag(**tags):
            found, text = _decoded(b"\x03" + attributes("utf-8") + b"select 1")
    finally:
        put_in_statements(())
    assert text == b"select 1"
    assert {key.removeprefix("qjoule.") for key in found} <= tags.keys()


def test_other_servers_get_comments(server: _Server) -> None:
    plain, attributed = PLAIN, PLAIN | CAPABILITY
    for version, capabilities in (("8.0.15", plain), ("5.5.5-10.11.6-MariaDB", attributed)):
        server.version, server.capabilities = version, capabilities
        with closing(server.connect()) as connection, tag(endpoint="x"):
            connection.query("update t")
    assert server.agreed == [False, False]
    commented = b"\x03update t/*endpoint='x'*/"
    assert [command for command in server.commands if b"update" in command] == [commented] * 2


def test_without_keys_nothing_is_agreed_on(server: _Server) -> None:
    instrument("pymysql", in_statements=[])
    with closing(server.connect()) as connection, tag(endpoint="x"):
        connection.query("update t")
        instrument("pymysql", in_statements=["endpoint"])
        connection.query("update u")
    assert server.agreed == [False]
    assert server.commands[-2:] == [b"\x03update t", b"\x03update u/*endpoint='x'*/"]


def test_what_was_agreed_on_outlives_the_shim(server: _Server) -> None:
    """The server reads attributes as long as the connection is open, whoever wraps the driver."""
    with closing(server.connect()) as connection, tag(endpoint="x"):
        uninstrument()
        connection.query("update t")
        assert _queries(server)[-1] == ({}, b"update t")
        server.capabilities = PLAIN  # another server under the same name
        connection.close()
        connection.connect()
        connection.query("update u")
    assert server.agreed == [True, False]
    assert server.commands[-1] == b"\x03update u"


def test_a_connection_agrees_anew(server: _Server) -> None:
    with closing(server.connect()) as connection, tag(endpoint="x"):
        for capabilities in (PLAIN, PLAIN | CAPABILITY, PLAIN | CAPABILITY):
            connection.close()
            server.capabilities = capabilities
            connection.connect()
            connection.query("update t")
    assert server.agreed == [True, False, True, True]
    attributed = [command for command in server.commands if b"update" in command]
    assert attributed[0] == b"\x03update t/*endpoint='x'*/"
    tagged = ({"qjoule.endpoint": "x"}, b"update t")
    assert [_decoded(one) for one in attributed[1:]] == [tagged, tagged]


def test_a_subclass_that_sends_for_itself_has_comments(server: _Server) -> None:
    class Own(pymysql.connections.Connection):
        def _execute_command(self, command: int, sql: Any) -> None:
            super()._execute_command(command, sql)  # type: ignore[misc]

    with closing(server.connect(Own)) as connection, tag(endpoint="x"):
        connection.query("update t")
    assert server.agreed == [False]
    assert server.commands[-1] == b"\x03update t/*endpoint='x'*/"


def test_a_connection_is_still_closed_when_it_is_let_go_of(server: _Server) -> None:
    connection = server.connect()
    gone = weakref.ref(connection)
    gc.disable()
    try:
        del connection
        assert gone() is None
    finally:
        gc.enable()


def test_long_statements_are_whole(server: _Server) -> None:
    text = b"update t set a = '" + b"x" * (1 << 24) + b"'"
    with closing(server.connect()) as connection, tag(endpoint="x"):
        connection.query(text)
    assert _decoded(server.commands[-1]) == ({"qjoule.endpoint": "x"}, text)
