# SPDX-License-Identifier: Apache-2.0
"""Laws of MySQL's wire format on the socket mode, in any pieces, joined at any point."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.shape_library import c_hash
from fuzz.wire_library import READY, STARTUP, UNKNOWN, Connection, Query, split
from qjoule.contract import Command, Loss, QueryFlag
from qjoule.servers import registry
from qjoule.servers.mysql.wire import tags_in_attributes
from qjoule.shapes.rules import COUNTS, Lexis
from tracing.mysql_values import Parameter, counted, number, parameters, string

OK = b"\0\0\0\2\0\0\0"
ERROR = b"\xff\x7a\x04#42S02no"
ROWS = b"\1"
FILE = b"\xfbname"
STALE = b"\xee" * 16
SIZES = st.lists(st.integers(1, 90), max_size=4)
Outcome = tuple[bytes, QueryFlag | None]


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


def _parameters(names: st.SearchStrategy[bytes]) -> st.SearchStrategy[Parameter]:
    """Values of all kinds, including the bytes of a statement and of a tag."""
    sized = {0: (6,), 1: (1,), 2: (2, 13), 4: (3, 4, 9), 8: (5, 8)}
    values = [
        *((kind, st.binary(max_size=300).map(counted)) for kind in (0, 15, 245, 252, 253)),
        (254, st.sampled_from([b"select 'attribute'", b"\x0fqjoule.endpoint\1x"]).map(counted)),
        *(
            (kind, st.binary(min_size=size, max_size=size))
            for size, kinds in sized.items()
            for kind in kinds
        ),
        *((kind, st.binary(max_size=12).map(counted)) for kind in (7, 10, 11, 12)),
    ]
    return st.one_of(
        *(st.tuples(st.just(kind), names, st.none() | value) for kind, value in values)
    )


TEXTS = st.lists(
    st.sampled_from([b"select 1", b"from t", b"where a = 'x'", b"load data", b"use m", b","]),
    min_size=1,
    max_size=40,
).map(b" ".join)
ATTRIBUTES = st.lists(_parameters(st.binary(max_size=300)), max_size=9)


def _query(text: bytes, outcome: Outcome) -> Sent:
    return Sent(b"\x03" + text, outcome[0], text, 1, Command.QUERY, outcome[1])


def _attributed(text: bytes, attributes: list[Parameter], outcome: Outcome) -> Sent:
    head = bytes([len(attributes), 1]) + (parameters(attributes) if attributes else b"")
    return Sent(b"\x03" + head + text, outcome[0], text, 1, Command.QUERY, outcome[1])


def _loaded(text: bytes, file: list[bytes]) -> Sent:
    """LOAD DATA LOCAL."""
    return Sent(b"\x03" + text, FILE, text, 1, Command.QUERY, QueryFlag.OK, tuple(file))


_OUTCOMES = st.sampled_from([(OK, QueryFlag.OK), (ERROR, QueryFlag.ERROR), (ROWS, None)])
#: Packets of a file: some look like commands.
_FILES = st.lists(st.sampled_from([b"\x03select 'file'", b"\x01", b"x" * 300]), max_size=300)
COMMANDS = st.one_of(
    st.builds(_query, TEXTS, _OUTCOMES),
    st.builds(_attributed, TEXTS, ATTRIBUTES, _OUTCOMES),
    st.builds(_loaded, TEXTS, _FILES),
    st.just(Sent(b"\x0e", OK, None, 0, Command.OTHER)),
    st.just(Sent(b"\x02shop", OK, None, 0, Command.OTHER)),
)


def _receive(connection: Connection, sequence: int, body: bytes, sizes: list[int]) -> None:
    """Reads a packet as the server does: four bytes, then the rest over them, either maybe in
    pieces.
    """
    for part in (len(body).to_bytes(3, "little") + bytes([sequence & 255]), body):
        at = 0
        for piece in split(part, sizes, max(len(part), 1)):
            if at:
                connection.wait()  # this piece has not arrived yet
            connection.receive(piece, at)
            at += len(piece)


def _reply(connection: Connection, sequence: int, body: bytes) -> None:
    """Into a buffer larger than the start of any reply: the bytes after the reply are stale."""
    connection.reply(len(body).to_bytes(3, "little") + bytes([sequence & 255]) + body + STALE)
    connection.wait()


def _serve(connection: Connection, commands: list[Sent], sizes: list[int]) -> None:
    for command in commands:
        _receive(connection, 0, command.packet, sizes)
        _reply(connection, 1, command.reply)
        if command.reply == FILE:
            for sequence, part in enumerate((*command.file, b""), 2):
                _receive(connection, sequence, part, sizes)
            _reply(connection, len(command.file) + 3, OK)


def _recorded(packets: list[bytes], sizes: list[int], phase: int = READY) -> list[Query]:
    """The queries of these packets, each of which gets a result."""
    connection = Connection(registry.kind_of("mysql"), phase)
    for packet in packets:
        _receive(connection, 0, packet, sizes)
        _reply(connection, 1, ROWS)
    return connection.close()


def _assert_recorded(commands: list[Sent], sizes: list[int], phase: int) -> None:
    connection = Connection(registry.kind_of("mysql"), phase)
    _serve(connection, commands, sizes)
    queries = connection.close()
    assert not connection.loss
    assert [(recorded.text, recorded.executions, recorded.command) for recorded in queries] == [
        (command.text, command.executions, command.command) for command in commands
    ]
    outcomes = QueryFlag.OK | QueryFlag.ERROR
    for query, sent in zip(queries, commands, strict=True):
        if sent.text is not None:
            assert QueryFlag(query.flags) & outcomes == (sent.flag or QueryFlag(0))


@given(st.lists(COMMANDS, max_size=8), SIZES)
@example([_query(b"select 1", (OK, QueryFlag.OK))] * 2, [1])
@example([_attributed(b"select 1", [(8, b"n", b"12345678")] * 32, (ROWS, None))], [3])
def test_pieces_change_nothing(commands: list[Sent], sizes: list[int]) -> None:
    _assert_recorded(commands, sizes, READY)


@pytest.mark.parametrize("end", [b"", b" ".ljust(70)], ids=["short", "long"])
@pytest.mark.parametrize("text", [b'"a"', b"'\\'a'b'", b"a\xd7b", b"a\xa0b", b"\x7f1", b"'a' b"])
def test_a_statement_is_hashed_by_its_sessions_rules(text: bytes, end: bytes) -> None:
    """The rules are looked up only where they decide what a byte means."""
    for rules in range(COUNTS[Lexis.BACKTICK].rules):
        connection = Connection(registry.kind_of("mysql"), READY)
        connection.follow(rules)
        _receive(connection, 0, b"\x03" + text + end, [])
        _reply(connection, 1, ROWS)
        connection.follow(COUNTS[Lexis.BACKTICK].default)
        (query,) = connection.close()
        assert query.shape == c_hash(text + end, registry.dialect("mysql"), rules=rules)


@given(st.lists(COMMANDS, min_size=1, max_size=6))
def test_an_open_connection_is_joined_at_its_next_command(commands: list[Sent]) -> None:
    _assert_recorded(commands, [], UNKNOWN)


@given(st.lists(COMMANDS, min_size=1, max_size=6), st.integers(0, 400), SIZES)
def test_no_text_is_recorded_that_was_not_sent(
    commands: list[Sent], skipped: int, sizes: list[int]
) -> None:
    """Whatever was lost before: the rest of a packet is never mistaken for a statement."""
    connection = Connection(registry.kind_of("mysql"), UNKNOWN)
    remaining = commands[0].packet[skipped:]
    for at in range(0, len(remaining), 64):
        connection.receive(remaining[at : at + 64], skipped + at)
    connection.wait()
    _serve(connection, commands[1:], sizes)
    texts = {query.text for query in connection.close()}
    assert texts <= {None, *(command.text for command in commands[1:])}


@given(
    st.lists(COMMANDS, min_size=1, max_size=5), SIZES, st.sampled_from([1 << 5, 1 << 11, 1 << 26])
)
def test_a_hidden_session_is_counted_once_and_not_read(
    commands: list[Sent], sizes: list[int], hides: int
) -> None:
    connection = Connection(registry.kind_of("mysql"), STARTUP)
    login = struct.pack("<IIB23x", 0x200 | hides, 1 << 24, 45) + b"root\0\0"
    _receive(connection, 1, login, sizes)
    _serve(connection, commands, sizes)
    assert connection.close() == []
    assert list(connection.loss.values()) == [1]
    assert connection.sessions == (1, 0)


@given(SIZES, st.integers(1, (1 << 32) - 2))
def test_an_execution_has_its_own_statement(sizes: list[int], identity: int) -> None:
    """A statement's id is in bytes that may not have arrived: the bytes there belong to another."""
    connection = Connection(registry.kind_of("mysql"), READY)
    for statement, text in ((identity, b"select a"), (identity + 1, b"select b")):
        _receive(connection, 0, b"\x16" + text, sizes)
        _reply(connection, 1, struct.pack("<BIHHBH", 0, statement, 1, 0, 0, 0))
    for statement in (identity, identity + 1, identity):
        _receive(connection, 0, b"\x17" + struct.pack("<IBI", statement, 0, 1), sizes)
        _reply(connection, 1, ROWS)
    texts = [query.text for query in connection.close() if query.executions]
    assert texts == [b"select a", b"select b", b"select a"]
    assert not connection.loss


@given(TEXTS, ATTRIBUTES.filter(bool), st.data(), SIZES)
def test_attributes_that_are_cut_hide_the_text_and_are_a_loss(
    text: bytes, attributes: list[Parameter], data: st.DataObject, sizes: list[int]
) -> None:
    """The packet ends within its attributes: what is in the buffer after it is no statement."""
    packet_sent = _attributed(text, attributes, (ROWS, None)).packet
    cut = data.draw(st.integers(6, len(packet_sent) - len(text) - 1))
    connection = Connection(registry.kind_of("mysql"), READY)
    for packet in (packet_sent[:cut], b"\x03select 1"):
        _receive(connection, 0, packet, sizes)
        _reply(connection, 1, ROWS)
    first, second = connection.close()
    assert (first.text, first.executions, second.text) == (None, 1, b"select 1")
    assert connection.loss == {Loss.TEXT: 1}


# ---- attributes of COM_STMT_EXECUTE --------------------------------------------------------------

MOST = 480  #: bytes of tags (TAGS_BYTES of bpf/core/tags.bpf.h)
PARAMETERS_MAX, ATTRIBUTES_MAX = 128, 32  #: of an execution
COUNT_AVAILABLE = 8
IDENTITY = 3
OWN = st.lists(_parameters(st.just(b"") | st.binary(max_size=300)), max_size=40)
OURS = st.lists(
    _parameters(st.sampled_from([b"qjoule.a", b"qjoule.endpoint", b"other", b"", b"qjoule"])),
    max_size=34,
)


def expected(every: list[Parameter]) -> bytes | None:
    """The reference: the block that COM_QUERY would have for the attributes."""
    first = next(
        (at for at, parameter in enumerate(every) if parameter[1].startswith(b"qjoule.")), None
    )
    if first is None or len(every) > PARAMETERS_MAX or len(every) - first > ATTRIBUTES_MAX:
        return None
    block = bytes([len(every) - first, 1]) + parameters(every[first:])
    return block if len(block) <= MOST else None


def _execution(every: list[Parameter], flags: int = COUNT_AVAILABLE) -> bytes:
    head = b"\x17" + struct.pack("<IBI", IDENTITY, flags, 1)
    return head + bytes([len(every)]) + (parameters(every) if every else b"")


@given(st.lists(st.tuples(OWN, OURS), min_size=1, max_size=3), SIZES)
@example([([number(7)], [string(b"qjoule.a", b"x")])], [1])
@example([([number(7)] * 127, [string(b"qjoule.a", b"x")])], [1])
@example([([number(7)] * 128, [string(b"qjoule.a", b"x")])], [])
@example([([], [string(b"qjoule.a", b"x" * 300)])], [])
@example([([(8, b"", b"qjoule.a")], [])], [])
def test_executions_have_their_attributes(
    executions: list[tuple[list[Parameter], list[Parameter]]], sizes: list[int]
) -> None:
    sent = [[*own, *ours] for own, ours in executions]
    queries = _recorded([_execution(every) for every in sent], sizes)
    assert [query.executions for query in queries] == [1] * len(sent)
    assert [query.tags for query in queries] == [expected(every) for every in sent]
    undeclared = [_execution(every, flags=0) for every in sent]
    assert {query.tags for query in _recorded(undeclared, sizes)} == {None}
    (joined,) = _recorded([_execution(sent[0])], [], UNKNOWN)
    assert joined.tags == expected(sent[0])


@given(OWN, OURS, st.data())
def test_a_packet_that_is_cut_or_longer_has_no_attributes(
    own: list[Parameter], ours: list[Parameter], data: st.DataObject
) -> None:
    sent = _execution([*own, *ours])
    cut = data.draw(st.integers(8, len(sent) - 1))
    more = data.draw(st.binary(min_size=1, max_size=9))
    for packet in (sent[:cut], sent + more):
        assert [query.tags for query in _recorded([packet], [])] == [None]


@given(st.binary(max_size=600), SIZES)
def test_attributes_of_any_bytes_are_bounded(body: bytes, sizes: list[int]) -> None:
    packet = b"\x17" + struct.pack("<IBI", IDENTITY, COUNT_AVAILABLE, 1) + body
    (query,) = _recorded([packet], sizes)
    attributes = query.tags or b""
    assert len(attributes) <= MOST
    assert len(tags_in_attributes(attributes)) <= ATTRIBUTES_MAX
