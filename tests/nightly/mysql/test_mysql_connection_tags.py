# SPDX-License-Identifier: Apache-2.0
"""MySQL connections that change owner, and requests of several statements.

None gets the tags of an earlier owner or of another statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

RUNGS = ("socket", "symbol")


Tags = tuple[tuple[str, str], ...]


def _tags(run: Run, word: str) -> dict[str, Counter[Tags]]:
    """For each mark its tags, and how many executions have them."""
    found: dict[str, Counter[Tags]] = {}
    queries = run.having(word)
    marks = queries["text"].str.extract(f"({word}[a-z_]+)")[0]
    for mark, tags, n in zip(marks, queries["tags"], queries["executions"], strict=True):
        if n:
            found.setdefault(mark, Counter())[tuple(tags) if isinstance(tags, list) else ()] += n
    return found


def _release(name: str) -> dict[bytes, bytes]:
    return {b"program_name": b"m_wire_py", b"qjoule.release": name.encode()}


def _logins(client: MysqlClient, server: DatabaseServer) -> None:
    """As a pool resets a connection between two users."""
    known = (
        b"select 1 as m_known from performance_schema.session_connect_attrs where attr_value = '%s'"
        b" and processlist_id = connection_id() and attr_name = 'qjoule.release'"
    )
    keeps = server.name == "mysql"  # MariaDB's performance schema is off
    client.query(b"select 1 as m_first")
    client.simple(wire.COM_RESET_CONNECTION)
    client.query(b"select 1 as m_reset")
    assert not keeps or client.query(known % b"one") == 1
    client.change_user(attributes=_release("two"))
    client.query(b"select 1 as m_second")
    assert not keeps or client.query(known % b"two") == 1
    client.change_user()
    client.query(b"select 1 as m_none")
    client.change_user(attributes=_release("four"))
    client.query(b"select 1 as m_fourth /*release='own'*/")
    client.query(b"select 1 as m_fourth")
    with suppress(MysqlError):  # MySQL then closes the connection
        client.change_user(b"nobody", attributes=_release("refused"))
    with suppress(MysqlError, OSError):
        client.query(b"select 1 as m_kept")


@pytest.mark.parametrize("name", ["mariadb", "mysql80"])
def test_another_login_has_attributes_of_its_own(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """On the socket rung; the symbol rung sees no logins."""
    server: DatabaseServer = request.getfixturevalue(name)
    with (
        both_rungs(tmp_path, server.pid, options=("--client-tags",)),
        mysql_client(
            port=server.port, flags=wire.CONNECT_ATTRIBUTES, attributes=_release("one")
        ) as client,
    ):
        _logins(client, server)
    releases = {"m_first": "one", "m_reset": "one", "m_second": "two", "m_fourth": "four"}
    if name == "mariadb":
        releases["m_kept"] = "four"
    expected: dict[str, Counter[Tags]] = {
        mark: Counter({(("release", of),): 1}) for mark, of in releases.items()
    }
    expected["m_none"] = Counter({(): 1})
    expected["m_fourth"] += Counter({(("release", "own"),): 1})
    socket, symbol = (Run(tmp_path / rung) for rung in RUNGS)
    found = _tags(socket, "m_")
    found.pop("m_known", None)
    assert found == expected
    of_comment = _tags(symbol, "m_")
    assert of_comment.pop("m_fourth") == Counter({(("release", "own"),): 1, (): 1})
    assert set().union(*of_comment.values()) == {()}
    assert socket.loss == symbol.loss == {}


def test_threads_of_a_pool_keep_their_clients_apart(
    mariadb_pool: DatabaseServer, tmp_path: Path
) -> None:
    """A thread serves any client that has sent something; each query has its own comment
    or none.
    """
    sent: Counter[Tags] = Counter()
    with (
        recording(tmp_path / "t", "--pid", str(mariadb_pool.pid), "--client-tags"),
        ExitStack() as stack,
    ):
        clients = [
            stack.enter_context(
                mysql_client(
                    port=mariadb_pool.port,
                    flags=wire.CONNECT_ATTRIBUTES,
                    attributes=_release("one"),
                )
            )
            for _ in range(12)
        ]
        prepared = [
            client.prepare(b"select ? as p_pool /*client='%d'*/" % number)
            for number, client in enumerate(clients)
        ]
        for turn in range(8):
            for number, client in enumerate(clients):
                if (turn + number) % 3:
                    client.query(b"select sleep(0) as p_pool /*client='%d'*/" % number)
                    client.execute(prepared[number], turn)
                    sent[(("client", str(number)),)] += 2
                else:
                    client.query(b"select 1 as p_pool")
                    sent[()] += 1
            for number, client in enumerate(clients):
                if turn == 4:
                    client.change_user(attributes=_release("two"))
                    prepared[number] = client.prepare(
                        b"select ? as p_pool /*client='%d'*/" % number
                    )
                elif number % 2:
                    client.query(b"do sleep(0.001) /*client='%d'*/" % (number + 100))
    run = Run(tmp_path / "t")
    assert _tags(run, "p_")["p_pool"] == sent
    assert run.loss == {}


SEVERAL = {
    "select 1 as n_each /*a='1'*/; select 2 /*a='2'*/": {},
    "/*a='1'*/ select 1 as n_before; /*a='2'*/ select 2": {},
    "select 1 as n_first /*a='1'*/; select 2": {},
    "select 1 as n_end; select 2 /*a='2'*/;": {"a": "2"},
    "/*a='1'*/ select 1 as n_start; select 2;": {"a": "1"},
    "select ';' as n_literal /*a='1'*/": {"a": "1"},
    "/*a='1'*/ select 1 as n_one /*a='2'*/;": {"a": "2"},
}


def _several(send: Callable[[str], object]) -> None:
    for text in SEVERAL:
        send(text)


def test_of_several_statements_none_has_anothers(
    mariadb: DatabaseServer, postgres: DatabaseServer, tmp_path: Path
) -> None:
    """They are one query: it has its own comment, or none."""
    with both_rungs(tmp_path, mariadb.pid, postgres.pid, options=("--client-tags",)):
        with mysql_client(mariadb.socket) as client:
            _several(lambda text: client.query(text.encode()))
        with postgres.connect() as connection:
            _several(connection.execute)
    expected = {text.split(" as ")[1].split()[0].strip(";"): of for text, of in SEVERAL.items()}
    for rung in RUNGS:
        queries = Run(tmp_path / rung).having(" n_")
        for server in (1, 2):
            of = queries[queries["server"] == server]
            marks = of["text"].str.extract("(n_[a-z]+)")[0]
            tags = [dict(tags) if isinstance(tags, list) else {} for tags in of["tags"]]
            assert dict(zip(marks, tags, strict=True)) == expected, (rung, server)


def test_a_bulk_is_its_statements(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """The rows of one execution; also where its statement is one of several."""
    with (
        both_rungs(tmp_path, mariadb.pid, options=("--client-tags",)),
        mysql_client(mariadb.socket, database="mysql", flags=wire.BULK) as client,
    ):
        client.query(
            b"create temporary table test_bulk (b_number bigint)",
        )
        statements = [
            client.prepare(b"insert into test_bulk (b_number) values (?)" + comment)
            for comment in (b" /*a='1'*/", b" /*a='2'*/", b"")
        ]
        for statement in [*statements, *statements]:
            client.bulk_execute(statement, range(9))
            client.query(b"select 1 as b_between /*a='3'*/")
    expected = {
        "b_number": Counter({(("a", "1"),): 2, (("a", "2"),): 2, (): 2}),
        "b_between": Counter({(("a", "3"),): 6}),
    }
    for rung in RUNGS:
        run = Run(tmp_path / rung)
        run.queries = run.queries[run.queries["command"] != "prepare"]
        found = _tags(run, "b_")
        found["b_number"] -= Counter({(): 1})  # the table
        assert found == expected, rung
        assert run.loss == {}
