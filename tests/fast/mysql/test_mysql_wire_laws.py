# SPDX-License-Identifier: Apache-2.0
"""Laws of MySQL's wire format on the socket rung: any pieces, any replies, attached at any
point.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.wire_library import READY, STARTUP, UNKNOWN, Connection, Query
from qjoule.contract import Command, Loss, QueryFlag
from qjoule.servers import registry

OK = b"\0\0\0\2\0\0\0"
ERROR = b"\xff\x7a\x04#42S02no"
ROWS = b"\1"
FILE = b"\xfbname"
STALE = b"\xee" * 16


@dataclass(frozen=True)
class Sent:
    """A command, the server's answer, and the expected record."""

    packet: bytes
    reply: bytes
    text: bytes | None
    executions: int
    command: Command
    flag: QueryFlag | None = None
    file: tuple[bytes, ...] = ()


def _texts() -> st.SearchStrategy[bytes]:
    words = st.sampled_from(
        [b"select 1", b"from t", b"where a = 'x'", b"load data", b"use m", b","]
    )
    return st.lists(words, min_size=1, max_size=40).map(b" ".join)


Outcome = tuple[bytes, QueryFlag | None]


def _query(text: bytes, outcome: Outcome) -> Sent:
    return Sent(b"\x03" + text, outcome[0], text, 1, Command.QUERY, outcome[1])


@dataclass(frozen=True)
class Attribute:
    """A query attribute: type, name, and value as sent; None is NULL."""

    type: int
    name: bytes
    value: bytes | None


def _counted(data: bytes) -> bytes:
    """With its length before it, as a length-encoded integer."""
    size = len(data)
    return (bytes([size]) if size < 0xFB else b"\xfc" + struct.pack("<H", size)) + data


def _attributed(text: bytes, attributes: list[Attribute], outcome: Outcome) -> Sent:
    head = bytes([len(attributes), 1])
    if attributes:
        nulls = sum(1 << i for i, one in enumerate(attributes) if one.value is None)
        head += nulls.to_bytes((len(attributes) + 7) // 8, "little") + b"\1"
        head += b"".join(bytes([one.type, 0]) + _counted(one.name) for one in attributes)
        head += b"".join(one.value or b"" for one in attributes)
    packet = b"\x03" + head + text
    return Sent(packet, outcome[0], text, 1, Command.QUERY, outcome[1])


def _values(type_: int, values: st.SearchStrategy[bytes]) -> st.SearchStrategy[Attribute]:
    return st.builds(Attribute, st.just(type_), st.binary(max_size=300), st.none() | values)


def _sized(type_: int, size: int) -> st.SearchStrategy[Attribute]:
    return _values(type_, st.binary(min_size=size, max_size=size))


#: Values of all kinds, including the bytes of a statement.
ATTRIBUTES = st.lists(
    st.one_of(
        *(
            _values(type_, st.binary(max_size=300).map(_counted))
            for type_ in (0, 15, 245, 253, 254)
        ),
        _values(254, st.just(_counted(b"select 'attribute'"))),
        *(
            _sized(type_, size)
            for size, types in {0: (6,), 1: (1,), 2: (2, 13), 4: (3, 4, 9), 8: (5, 8)}.items()
            for type_ in types
        ),
        *(_values(type_, st.binary(max_size=12).map(_counted)) for type_ in (7, 10, 11, 12)),
    ),
    max_size=9,
)


_OUTCOMES = st.sampled_from([(OK, QueryFlag.OK), (ERROR, QueryFlag.ERROR), (ROWS, None)])
#: Packets of a file: some look like commands.
_FILES = st.lists(st.sampled_from([b"\x03select 'file'", b"\x01", b"x" * 300]), max_size=300)
COMMANDS = st.one_of(
    st.builds(_query, _texts(), _OUTCOMES),
    st.builds(_attributed, _texts(), ATTRIBUTES, _OUTCOMES),
    st.builds(
        lambda text, file: Sent(
            b"\x03" + text, FILE, text, 1, Command.QUERY, QueryFlag.OK, tuple(file)
        ),
        _texts(),
        _FILES,
    ),
    st.just(Sent(b"\x0e", OK, None, 0, Command.OTHER)),
    st.just(Sent(b"\x02shop", OK, None, 0, Command.OTHER)),
)
SIZES = st.lists(st.integers(1, 9), max_size=4)


def _receive(connection: Connection, number: int, body: bytes, sizes: list[int]) -> None:
    """Reads a packet as the server does: four bytes, then the rest over them, either maybe in
    pieces.
    """
    for part in (len(body).to_bytes(3, "little") + bytes([number & 255]), body):
        at, turn = 0, 0
        while at < len(part):
            size = sizes[turn % len(sizes)] if sizes else len(part)
            connection.receive(part[at : at + size], at)
            at, turn = at + size, turn + 1
            if sizes and at < len(part):
                connection.wait()  # the rest has not arrived yet


def _packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number & 255]) + body


def _reply(connection: Connection, packet: bytes) -> None:
    """Into a buffer larger than the start of any reply: the bytes after the reply are stale."""
    connection.reply(packet + STALE)


def _tell(connection: Connection, commands: list[Sent], sizes: list[int]) -> None:
    for one in commands:
        _receive(connection, 0, one.packet, sizes)
        _reply(connection, _packet(1, one.reply))
        connection.wait()
        if one.reply == FILE:
            parts = [*one.file, b""]
            for number, part in enumerate(parts, 2):
                _receive(connection, number, part, sizes)
            _reply(connection, _packet(len(parts) + 2, OK))
            connection.wait()


def _told(commands: list[Sent], sizes: list[int], phase: int) -> list[Query]:
    connection = Connection(registry.kind_of("mysql"), phase)
    _tell(connection, commands, sizes)
    queries = connection.close()
    assert not connection.loss
    return queries


def _expect(queries: list[Query], commands: list[Sent]) -> None:
    assert [(one.text, one.executions, one.command) for one in queries] == [
        (one.text, one.executions, one.command) for one in commands
    ]
    outcomes = QueryFlag.OK | QueryFlag.ERROR
    for query, sent in zip(queries, commands, strict=True):
        if sent.text is not None:
            assert QueryFlag(query.flags) & outcomes == (sent.flag or QueryFlag(0))


@given(st.lists(COMMANDS, max_size=8), SIZES)
@example([_query(b"select 1", (OK, QueryFlag.OK))] * 2, [1])
@example([_attributed(b"select 1", [Attribute(8, b"n", b"12345678")] * 32, (ROWS, None))], [3])
def test_pieces_change_nothing(commands: list[Sent], sizes: list[int]) -> None:
    _expect(_told(commands, sizes, READY), commands)


@given(st.lists(COMMANDS, min_size=1, max_size=6))
def test_a_connection_that_was_open_is_joined_at_its_next_command(commands: list[Sent]) -> None:
    _expect(_told(commands, [], UNKNOWN), commands)


@given(st.lists(COMMANDS, min_size=1, max_size=6), st.integers(0, 400), SIZES)
def test_no_text_is_told_that_was_not_sent(
    commands: list[Sent], skipped: int, sizes: list[int]
) -> None:
    """Whatever was lost before: the rest of a packet is never mistaken for a statement."""
    connection = Connection(registry.kind_of("mysql"), UNKNOWN)
    rest = commands[0].packet[skipped:]
    for at in range(0, len(rest), 64):
        connection.receive(rest[at : at + 64], skipped + at)
    connection.wait()
    _tell(connection, commands[1:], sizes)
    told = {one.text for one in connection.close()}
    assert told <= {None, *(one.text for one in commands[1:])}


@given(
    st.lists(COMMANDS, min_size=1, max_size=5), SIZES, st.sampled_from([1 << 5, 1 << 11, 1 << 26])
)
def test_a_hidden_session_is_told_once_and_nothing_of_it(
    commands: list[Sent], sizes: list[int], hides: int
) -> None:
    connection = Connection(registry.kind_of("mysql"), STARTUP)
    login = struct.pack("<IIB23x", 0x200 | hides, 1 << 24, 45) + b"root\0\0"
    _receive(connection, 1, login, sizes)
    _tell(connection, commands, sizes)
    assert connection.close() == []
    assert list(connection.loss.values()) == [1]
    assert connection.sessions == (1, 0)


@given(st.integers(1, 600), SIZES)
def test_a_login_is_told_whole_however_it_comes(names: int, sizes: list[int]) -> None:
    connection = Connection(registry.kind_of("mysql"), STARTUP)
    login = struct.pack("<IIB23x", 0x200, 1 << 24, 45) + b"u" * names + b"\0\0"
    _receive(connection, 1, login, sizes)
    _reply(connection, _packet(2, OK))
    connection.wait()
    (query,) = connection.close()
    assert query.command == Command.CONNECT
    count, size = connection.sessions
    assert count == 1
    assert min(len(login), 512) == size or size >= 512


@given(SIZES, st.integers(1, 1 << 32))
def test_an_execution_has_its_own_statement(sizes: list[int], number: int) -> None:
    """A statement's id is in bytes that may not have arrived: the bytes there belong to another."""
    number = number % ((1 << 32) - 3) + 1
    connection = Connection(registry.kind_of("mysql"), READY)
    texts = {number: b"select a", number + 1: b"select b"}
    for identity, text in texts.items():
        _receive(connection, 0, b"\x16" + text, sizes)
        _reply(connection, _packet(1, struct.pack("<BIHHBH", 0, identity, 1, 0, 0, 0)))
        connection.wait()
    for identity in (number, number + 1, number):
        _receive(connection, 0, b"\x17" + struct.pack("<IBI", identity, 0, 1), sizes)
        _reply(connection, _packet(1, ROWS))
        connection.wait()
    told = [one.text for one in connection.close() if one.executions]
    assert told == [b"select a", b"select b", b"select a"]
    assert not connection.loss


@given(_texts(), ATTRIBUTES.filter(bool), st.data(), SIZES)
def test_attributes_that_are_cut_hide_the_text_and_no_more(
    text: bytes, attributes: list[Attribute], data: st.DataObject, sizes: list[int]
) -> None:
    """The packet ends within its attributes: what is in the buffer after it is no statement."""
    whole = _attributed(text, attributes, (ROWS, None)).packet
    cut = data.draw(st.integers(6, len(whole) - len(text) - 1))
    connection = Connection(registry.kind_of("mysql"), READY)
    for packet in (whole[:cut], b"\x03select 1"):
        _receive(connection, 0, packet, sizes)
        _reply(connection, _packet(1, ROWS))
        connection.wait()
    first, second = connection.close()
    assert (first.text, first.executions, second.text) == (None, 1, b"select 1")
    assert connection.loss == {Loss.TEXT: 1}
