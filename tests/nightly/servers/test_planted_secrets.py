# SPDX-License-Identifier: Apache-2.0
"""What a real server returns as a value of a statement is not in its shape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psycopg
import pymysql
import pytest
from cassandra import DriverException
from cassandra.protocol import ErrorMessage
from hypothesis import given
from hypothesis import strategies as st

from fuzz import planted
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.shapes.rules import Charset, Quoting, backtick_rules
from qjoule_studies.servers.process import DatabaseServer

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]
LATIN1 = backtick_rules(Quoting.STRINGS, Charset.LATIN1)


def _asking_mysql(server: DatabaseServer, rules: int | None) -> Callable[[str], str]:
    """What a session returns for a statement, as one text; empty: it is refused."""
    connection = pymysql.connect(
        unix_socket=str(server.socket), user="root", charset="latin1", autocommit=True
    )
    cursor = connection.cursor()
    cursor.execute(f"set names {'latin1' if rules else 'utf8mb4'}")

    def ask(text: str) -> str:
        with suppress(pymysql.Error):
            cursor.execute(text)
            return repr(cursor.fetchall())
        return ""

    return ask


def _asking_postgres(server: DatabaseServer, _: int | None) -> Callable[[str], str]:
    connection = psycopg.connect(host=str(server.socket.parent), port=server.port, user="postgres")

    def ask(text: str) -> str:
        result = connection.pgconn.exec_(text.encode())
        values = [result.get_value(0, column) for column in range(result.nfields)]
        connection.rollback()
        return repr(values) if result.ntuples else ""

    return ask


def _asking_cassandra(server: DatabaseServer, _: int | None) -> Callable[[str], str]:
    client = server.connect()
    client.execute(
        "create keyspace planted with replication = {'class':'SimpleStrategy',"
        " 'replication_factor': 1}"
    )
    client.execute("create table planted.t (id int primary key, v list<text>)")

    def ask(text: str) -> str:
        values = text.removeprefix("select")
        with suppress(DriverException, ErrorMessage):
            client.execute(f"insert into planted.t (id, v) values (1, [{values}\n])")
            return repr(list(client.execute("select v from planted.t")))
        return ""

    return ask


@pytest.mark.parametrize(
    ("server", "asking", "grammar", "rules"),
    [
        ("mariadb", _asking_mysql, planted.MARIADB, None),
        ("mariadb", _asking_mysql, planted.MARIADB_LATIN1, LATIN1),
        ("mysql80", _asking_mysql, planted.MYSQL, None),
        ("postgres", _asking_postgres, planted.POSTGRES, None),
        ("cassandra", _asking_cassandra, planted.CQL, None),
    ],
)
def test_no_value_is_in_a_shape(
    request: pytest.FixtureRequest,
    server: str,
    asking: Callable[[DatabaseServer, int | None], Callable[[str], str]],
    grammar: planted.Grammar,
    rules: int | None,
) -> None:
    ask = asking(request.getfixturevalue(server), rules)
    kind = {"mariadb": "mysql", "mysql80": "mysql", "cassandra": "cql"}.get(server, server)
    answers = 0

    @given(st.data())
    def values_are_hidden(data: st.DataObject) -> None:
        nonlocal answers
        text = data.draw(planted.statements(grammar))
        values = ask(text)
        answers += bool(values)
        literals = {secret for secret in planted.SECRET.findall(text) if secret in values}
        assert literals <= planted.secrets_in(grammar, text), (text, values)
        shape = fingerprint(text.encode("latin-1"), registry.dialect(kind), rules=rules).text
        assert not literals & set(planted.SECRET.findall(shape)), (text, values, shape)

    values_are_hidden()
    assert answers
