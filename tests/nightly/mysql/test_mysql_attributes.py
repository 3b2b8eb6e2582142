# SPDX-License-Identifier: Apache-2.0
"""Query attributes (MySQL 8.0.23): before a statement's text, and behind the parameters of an
execution. They are no part of the text, and some are tags. Also: connections that change owner.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import instrument, tag, uninstrument
from qjoule_drivers.comments import put_in_statements
from qjoule_studies.servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.mysql_story import marker_counts
from tracing.mysql_values import (
    DATE,
    LONG,
    STRING,
    TINY,
    Parameter,
    number,
    parameters,
    string,
)
from tracing.recording import Run, both_attach_modes, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

ATTACH_MODES = ("socket", "symbol")
COUNT_AVAILABLE = 8
COMPONENT = "component 'file://component_query_attributes'"
DRIVEN = "select mysql_query_attribute_string('qjoule.endpoint') as m_driver"
Tags = tuple[tuple[str, str], ...]


def _query(client: MysqlClient, text: bytes, *attributes: Parameter) -> None:
    size = len(attributes)
    count = bytes([size]) if size < 251 else b"\xfc" + struct.pack("<H", size)
    client.query(count + b"\1" + (parameters([*attributes]) if attributes else b"") + text)


def _execute(client: MysqlClient, statement: int, *every: Parameter) -> None:
    head = struct.pack("<IBI", statement, COUNT_AVAILABLE, 1) + bytes([len(every)])
    client.send(wire.COM_EXECUTE, head + (parameters(every) if every else b""))
    client.results(binary=True)


def _endpoint(value: bytes) -> Parameter:
    return string(b"qjoule.endpoint", value)


A = (("endpoint", "a"),)
#: By mark: a statement's own parameters, the attributes that follow them, and its tags.
EXECUTIONS: dict[str, tuple[list[Parameter], list[Parameter], Tags]] = {
    "e_one": ([number(7)], [_endpoint(b"a")], A),
    "e_kinds": (
        [
            (TINY, b"", b"\1"),
            (STRING, b"", None),
            (DATE, b"", b"\4" + struct.pack("<HBB", 2024, 2, 29)),
            string(b"", b"\x0fqjoule.endpoint\1x" * 300),
            (LONG, b"", struct.pack("<i", -1)),
            string(b"own", b""),
            *[number(9)] * 2,
            string(b"", b"x" * 70_000),
        ],
        [_endpoint(b"a"), (STRING, b"qjoule.null", None), number(-3, b"qjoule.number")],
        (("endpoint", "a"), ("number", "-3")),
    ),
    "e_too_many": ([number(7)] * 128, [_endpoint(b"a")], ()),
    "e_too_long": ([number(7)], [_endpoint(b"x" * 470)], ()),
    "e_commented": ([number(7)], [_endpoint(b"a")], A),
}


@dataclass
class Story:
    sent: Counter[str] = field(default_factory=Counter)  #: texts behind attributes, by marker
    tagged: Counter[tuple[str, Tags]] = field(default_factory=Counter)  #: plain executions
    hidden: Counter[tuple[str, Tags]] = field(default_factory=Counter)  #: not shown by sockets


def _texts(client: MysqlClient, story: Story) -> None:
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
    first, second = (client.prepare(b"select ? as m_prepared_%d" % n) for n in (1, 2))
    for statement in (first, second, first):
        _execute(client, statement, number(7), fake, *kinds)
    for size in (60, 300):  # more than are looked at on sockets
        _query(client, b"select 1 as m_too_many", *[string(b"n", b"v")] * size)
    story.sent += Counter(m_none=1, m_one=1, m_kinds=1, m_all=1, m_prepared_1=2, m_prepared_2=1)
    for name in (b"other", b"qjoule.endpoint"):  # a comment behind other attributes is read
        _query(client, b"select 1 as e_text /*endpoint='c'*/", string(name, b"x"))
    story.tagged["e_text", (("endpoint", "c"),)] += 1
    story.tagged["e_text", (("endpoint", "x"),)] += 1


def _executions(port: int, hidden: int, tagged: Counter[tuple[str, Tags]]) -> None:
    with mysql_client(port=port, flags=wire.QUERY_ATTRIBUTES | hidden) as client:
        for mark, (own, attributes, tags) in EXECUTIONS.items():
            marks = ", ".join("?" * len(own)) or "1"
            comment = " /*endpoint='comment'*/" if mark == "e_commented" else ""
            text = f"select 1 as {mark}, concat({marks}){comment}"
            statement = client.prepare(text.encode())
            for _ in range(2):
                _execute(client, statement, *own, *attributes)
            tagged[mark, tags] += 2
        _execute(client, statement, number(7))
        tagged["e_commented", (("endpoint", "comment"),)] += 1


def _driver(server: DatabaseServer, story: Story) -> None:
    instrument("pymysql", in_statements=["endpoint"])
    try:
        with closing(server.connect(ssl_disabled=True)) as opened_connection:
            values = []
            for endpoint in ("a b", "*/ -- ü", "x" * 300, None):
                with opened_connection.cursor() as cursor, tag(endpoint=endpoint):
                    cursor.execute(DRIVEN)
                    values.append(cursor.fetchone()[0])
    finally:
        uninstrument()
        put_in_statements(())
    assert values == ["a b", "*/ -- ü", "x" * 256, None]
    story.sent["m_driver"] += 4


@pytest.fixture(scope="module")
def trial(
    mysql8033: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Story, dict[str, Run]]]:
    directory, story = tmp_path_factory.mktemp("attributes"), Story()
    server, port = mysql8033, mysql8033.port
    with closing(server.connect()) as connection:
        connection.query(f"install {COMPONENT}")
        with both_attach_modes(directory, server.pid, options=("--client-tags",)):
            with mysql_client(server.socket, flags=wire.QUERY_ATTRIBUTES) as client:
                _texts(client, story)
            _executions(port, 0, story.tagged)
            for hidden in (wire.TLS, wire.ZLIB):
                _executions(port, hidden, story.hidden)
            _driver(server, story)
        connection.query(f"uninstall {COMPONENT}")
    yield story, {attach_mode: Run(directory / attach_mode) for attach_mode in ATTACH_MODES}


def _tags(run: Run) -> Counter[tuple[str, Tags]]:
    """Executions by (mark, tags)."""
    counts: Counter[tuple[str, Tags]] = Counter()
    queries = run.having(" e_")
    marks = queries["text"].str.extract(" (e_[a-z_]+)")[0]
    for mark, tags, n in zip(marks, queries["tags"], queries["executions"], strict=True):
        if n:
            counts[mark, tuple(tags) if isinstance(tags, list) else ()] += int(n)
    return counts


def test_texts_are_those_behind_the_attributes(trial: tuple[Story, dict[str, Run]]) -> None:
    story, runs = trial
    assert marker_counts(runs["symbol"].queries) == story.sent + Counter(m_too_many=2)
    assert marker_counts(runs["socket"].queries) == story.sent
    nameless = runs["socket"].queries["text"].isna()
    assert runs["socket"].queries[nameless]["executions"].sum() == 2, "counted, if without a text"
    assert runs["socket"].loss == {"text": 2, "opaque_session": 2}
    assert runs["symbol"].loss == {}


@pytest.mark.parametrize("attach_mode", ATTACH_MODES)
def test_every_execution_has_its_own_tags(
    trial: tuple[Story, dict[str, Run]], attach_mode: str
) -> None:
    story, runs = trial
    counts, expected = _tags(runs[attach_mode]), story.tagged.copy()
    if attach_mode == "symbol":
        expected += story.hidden
    assert counts == expected


# ---- mySQL connections that change owner: none gets the tags of an earlier owner -----------------

AGAIN = 15  #: connections, one after another: the server gives each the address of the last


def _tags_of_marks(run: Run, word: str) -> dict[str, Counter[Tags]]:
    """Executions by tags, for each mark."""
    counts: dict[str, Counter[Tags]] = {}
    queries = run.having(word)
    marks = queries["text"].str.extract(f"({word}[a-z_]+)")[0]
    for mark, tags, n in zip(marks, queries["tags"], queries["executions"], strict=True):
        if n:
            counts.setdefault(mark, Counter())[tuple(tags) if isinstance(tags, list) else ()] += n
    return counts


def _release(name: str) -> dict[bytes, bytes]:
    return {b"program_name": b"m_wire_py", b"qjoule.release": name.encode()}


def _logins(client: MysqlClient, mark: bytes) -> None:
    """Logs in again on one connection, as a pool does between two users."""
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
        f"{name}_{mark}": Counter({(("release", release),): 1})
        for name in ("l_maria", "l_mysql")
        for mark, release in releases.items()
    }
    del expected["l_mysql_kept"]
    for name in ("l_maria", "l_mysql"):
        expected[f"{name}_none"] = Counter({(): 1})
        expected[f"{name}_fourth"][(("release", "own"),)] += 1
    socket, symbol = (Run(tmp_path / attach_mode) for attach_mode in ("socket", "symbol"))
    assert _tags_of_marks(socket, "l_") == expected
    assert socket.loss == symbol.loss == {}
    of_comments = {tags for counts in _tags_of_marks(symbol, "l_").values() for tags in counts}
    assert of_comments == {(), (("release", "own"),)}


def test_shims_tags_of_sessions_that_symbols_read(
    mariadb_pool: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    """This holds also for consecutive connections to which the server gives the same address."""
    server = mariadb_pool
    with (
        recording(tmp_path / "t", "--pid", str(server.pid), "--attach", "symbol"),
        ExitStack() as stack,
    ):
        pool = [stack.enter_context(closing(server.connect(tcp=n % 2 == 0))) for n in range(4)]
        for turn in range(AGAIN):
            with closing(server.connect(tcp=True)) as short:
                for connection in (short, pool[turn % 4]):
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
