# SPDX-License-Identifier: Apache-2.0
"""MySQL connections that change owner: none gets the tags of an earlier owner."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import tag
from servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

AGAIN = 15  #: connections, one after another: the server gives each the address of the last
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


def _logins(client: MysqlClient, mark: bytes) -> None:
    """As a pool resets a connection between two users."""
    client.query(b"select 1 as %s_first" % mark)
    client.simple(wire.COM_RESET_CONNECTION)
    client.query(b"select 1 as %s_reset" % mark)
    client.change_user(attributes=_release("two"))
    client.query(b"select 1 as %s_second" % mark)
    client.change_user()
    client.query(b"select 1 as %s_none" % mark)
    client.change_user(attributes=_release("four"))
    client.query(b"select 1 as %s_fourth /*release='own'*/" % mark)
    client.query(b"select 1 as %s_fourth" % mark)
    with suppress(MysqlError):  # MySQL then closes the connection
        client.change_user(b"nobody", attributes=_release("refused"))
    with suppress(MysqlError, OSError):
        client.query(b"select 1 as %s_kept" % mark)


def _bulks(server: DatabaseServer) -> None:
    """The rows of one execution have the tags of their statement."""
    with mysql_client(server.socket, database="mysql", flags=wire.BULK) as client:
        client.query(b"create temporary table test_bulk (b_number bigint)")
        statements = [
            client.prepare(b"insert into test_bulk (b_number) values (?)" + comment)
            for comment in (b" /*a='1'*/", b" /*a='2'*/", b"")
        ]
        for statement in [*statements, *statements]:
            client.bulk_execute(statement, range(9))
            client.query(b"select 1 as b_between /*a='3'*/")


def test_another_login_has_attributes_of_its_own(
    mariadb: DatabaseServer, mysql80: DatabaseServer, tmp_path: Path
) -> None:
    """On the socket rung; the symbol rung sees no logins."""
    login: dict[str, Any] = {"flags": wire.CONNECT_ATTRIBUTES, "attributes": _release("one")}
    with both_rungs(tmp_path, mariadb.pid, mysql80.pid, options=("--client-tags",)):
        for mark, server in ((b"l_maria", mariadb), (b"l_mysql", mysql80)):
            with mysql_client(port=server.port, **login) as client:
                _logins(client, mark)
        _bulks(mariadb)
    releases = {"first": "one", "reset": "one", "second": "two", "fourth": "four", "kept": "four"}
    expected: dict[str, Counter[Tags]] = {
        f"{name}_{mark}": Counter({(("release", of),): 1})
        for name in ("l_maria", "l_mysql")
        for mark, of in releases.items()
    }
    del expected["l_mysql_kept"]
    for name in ("l_maria", "l_mysql"):
        expected[f"{name}_none"] = Counter({(): 1})
        expected[f"{name}_fourth"][(("release", "own"),)] += 1
    socket, symbol = (Run(tmp_path / rung) for rung in ("socket", "symbol"))
    assert _tags(socket, "l_") == expected
    assert socket.loss == symbol.loss == {}
    of_comments = {tags for of in _tags(symbol, "l_").values() for tags in of}
    assert of_comments == {(), (("release", "own"),)}
    bulks: dict[str, Counter[Tags]] = {
        "b_number": Counter({(("a", "1"),): 2, (("a", "2"),): 2, (): 2}),
        "b_between": Counter({(("a", "3"),): 6}),
    }
    for run in (socket, symbol):
        found = _tags(run, "b_")
        found["b_number"] -= Counter({(): 1})  # the table
        assert found == bulks


def test_threads_of_a_pool_keep_their_clients_apart(
    mariadb_pool: DatabaseServer, tmp_path: Path
) -> None:
    """A thread serves any client that has sent something; each query has its own comment
    or none.
    """
    sent: Counter[Tags] = Counter()
    login: dict[str, Any] = {"flags": wire.CONNECT_ATTRIBUTES, "attributes": _release("one")}
    with (
        recording(tmp_path / "t", "--pid", str(mariadb_pool.pid), "--client-tags"),
        ExitStack() as stack,
    ):
        clients = [
            stack.enter_context(mysql_client(port=mariadb_pool.port, **login)) for _ in range(12)
        ]
        text = b"select ? as p_pool /*client='%d'*/"
        prepared = [client.prepare(text % number) for number, client in enumerate(clients)]
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
                    prepared[number] = client.prepare(text % number)
                elif number % 2:
                    client.query(b"do sleep(0.001) /*client='%d'*/" % (number + 100))
    run = Run(tmp_path / "t")
    assert _tags(run, "p_")["p_pool"] == sent
    assert run.loss == {}


@pytest.mark.parametrize("name", ["mariadb_pool", "mysql8033"])
def test_shims_tags_of_sessions_that_symbols_read(
    name: str, request: pytest.FixtureRequest, tags_socket: Path, tmp_path: Path
) -> None:
    """Also for consecutive connections to which the server gives the same address."""
    server: DatabaseServer = request.getfixturevalue(name)
    with (
        recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol"),
        ExitStack() as stack,
    ):
        kept = [stack.enter_context(closing(server.connect(tcp=n % 2 == 0))) for n in range(4)]
        for turn in range(AGAIN):
            with closing(server.connect(tcp=True)) as short:
                for connection in (short, kept[turn % 4]):
                    with tag(m=f"k{turn}"), connection.cursor() as cursor:
                        cursor.execute(f"select {turn} as m_tagged_k{turn}")
    run = Run(tmp_path / "t")
    tagged = run.having("m_tagged")
    assert Counter(tagged["text"]) == {f"select ? as m_tagged_k{n}": 2 for n in range(AGAIN)}
    assert [dict(tags or ()).get("m") for tags in tagged["tags"]] == [
        text.removeprefix("select ? as m_tagged_") for text in tagged["text"]
    ]
    assert run.loss == {}
    del tags_socket
