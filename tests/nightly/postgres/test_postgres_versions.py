# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL of Debian's newer suites: `make test-versions`.

Half of the sessions are open and half of the statements prepared before tracing begins. The
executables are stripped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from qjoule.contract import AttachMode
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import offer_tls
from servers.newer import Release
from tracing.mysql_story import marker_counts
from tracing.recording import Run, both_attach_modes
from tracing.releases import (
    CLIENTS,
    DATABASE,
    STATEMENTS,
    USER,
    Told,
    check_documented_and_stripped,
    check_names,
    check_sockets,
    planned,
    releases,
    running,
)

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.versions]


@pytest.fixture(scope="module", params=releases("postgres"))
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Told]:
    with running(request.param) as server:
        assert planned(server).choice.attach_mode is AttachMode.SOCKET, "in plain text"
        with server.connect() as connection:
            connection.execute(f"create database {DATABASE}")
            connection.execute(f"create user {USER}")
            connection.execute("create user m_scram password 'secret'")
            offer_tls(server, connection)
        yield _told(request.param, server, tmp_path_factory.mktemp("versions"))


def _told(release: Release, server: DatabaseServer, directory: Path) -> Told:
    sent = Counter[str]()
    with ExitStack() as stack:
        opened = [stack.enter_context(_session(server)) for _ in range(CLIENTS)]
        for connection in opened:
            connection.execute("select %s::int as m_before", [1], prepare=True)
        with both_attach_modes(directory, server.pid):
            for connection in opened:
                for value in range(STATEMENTS):
                    connection.execute("select %s::int as m_before", [value], prepare=True)
            later = [stack.enter_context(_session(server)) for _ in range(CLIENTS)]
            for connection in [*opened, *later]:
                for value in range(STATEMENTS):
                    connection.execute(f"select {value} as m_text")
                    connection.execute("select %s::int as m_prepared", [value], prepare=True)
                sent.update(m_text=STATEMENTS, m_prepared=STATEMENTS)
            with _session(server, sslmode="require") as secure:
                for value in range(STATEMENTS):
                    secure.execute(f"select {value} as m_tls")
            sent["m_tls"] = STATEMENTS
    symbol, socket = (Run(directory / attach_mode) for attach_mode in ("symbol", "socket"))
    return Told(release, server, symbol, socket, sent=sent)


def _session(server: DatabaseServer, sslmode: str = "disable") -> psycopg.Connection:
    options = {"user": USER, "dbname": DATABASE, "sslmode": sslmode}
    connection: psycopg.Connection = server.connect(tcp=True, **options)
    return connection


def test_its_plan_is_exact_with_tls(told: Told) -> None:
    check_documented_and_stripped(told)
    plan = planned(told.server)
    assert plan.server.version == told.release.version
    assert (plan.choice.attach_mode, plan.choice.exact) == (AttachMode.SYMBOL, True)


def test_every_statement_counts(told: Told) -> None:
    assert told.symbol.loss == {}
    expected = told.sent + Counter(m_before=CLIENTS * STATEMENTS)
    assert marker_counts(told.symbol.queries) == expected
    check_sockets(told)
    early = marker_counts(told.socket.queries)["m_before"]
    unnamed = told.socket.queries[told.socket.queries["text"].isna()]["executions"].sum()
    assert early + unnamed == CLIENTS * STATEMENTS
    for run in (told.symbol, told.socket):
        check_names(run, "m_text")
