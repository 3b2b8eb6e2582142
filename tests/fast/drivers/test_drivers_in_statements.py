# SPDX-License-Identifier: Apache-2.0
"""Tags inside statements, opt-in: as comments that no value ends, or as MySQL's attributes."""

from __future__ import annotations

import gc
import re
import socket
import struct
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import unquote

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.servers.mysql.wire import tags_in_attributes
from qjoule_drivers import instrument, tag, uninstrument
from qjoule_drivers.comments import CAPABILITY, NONE, comment_of, commented, put_in_statements

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


def _tags(command: bytes, text: bytes) -> dict[str, str]:
    """The attributes that precede the text of a COM_QUERY, as the recorder reads them."""
    assert command.startswith(bytes([COM_QUERY])) and command.endswith(text)
    block = command[1 : len(command) - len(text)]
    tags = dict(tags_in_attributes(block))
    assert tags or block == NONE
    return tags


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


def test_every_statement_has_its_attributes_and_its_own_text(server: _Server) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        with tag(endpoint="a b", tenant=7, secret="no"):
            cursor.execute("update t set a = %s", ("ü",))
            connection.ping()
            connection.commit()
        cursor.execute(b"update u")
    update, ping, commit, untagged = server.commands[-4:]
    tags = {"endpoint": "a b", "tenant": "7"}
    assert _tags(update, "update t set a = 'ü'".encode()) == tags
    assert ping == bytes([COM_PING])
    assert _tags(commit, b"COMMIT") == tags
    assert _tags(untagged, b"update u") == {}
    assert server.agreed == [True]


def test_other_servers_get_comments(server: _Server) -> None:
    plain, attributed = PLAIN, PLAIN | CAPABILITY
    for version, capabilities in (("8.0.15", plain), ("5.5.5-10.11.6-MariaDB", attributed)):
        server.version, server.capabilities = version, capabilities
        with closing(server.connect()) as connection, tag(endpoint="x"):
            connection.query("update t")
    assert server.agreed == [False, False]
    commented = b"\x03update t/*endpoint='x'*/"
    assert [command for command in server.commands if b"update" in command] == [commented] * 2


def test_without_keys_no_attributes_are_negotiated(server: _Server) -> None:
    instrument("pymysql", in_statements=[])
    with closing(server.connect()) as connection, tag(endpoint="x"):
        connection.query("update t")
        instrument("pymysql", in_statements=["endpoint"])
        connection.query("update u")
    assert server.agreed == [False]
    assert server.commands[-2:] == [b"\x03update t", b"\x03update u/*endpoint='x'*/"]


def test_negotiated_attributes_outlive_the_shim(server: _Server) -> None:
    """The server reads attributes as long as the connection is open, whoever wraps the driver."""
    with closing(server.connect()) as connection, tag(endpoint="x"):
        uninstrument()
        connection.query("update t")
        assert _tags(server.commands[-1], b"update t") == {}
        server.capabilities = PLAIN  # another server under the same name
        connection.close()
        connection.connect()
        connection.query("update u")
    assert server.agreed == [True, False]
    assert server.commands[-1] == b"\x03update u"


def test_each_connection_negotiates_anew(server: _Server) -> None:
    with closing(server.connect()) as connection, tag(endpoint="x"):
        for capabilities in (PLAIN, PLAIN | CAPABILITY, PLAIN | CAPABILITY):
            connection.close()
            server.capabilities = capabilities
            connection.connect()
            connection.query("update t")
    assert server.agreed == [True, False, True, True]
    attributed = [command for command in server.commands if b"update" in command]
    assert attributed[0] == b"\x03update t/*endpoint='x'*/"
    assert [_tags(command, b"update t") for command in attributed[1:]] == [{"endpoint": "x"}] * 2


def test_a_subclass_that_sends_statements_itself_has_comments(server: _Server) -> None:
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


def test_a_statement_of_several_packets_is_whole(server: _Server) -> None:
    text = b"update t set a = '" + b"x" * (1 << 24) + b"'"
    with closing(server.connect()) as connection, tag(endpoint="x"):
        connection.query(text)
    assert _tags(server.commands[-1], text) == {"endpoint": "x"}


# ---- comments ---------------------------------------------------------------------------------


@pytest.fixture
def keys() -> Iterator[None]:
    put_in_statements({"endpoint", "tenant"})
    yield
    put_in_statements(())


@pytest.mark.usefixtures("keys")
def test_only_named_tags_go_into_comments() -> None:
    with tag(endpoint="a/b c", tenant=7, secret="no"):
        assert commented("SELECT 1") == "SELECT 1/*endpoint='a%2Fb%20c',tenant='7'*/"
        assert commented(b"SELECT 1 ; ") == b"SELECT 1 /*endpoint='a%2Fb%20c',tenant='7'*/;"
    put_in_statements(())
    with tag(endpoint="x"):
        assert commented("SELECT 1") == "SELECT 1"


@pytest.mark.usefixtures("keys")
def test_other_statements_are_left_alone() -> None:
    assert commented("SELECT 1") == "SELECT 1"
    with tag(secret="no"):
        assert commented("SELECT 1") == "SELECT 1"
    others: list[Any] = ["SELECT 1 /*route='y'*/", "/* hint */ SELECT 1", 7, None, ["SELECT 1"]]
    with tag(endpoint="x"):
        for statement in others:
            assert commented(statement) == statement


@given(
    st.text()
    | st.sampled_from(["*/ DROP TABLE t; --", "' */;", "%27*/", "\x00", "\\", "*/*/", "a'--\n"]),
    st.text(),
)
def test_no_value_ends_its_comment(value: str, key: str) -> None:
    """SQL injection through a tag: a comment has no special characters between its marks."""
    comment = comment_of({key: value, "endpoint": value})
    assert re.fullmatch(r"/\*([A-Za-z0-9_.~%-]*='[A-Za-z0-9_.~%-]*',?)+\*/", comment)
    values = dict(re.findall(r"([^=,]*)='([^']*)'", comment[2:-2]))
    assert unquote(values["endpoint"]) == value
    put_in_statements(["endpoint"])
    try:
        with tag(endpoint=value):
            statement = commented("SELECT 1")
    finally:
        put_in_statements(())
    assert statement.startswith("SELECT 1")
    assert statement[8:].count("*/") <= 1
