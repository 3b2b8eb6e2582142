# SPDX-License-Identifier: Apache-2.0
"""Tags of executions of MySQL's prepared statements: query attributes after the parameters."""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing import long_runs
from tracing import mysql_client as wire
from tracing.at_once import at_once
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.mysql_values import (
    BLOB,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TINY,
    Parameter,
    number,
    parameters,
    string,
)
from tracing.recording import Run, both_rungs

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

RUNGS = ("socket", "symbol")
COUNT_AVAILABLE = 8
NO_VALUE = b""  #: sent in an earlier packet
CLIENTS = 64 if long_runs.ASKED else 4
CALLS = long_runs.statements(600) // CLIENTS  #: of each client
ENDPOINTS = 5


def _execute(client: MysqlClient, statement: int, *every: Parameter, types: bool = True) -> None:
    head = struct.pack("<IBI", statement, COUNT_AVAILABLE, 1) + bytes([len(every)])
    client.send(wire.COM_EXECUTE, head + (parameters(every, types=types) if every else b""))
    client.results(binary=True)


def _endpoint(value: bytes) -> Parameter:
    return string(b"qjoule.endpoint", value)


Tags = tuple[tuple[str, str], ...]


def _tags(run: Run, word: str) -> Counter[tuple[str, Tags]]:
    """(mark, its tags) and how many executions have them."""
    found: Counter[tuple[str, Tags]] = Counter()
    queries = run.having(word)
    marks = queries["text"].str.extract("(m_[a-z_]+)")[0]
    for mark, tags, n in zip(marks, queries["tags"], queries["executions"], strict=True):
        if n:
            found[mark, tuple(tags) if isinstance(tags, list) else ()] += int(n)
    return found


#: For a statement with that many parameters: what else follows them, and its tags.
KINDS: dict[str, tuple[list[Parameter], list[Parameter], Tags]] = {
    "m_none": ([], [_endpoint(b"a")], (("endpoint", "a"),)),
    "m_one": ([number(7)], [_endpoint(b"a")], (("endpoint", "a"),)),
    "m_other": (
        [number(7)],
        [string(b"other", b"x" * 600), _endpoint(b"a"), (DOUBLE, b"other", None)],
        (("endpoint", "a"),),
    ),
    "m_kinds": (
        [
            (TINY, b"", b"\1"),
            (STRING, b"", None),
            (DATE, b"", b"\4" + struct.pack("<HBB", 2024, 2, 29)),
            string(b"", b"\x0fqjoule.endpoint\1x" * 300),
            (LONG, b"", struct.pack("<i", -1)),
            string(b"own", b""),
            number(9),
            number(9),
            string(b"", b"x" * 70_000),
        ],
        [_endpoint(b"a"), (STRING, b"qjoule.null", None), number(-3, b"qjoule.number")],
        (("endpoint", "a"), ("number", "-3")),
    ),
    "m_numbered": ([number(7)], [], ()),
    "m_many": ([number(7)] * 127, [_endpoint(b"a")], (("endpoint", "a"),)),
    "m_too_many": ([number(7)] * 128, [_endpoint(b"a")], ()),
    "m_too_long": ([number(7)], [_endpoint(b"x" * 470)], ()),
    "m_commented": ([number(7)], [_endpoint(b"a")], (("endpoint", "a"),)),
}


def _prepare(client: MysqlClient, mark: str, own: int) -> int:
    marks = ", ".join("?" * own) or "1"
    comment = " /*endpoint='comment'*/" if mark == "m_commented" else ""
    return client.prepare(f"select 1 as {mark}, concat({marks}){comment}".encode())


@pytest.mark.parametrize("hidden", [0, wire.TLS, wire.ZLIB], ids=("plain", "tls", "zlib"))
def test_attributes_behind_parameters(
    hidden: int, mysql8033: DatabaseServer, tmp_path: Path
) -> None:
    flags = wire.QUERY_ATTRIBUTES | hidden
    expected: Counter[tuple[str, Tags]] = Counter()
    with (
        both_rungs(tmp_path, mysql8033.pid, options=("--client-tags",)),
        mysql_client(port=mysql8033.port, flags=flags) as client,
    ):
        for mark, (own, attributes, tags) in KINDS.items():
            statement = _prepare(client, mark, len(own))
            for _ in range(2):
                _execute(client, statement, *own, *attributes)
            expected[mark, tags] = 2
        _execute(client, statement, number(7))
        expected["m_commented", (("endpoint", "comment"),)] = 1
    for rung in ("symbol",) if hidden else RUNGS:
        run = Run(tmp_path / rung)
        assert _tags(run, " m_") == expected, rung
        assert run.loss == {}
    assert not hidden or Run(tmp_path / "socket").loss == {"opaque_session": 1}


def test_pieces_change_nothing(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    with (
        both_rungs(tmp_path, mysql8033.pid, options=("--client-tags",)),
        mysql_client(port=mysql8033.port, flags=wire.QUERY_ATTRIBUTES) as client,
    ):
        statement = client.prepare(b"select ? as m_pieces")
        client.query(b"\0\1select 1")
        for client.pause_s in (0, 0.0005):
            for value in (b"a", b"b"):
                _execute(client, statement, number(7), _endpoint(value))
    for rung in RUNGS:
        assert _tags(Run(tmp_path / rung), "m_pieces") == {
            ("m_pieces", (("endpoint", "a"),)): 2,
            ("m_pieces", (("endpoint", "b"),)): 2,
        }, rung


def test_values_that_came_before(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    """They are not in the packet. The server knows that; on the socket nothing is guessed."""
    long = (BLOB, b"", NO_VALUE)
    with (
        both_rungs(tmp_path, mysql8033.pid, options=("--client-tags",)),
        mysql_client(port=mysql8033.port, flags=wire.QUERY_ATTRIBUTES) as client,
    ):
        statement = client.prepare(b"select ? as m_long, ?")
        other = client.prepare(b"select ? as m_short")
        for _ in range(2):
            client.long_data(statement, 0, b"x" * 9)
            _execute(client, other, number(7), _endpoint(b"b"))
            _execute(client, statement, long, number(7), _endpoint(b"a"))
            _execute(client, statement, number(7), number(7), _endpoint(b"c"))
    for rung in RUNGS:
        with_long = (("endpoint", "a"),) if rung == "symbol" else ()
        assert _tags(Run(tmp_path / rung), " m_") == {
            ("m_short", (("endpoint", "b"),)): 2,
            ("m_long", with_long): 2,
            ("m_long", (("endpoint", "c"),)): 2,
        }, rung


def test_attributes_without_types_are_refused(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    """As the server does: names are not remembered from an earlier execution."""
    with (
        both_rungs(tmp_path, mysql8033.pid, options=("--client-tags",)),
        mysql_client(port=mysql8033.port, flags=wire.QUERY_ATTRIBUTES) as client,
    ):
        statement = client.prepare(b"select ? as m_typed")
        _execute(client, statement, number(7), _endpoint(b"a"))
        _execute(client, statement, number(7), types=False)
        with pytest.raises(MysqlError, match="alformed"):
            _execute(client, statement, number(7), _endpoint(b"b"), types=False)
        with suppress(MysqlError):
            client.drop()
    for rung in RUNGS:
        found = _tags(Run(tmp_path / rung), "m_typed")
        assert found["m_typed", (("endpoint", "a"),)] == 1, rung
        assert found["m_typed", ()] >= 1, rung
        assert len(found) == 2, rung


def _executed(server: DatabaseServer) -> int:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("show global status like 'Com_stmt_execute'")
        return int(cursor.fetchone()[1])


def _work(port: int, flags: int, client_number: int) -> None:
    with mysql_client(port=port, flags=flags) as client:
        statements = [client.prepare(b"select ? as m_own, ? as m_two") for _ in range(2)]
        for turn in range(CALLS):
            own = [number(turn), string(b"", b"x" * (turn % 300))]
            endpoint = _endpoint(b"/%d/%d" % (client_number, turn % ENDPOINTS))
            _execute(client, statements[turn % 2], *own, endpoint)


@pytest.mark.parametrize("hidden", [0, wire.TLS], ids=("plain", "tls"))
def test_every_execution_has_its_own(
    hidden: int, mysql8033: DatabaseServer, tmp_path: Path
) -> None:
    """Values differ each time but distinct tags are few: each set is reported once."""
    flags = wire.QUERY_ATTRIBUTES | hidden
    before = _executed(mysql8033)
    with both_rungs(tmp_path, mysql8033.pid, options=("--client-tags",)):
        at_once(partial(_work, mysql8033.port, flags), range(CLIENTS))
    expected: Counter[tuple[str, Tags]] = Counter(
        ("m_own", (("endpoint", f"/{number}/{turn % ENDPOINTS}"),))
        for number in range(CLIENTS)
        for turn in range(CALLS)
    )
    assert expected.total() == _executed(mysql8033) - before
    for rung in ("symbol",) if hidden else RUNGS:
        run = Run(tmp_path / rung)
        assert _tags(run, "m_own") == expected, rung
        assert run.loss == {}


def test_a_server_without_attributes(mysql80: DatabaseServer, tmp_path: Path) -> None:
    """It keeps no names where later versions do. A client's claim that they are in its packet is
    ignored.
    """
    with (
        both_rungs(tmp_path, mysql80.pid, options=("--client-tags",)),
        mysql_client(port=mysql80.port) as client,
    ):
        for own in (1, 2, 9):
            statement = client.prepare(b"do " + b", ".join([b"?"] * own) + b", 'm_before'")
            names = [string(b"", b"\x17qjoule.endpoint\1x")] * own
            head = struct.pack("<IBI", statement, COUNT_AVAILABLE, 1)
            nulls = bytes((own + 7) // 8) + b"\1"
            types = struct.pack("<H", STRING) * own
            values = b"".join(value or b"" for _, _, value in names)
            client.send(wire.COM_EXECUTE, head + nulls + types + values)
            client.results(binary=True)
    for rung in RUNGS:
        run = Run(tmp_path / rung)
        executed = run.queries[run.queries["command"] == "execute"]
        assert list(executed["executions"]) == [1, 1, 1]
        assert executed["tags"].isna().all()
        assert run.loss == {}
