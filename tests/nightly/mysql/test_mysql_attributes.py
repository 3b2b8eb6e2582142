# SPDX-License-Identifier: Apache-2.0
"""Query attributes (MySQL 8.0.23) precede a statement's text, and are not part of it."""

from __future__ import annotations

import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qjoule_drivers import instrument, tag, uninstrument
from qjoule_drivers.comments import put_in_statements
from servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing import mysql_story as day
from tracing.mysql_client import MysqlClient, mysql_client
from tracing.mysql_values import DATE, Parameter, number, parameters, string
from tracing.recording import Run, both_rungs

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


def _query(client: MysqlClient, text: bytes, *attributes: Parameter) -> None:
    head = bytes([len(attributes), 1]) + (parameters([*attributes]) if attributes else b"")
    client.query(head + text)


def _execute(client: MysqlClient, statement: int, value: int, *attributes: Parameter) -> None:
    """Sends flag PARAMETER_COUNT_AVAILABLE; the statement's own parameter has no name."""
    every = [number(value), *attributes]
    head = struct.pack("<IBI", statement, 8, 1) + bytes([len(every)])
    client.send(wire.COM_EXECUTE, head + parameters(every))
    client.results(binary=True)


def _tell(client: MysqlClient) -> Counter[str]:
    fake = string(b"fake", b"\x03select 'fake' as m_fake")
    kinds = [
        number(1, b"number"),
        (DATE, b"day", b"\4" + struct.pack("<HBB", 2024, 2, 29)),
        string(b"", b""),
        string(b"name" * 60, "ü".encode() * 40_000),
    ]
    _query(client, b"select 1 as m_none")
    _query(client, b"select 1 as m_one", fake)
    _query(client, b"select 1 as m_kinds", *kinds)
    _query(client, b"select 1 as m_all", *[fake] * 32)
    one, two = (client.prepare(b"select ? as m_prepared_%d" % n) for n in (1, 2))
    for statement in (one, two, one):
        _execute(client, statement, 7, fake, *kinds)
    return Counter(m_none=1, m_one=1, m_kinds=1, m_all=1, m_prepared_1=2, m_prepared_2=1)


def test_the_text_behind_attributes(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    with both_rungs(tmp_path, mysql8033.pid):
        with mysql_client(mysql8033.socket, flags=wire.QUERY_ATTRIBUTES) as client:
            sent = _tell(client)
        for pause_s in (0, 0.0005):
            with mysql_client(port=mysql8033.port, flags=wire.QUERY_ATTRIBUTES) as client:
                client.pause_s = pause_s
                _query(client, b"select 1 as m_pieces", *[string(b"name", b"v" * 40)] * 3)
                sent["m_pieces"] += 1
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        assert day.marker_counts(run.queries) == sent, rung
        assert set(run.having("m_all")["text"]) == {"select ? as m_all"}
        assert run.loss == {}


def test_more_attributes_than_are_looked_at(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    with (
        both_rungs(tmp_path, mysql8033.pid),
        mysql_client(mysql8033.socket, flags=wire.QUERY_ATTRIBUTES) as client,
    ):
        _query(client, b"select 1 as m_many", *[string(b"n", b"v")] * 60)
        many = b"\xfc" + struct.pack("<HB", 300, 1) + parameters([string(b"n", b"v")] * 300)
        client.query(many + b"select 1 as m_many")
        _query(client, b"select 1 as m_next")
    assert day.marker_counts(Run(tmp_path / "symbol").queries) == {"m_many": 2, "m_next": 1}
    socket = Run(tmp_path / "socket")
    assert day.marker_counts(socket.queries) == {"m_next": 1}
    assert socket.queries["executions"].sum() == 3, "counted, if without its text"
    assert socket.loss == {"text": 2}


@pytest.fixture
def with_function(mysql8033: DatabaseServer) -> Iterator[DatabaseServer]:
    """A server whose statements can read their attributes."""
    component = "component 'file://component_query_attributes'"
    with closing(mysql8033.connect()) as connection:
        connection.query(f"install {component}")
        yield mysql8033
        connection.query(f"uninstall {component}")


def test_the_server_s_own_client(with_function: DatabaseServer, tmp_path: Path) -> None:
    server = with_function
    client = Path(server.executable).with_name("mysql")
    lines = (
        "query_attributes m_key m_value\n"
        "select mysql_query_attribute_string('m_key') as m_cli;\n"
        "select mysql_query_attribute_string('m_key') as m_cli_next;\n"
    )
    with both_rungs(tmp_path, server.pid):
        said = subprocess.run(
            [client, "--no-defaults", "-uroot", f"-S{server.socket}", "--named-commands", "-N"],
            input=lines,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert said.stdout == "m_value\nNULL\n"
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        assert set(run.having("m_cli")["text"]) == {
            "select mysql_query_attribute_string(?) as m_cli",
            "select mysql_query_attribute_string(?) as m_cli_next",
        }
        assert run.loss == {}


def test_a_driver_s_tags_reach_the_statement(with_function: DatabaseServer, tmp_path: Path) -> None:
    """The statement stays the same to the server: one digest, whatever the tags are."""
    text = "select mysql_query_attribute_string('qjoule.endpoint') as m_driver"
    instrument("pymysql", in_statements=["endpoint"])
    try:
        with (
            both_rungs(tmp_path, with_function.pid),
            closing(with_function.connect(ssl_disabled=True)) as opened,
        ):
            found = []
            for endpoint in ("a b", "*/ -- ü", "x" * 300, None):
                with opened.cursor() as cursor, tag(endpoint=endpoint):
                    cursor.execute(text)
                    found.append(cursor.fetchone()[0])
    finally:
        uninstrument()
        put_in_statements(())
    assert found == ["a b", "*/ -- ü", "x" * 256, None]
    with closing(with_function.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            "select count_star, query_sample_text from"
            " performance_schema.events_statements_summary_by_digest"
            " where digest_text like '%m_driver%' and digest_text not like '%digest%'"
        )
        assert cursor.fetchall() == ((4, text),)
    for rung in ("socket", "symbol"):
        assert day.marker_counts(Run(tmp_path / rung).queries) == {"m_driver": 4}
