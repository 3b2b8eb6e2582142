# SPDX-License-Identifier: Apache-2.0
"""Client tags within TLS: the symbol mode reads them as without TLS, sockets cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip, self_signed
from tracing import mysql_client as wire
from tracing.mysql_client import mysql_client
from tracing.mysql_values import parameters, string
from tracing.recording import LONG_RUN, Run, at_once, recording, statements

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CLIENTS = 64 if LONG_RUN else 4
CALLS = statements(600) // CLIENTS  #: for each client
ENDPOINTS = 5


@pytest.fixture
def mariadb_tls(tmp_path: Path) -> Iterator[DatabaseServer]:
    """A separate server: if a server has TLS, drivers use it unasked."""
    key, certificate = self_signed(tmp_path)
    with or_skip(), mariadb_server(f"--ssl-key={key}", f"--ssl-cert={certificate}") as server:
        yield server


def _expected() -> Counter[str]:
    return Counter(
        f"{client}/{(client + turn) % ENDPOINTS}"
        for client in range(CLIENTS)
        for turn in range(CALLS)
    )


def _comments(server: DatabaseServer, client: int) -> None:
    with closing(server.connect(tcp=True, ssl={})) as connection, connection.cursor() as cursor:
        cursor.execute("show status like 'Ssl_cipher'")
        assert cursor.fetchone()[1], "it is encrypted"
        for turn in range(CALLS):
            endpoint = f"{client}/{(client + turn) % ENDPOINTS}"
            cursor.execute(f"select {turn} as m_said /*endpoint='{endpoint}'*/")
            cursor.fetchall()


def _attributes(server: DatabaseServer, client: int) -> None:
    flags = wire.QUERY_ATTRIBUTES | wire.TLS
    with mysql_client(port=server.port, flags=flags) as connection:
        for turn in range(CALLS):
            endpoint = b"%d/%d" % (client, (client + turn) % ENDPOINTS)
            block = parameters([string(b"qjoule.endpoint", endpoint)])
            connection.query(b"\1\1" + block + b"select %d as m_said" % turn)


@pytest.mark.parametrize(
    ("name", "send"),
    [
        ("mariadb_tls", _comments),
        ("mysql80", _comments),
        ("mysql8033", _comments),
        ("mysql8033", _attributes),
    ],
)
def test_what_clients_say_within_tls(
    name: str,
    send: Callable[[DatabaseServer, int], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with recording(tmp_path / "t", "--pid", str(server.pid), "--client-tags", "--ring-mb", "64"):
        at_once(partial(send, server), range(CLIENTS))
    run = Run(tmp_path / "t")
    found: Counter[str] = Counter()
    queries = run.having("m_said")
    for tags, n in zip(queries["tags"], queries["executions"], strict=True):
        found[dict(tags)["endpoint"]] += n
    assert found == _expected()
    assert set(queries["attach_mode"]) == {"symbol"}
    assert run.loss == {}
