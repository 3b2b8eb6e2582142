# SPDX-License-Identifier: Apache-2.0
"""MySQL connections that change owner: none gets the tags of an earlier owner."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import tag
from qjoule_studies.servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.recording import Run, both_attach_modes, recording

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


def test_another_login_has_attributes_of_its_own(
    mariadb: DatabaseServer, mysql80: DatabaseServer, tmp_path: Path
) -> None:
    """On the socket mode; the symbol mode sees no logins."""
    login: dict[str, Any] = {"flags": wire.CONNECT_ATTRIBUTES, "attributes": _release("one")}
    with both_attach_modes(tmp_path, mariadb.pid, mysql80.pid, options=("--client-tags",)):
        for mark, server in ((b"l_maria", mariadb), (b"l_mysql", mysql80)):
            with mysql_client(port=server.port, **login) as client:
                _logins(client, mark)
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
    socket, symbol = (Run(tmp_path / attach_mode) for attach_mode in ("socket", "symbol"))
    assert _tags(socket, "l_") == expected
    assert socket.loss == symbol.loss == {}
    of_comments = {tags for of in _tags(symbol, "l_").values() for tags in of}
    assert of_comments == {(), (("release", "own"),)}


def test_shims_tags_of_sessions_that_symbols_read(
    mariadb_pool: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    """Also for consecutive connections to which the server gives the same address."""
    server = mariadb_pool
    with (
        recording(tmp_path / "t", "--pid", str(server.pid), "--attach", "symbol"),
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
