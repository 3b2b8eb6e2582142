# SPDX-License-Identifier: Apache-2.0
"""Tags of clients on other hosts, which reach the recorder through the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import tag
from qjoule_studies.servers.process import DatabaseServer
from tag_listener import sending_to_servers
from tracing.mysql_client import mysql_client
from tracing.recording import LONG_RUN, Run, at_once, both_attach_modes, recording, statements

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

#: As many as CI has time for; in the long runs, as many per server as requested, from 64 clients.
CLIENTS = 64 if LONG_RUN else 4
CALLS = statements(400) // CLIENTS  #: for each client
ENDPOINTS = 5
ATTACH_MODES = ("socket", "symbol")
SERVERS = ("mariadb", "mysql80", "postgres")

#: A statement's text and its tags.
STATEMENTS = {
    "/*endpoint='first'*/ select 1 as m_a": {"endpoint": "first"},
    "select 1 as m_b /*endpoint='last'*/ ;\n": {"endpoint": "last"},
    "select '/*endpoint=' as m_f, '*/'": {},
    "select 1 as m_g /* a remark */": {},
    f"select 1 as m_k, '{'x' * 5000}' /*endpoint='beyond'*/": {},
    "select 1 as m_m /*endpoint='x',traceparent="
    "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'*/": {
        "endpoint": "x",
        "trace": "0af7651916cd43dd8448eb211c80319c",
        "span": "b7ad6b7169203331",
    },
    # Of several statements none has another's comment.
    "select 1 as m_n /*a='1'*/; select 2 /*a='2'*/": {},
    "select 1 as m_q; select 2 /*a='2'*/;": {"a": "2"},
}


@pytest.fixture(scope="module")
def no_recorder_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QJOULE_TAGS_SOCKET", str(tmp_path_factory.mktemp("tags") / "tags.sock"))
        with sending_to_servers(tmp_path_factory.mktemp("nobody")):
            yield


@pytest.fixture(scope="module")
def directory(
    no_recorder_here: None,  # noqa: ARG001
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Traces of the same clients: on each attach mode with --client-tags, and one without."""
    directory = tmp_path_factory.mktemp("client-tags")
    servers = {name: request.getfixturevalue(name) for name in SERVERS}
    pids = [server.pid for server in servers.values()]
    with ExitStack() as stack:
        stack.enter_context(both_attach_modes(directory, *pids, options=("--client-tags",)))
        every = (f"--pid={pid}" for pid in pids)
        stack.enter_context(recording(directory / "unasked", *every, "--ring-mb", "64"))
        for name, server in servers.items():
            options = {} if name == "postgres" else {"ssl_disabled": True}
            connect = partial(server.connect, tcp=True, **options)
            _clients(connect, f"said_{name}")
            _statements(server)
    return directory


def _clients(connect: Callable[..., Any], mark: str) -> None:
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


def _statements(server: DatabaseServer) -> None:
    if server.name != "postgres":
        with mysql_client(server.socket) as client:
            for text in STATEMENTS:
                client.query(text.encode())
        return
    with server.connect() as connection:
        for text in STATEMENTS:
            connection.execute(text)
        for endpoints in ("ab", "cc"):
            with connection.pipeline():
                for endpoint in endpoints:
                    connection.execute(f"select 1 as piped /*endpoint='{endpoint}'*/")


def _expected(*, released: bool) -> Counter[tuple[str, str | None]]:
    return Counter(
        (f"/shop it's {(number + turn) % ENDPOINTS}", f"1.{number}" if released else None)
        for number in range(CLIENTS)
        for turn in range(CALLS)
    )


def _tagged(run: Run, mark: str) -> Counter[tuple[str, str | None]]:
    """Executions by (endpoint, release), for queries with this mark."""
    counts: Counter[tuple[str, str | None]] = Counter()
    queries = run.having(mark)
    for tags, n in zip(queries["tags"], queries["executions"], strict=True):
        tags_by_key = dict(tags) if isinstance(tags, list) else {}
        counts[tags_by_key.get("endpoint", "?"), tags_by_key.get("release")] += int(n)
    return counts


@pytest.mark.parametrize("attach_mode", ATTACH_MODES)
def test_every_query_has_what_its_driver_sends(directory: Path, attach_mode: str) -> None:
    """Comments, also in what psycopg prepares; attributes and names of connections."""
    run = Run(directory / attach_mode)
    assert run.loss == {}
    for name in SERVERS:
        # MySQL's connection attributes are in the login, which only the socket mode sees.
        expected = _expected(released=name == "postgres" or attach_mode == "socket")
        assert _tagged(run, f"said_{name}") == expected, name


def test_nothing_is_read_unasked(directory: Path) -> None:
    run = Run(directory / "unasked")
    assert run.having("said")["executions"].sum() == len(SERVERS) * CLIENTS * CALLS
    assert run.queries["tags"].isna().all()


@pytest.mark.parametrize("attach_mode", ATTACH_MODES)
def test_what_is_read_of_a_statement(directory: Path, attach_mode: str) -> None:
    run = Run(directory / attach_mode)
    expected = {text[text.index("m_") :][:3]: tags for text, tags in STATEMENTS.items()}
    queries = run.having(" m_")
    for _, of_server in queries.groupby("server"):
        marks = of_server["text"].str.extract("(m_[a-z])")[0]
        tags = [dict(tags) if isinstance(tags, list) else {} for tags in of_server["tags"]]
        assert dict(zip(marks, tags, strict=True)) == expected
    assert queries["server"].nunique() == len(SERVERS)
    # The symbol mode separates the statements of a pipeline; the socket mode does not.
    piped = {
        dict(pairs).get("endpoint") for pairs in run.queries["tags"] if isinstance(pairs, list)
    }
    assert piped & {"a", "b", "c"} == ({"c"} if attach_mode == "socket" else {"a", "b", "c"})
