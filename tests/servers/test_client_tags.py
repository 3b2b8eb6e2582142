# SPDX-License-Identifier: Apache-2.0
"""Tags of clients on other hosts, which reach the recorder through the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import tag
from servers.process import DatabaseServer
from tracing import long_runs
from tracing import mysql_client as wire
from tracing.at_once import at_once
from tracing.mysql_client import mysql_client
from tracing.mysql_values import parameters, string
from tracing.recording import Run, attribute, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

#: As many as CI has time for; in the long runs, as many per server as requested, from 64 clients.
CLIENTS = 64 if long_runs.ASKED else 4
CALLS = long_runs.statements(800) // CLIENTS  #: for each client
ENDPOINTS = 5
RUNGS = ("socket", "symbol")


def _tagged(run: Run, mark: str) -> Counter[tuple[str, str | None]]:
    """(endpoint, release) and how many executions have them, for queries with this mark."""
    counts: Counter[tuple[str, str | None]] = Counter()
    queries = run.having(mark)
    for tags, n in zip(queries["tags"], queries["executions"], strict=True):
        of = dict(tags) if isinstance(tags, list) else {}
        counts[of.get("endpoint", "?"), of.get("release")] += int(n)
    return counts


def _clients(connect: Callable[[], Any], mark: str) -> None:
    """CLIENTS threads, each of which calls all endpoints in turn."""

    def client(number: int) -> None:
        with tag(release=f"1.{number}"), closing(connect()) as connection:
            for turn in range(CALLS):
                with (
                    tag(endpoint=f"/shop it's {(number + turn) % ENDPOINTS}"),
                    connection.cursor() as cursor,
                ):
                    cursor.execute(f"select %s + 0 as {mark}", (turn,))
                    cursor.fetchall()

    at_once(client, range(CLIENTS))


def _expected(*, released: bool) -> Counter[tuple[str, str | None]]:
    return Counter(
        (f"/shop it's {(number + turn) % ENDPOINTS}", f"1.{number}" if released else None)
        for number in range(CLIENTS)
        for turn in range(CALLS)
    )


def _send(servers: dict[str, DatabaseServer], directory: Path) -> None:
    """Runs clients of one server after another; both rungs must then have all of their tags."""
    pids = [server.pid for server in servers.values()]
    with both_rungs(directory, *pids, options=("--client-tags",)):
        for name, server in servers.items():
            options = {"ssl_disabled": True} if server.name == "mysql" else {}
            _clients(partial(server.connect, tcp=True, **options), f"m_said_{name}")
    for rung in RUNGS:
        run = Run(directory / rung)
        assert run.loss == {}
        for name in servers:
            # MySQL's connection attributes are in the login, which only the socket rung sees.
            expected = _expected(released=name == "postgres" or rung == "socket")
            assert _tagged(run, f"m_said_{name}") == expected, (rung, name)


@pytest.mark.usefixtures("elsewhere")
def test_every_query_has_what_its_driver_sends(
    mariadb: DatabaseServer, mysql80: DatabaseServer, postgres: DatabaseServer, tmp_path: Path
) -> None:
    """Comments, also in what psycopg prepares; attributes and names of connections."""
    _send({"mariadb": mariadb, "mysql80": mysql80, "postgres": postgres}, tmp_path)
    rows = attribute(tmp_path / "symbol", "--by", "tag:endpoint")["rows"]
    calls = Counter({row["tag:endpoint"]: row["calls"] for row in rows})
    for (endpoint, _), count in _expected(released=False).items():
        assert calls[endpoint] == 3 * count


@pytest.mark.usefixtures("elsewhere")
def test_query_attributes(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    _send({"mysql8033": mysql8033}, tmp_path)


@pytest.mark.usefixtures("elsewhere")
def test_nothing_is_read_unasked(
    mariadb: DatabaseServer, postgres: DatabaseServer, redis: DatabaseServer, tmp_path: Path
) -> None:
    pids = (f"--pid={server.pid}" for server in (mariadb, postgres, redis))
    with recording(tmp_path / "t", *pids), tag(endpoint="x", release="1"):
        for server in (mariadb, postgres):
            with closing(server.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("select 1 as m_said")
        with redis.connect() as client:
            assert client.client_getname() == "release=1"
            client.get("m_said:1")
    run = Run(tmp_path / "t")
    assert len(run.having("m_said")) == 3
    assert run.queries["tags"].isna().all()
    assert run.having("GET m_said")["application"].isna().all()


#: A statement's text and its tags.
STATEMENTS = {
    "/*endpoint='first'*/ select 1 as m_a": {"endpoint": "first"},
    "select 1 as m_b /*endpoint='last'*/ ;\n": {"endpoint": "last"},
    "/*endpoint='first'*/ select 1 as m_c /*endpoint='last'*/": {"endpoint": "last"},
    r"select 1 as m_d /*endpoint='it\'s%20%2A%2F',k='%F0%9F%94%8B'*/": {
        "endpoint": "it's */",
        "k": "🔋",
    },
    "select '/*' as m_e /*endpoint='x'*/": {"endpoint": "x"},
    "select '/*endpoint=' as m_f, '*/'": {},
    "select 1 as m_g /* a remark */": {},
    "select 1 /*endpoint='within'*/ as m_i": {},
    f"select 1 as m_j /*endpoint='{'x' * 500}'*/": {},
    f"select 1 as m_k, '{'x' * 5000}' /*endpoint='beyond'*/": {},
    f"/*endpoint='first'*/ select 1 as m_l, '{'x' * 5000}' /*endpoint='beyond'*/": {
        "endpoint": "first"
    },
    "select 1 as m_m /*endpoint='x',traceparent="
    "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',tracestate='a%3Db'*/": {
        "endpoint": "x",
        "trace": "0af7651916cd43dd8448eb211c80319c",
        "span": "b7ad6b7169203331",
    },
}


def _tags_by_mark(run: Run, server: int) -> dict[str, dict[str, str]]:
    queries = run.having(" m_")
    queries = queries[queries["server"] == server]
    marks = queries["text"].str.extract("(m_[a-z])")[0]
    tags = [dict(tags) if isinstance(tags, list) else {} for tags in queries["tags"]]
    return dict(zip(marks, tags, strict=True))


def _mark(text: str) -> str:
    return text[text.index("m_") :][:3]


def test_what_is_read_of_a_statement(
    mariadb: DatabaseServer, postgres: DatabaseServer, tmp_path: Path
) -> None:
    with both_rungs(tmp_path, mariadb.pid, postgres.pid, options=("--client-tags",)):
        for server in (mariadb, postgres):
            with closing(server.connect()) as connection, connection.cursor() as cursor:
                for text in STATEMENTS:
                    cursor.execute(text)
                    cursor.fetchall()
        with postgres.connect() as connection:
            for endpoints in ("ab", "cc"):
                with connection.pipeline():
                    for endpoint in endpoints:
                        connection.execute(f"select 1 as piped /*endpoint='{endpoint}'*/")
    expected = {_mark(text): tags for text, tags in STATEMENTS.items()}
    for rung in RUNGS:
        run = Run(tmp_path / rung)
        for server_id in (1, 2):
            assert _tags_by_mark(run, server_id) == expected, (rung, server_id)
        # The symbol rung separates the statements of a pipeline; the socket rung does not.
        every = {dict(of).get("endpoint") for of in run.queries["tags"] if isinstance(of, list)}
        assert every & {"a", "b", "c"} == ({"c"} if rung == "socket" else {"a", "b", "c"})


@pytest.mark.usefixtures("elsewhere")
def test_attributes_that_are_no_tags(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    """Other attributes stay at the server; a comment after them is read."""
    names = [b"other", b"qjoule.endpoint"]
    with (
        both_rungs(tmp_path, mysql8033.pid, options=("--client-tags",)),
        mysql_client(port=mysql8033.port, flags=wire.QUERY_ATTRIBUTES) as client,
    ):
        for name in names:
            block = b"\1\1" + parameters([string(name, b"x")])
            client.query(block + b"select 1 as m_said /*endpoint='c'*/")
    for rung in RUNGS:
        assert _tagged(Run(tmp_path / rung), "m_said") == {("c", None): 1, ("x", None): 1}, rung
