# SPDX-License-Identifier: Apache-2.0
"""MariaDB and MySQL of Debian's newer suites: `make test-versions`.

Half of the sessions are open and half of the statements prepared before tracing begins. TLS is on
by default, and the executables are stripped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import AttachMode
from qjoule_studies.servers.process import DatabaseServer
from servers.newer import Release
from tracing.mysql_client import MysqlClient, mysql_client
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


@pytest.fixture(scope="module", params=releases("mariadb", "mysql"))
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Told]:
    with running(request.param) as server:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {DATABASE}")
            cursor.execute(f"create user {USER}")
            cursor.execute(f"grant all on *.* to {USER}")
        yield _told(request.param, server, tmp_path_factory.mktemp("versions"))


def _told(release: Release, server: DatabaseServer, directory: Path) -> Told:
    sent = Counter[str]()
    with ExitStack() as stack:
        opened = [stack.enter_context(mysql_client(port=server.port)) for _ in range(CLIENTS)]
        statements = [client.prepare(b"select ? as m_before") for client in opened]
        application = stack.enter_context(closing(_application(server)))
        before = _selects(server)
        with both_attach_modes(directory, server.pid):
            for client, statement in zip(opened, statements, strict=True):
                for value in range(STATEMENTS):
                    client.execute(statement, value)
            for client in [*opened, *(_new(stack, server) for _ in range(CLIENTS))]:
                _ask(client, sent)
            _run(application, "m_app_before", sent)
            with closing(_application(server)) as later:
                _run(later, "m_app_after", sent)
            with closing(server.connect(tcp=True, ssl={}, ssl_verify_cert=False)) as secure:
                _run(secure, "m_tls", sent)
        selects = _selects(server) - before
    symbol, socket = (Run(directory / attach_mode) for attach_mode in ("symbol", "socket"))
    return Told(release, server, symbol, socket, selects, sent)


def _new(stack: ExitStack, server: DatabaseServer) -> MysqlClient:
    return stack.enter_context(mysql_client(port=server.port))


def _application(server: DatabaseServer) -> Any:
    return server.connect(tcp=True, user=USER, database=DATABASE, ssl_disabled=True)


def _ask(client: MysqlClient, sent: Counter[str]) -> None:
    statement = client.prepare(b"select ? as m_prepared")
    for value in range(STATEMENTS):
        client.query(b"select %d as m_text" % value)
        client.execute(statement, value)
    sent.update(m_text=STATEMENTS, m_prepared=STATEMENTS)


def _run(connection: Any, marker: str, sent: Counter[str]) -> None:
    with connection.cursor() as cursor:
        for value in range(STATEMENTS):
            cursor.execute(f"select {value} as {marker}")
    sent[marker] += STATEMENTS


def _selects(server: DatabaseServer) -> int:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("show global status like 'Com_select'")
        ((_, value),) = cursor.fetchall()
    return int(value)


def test_its_plan_is_exact_with_tls(told: Told) -> None:
    check_documented_and_stripped(told)
    plan = planned(told.server)
    assert plan.server.flavour == told.release.server
    assert (plan.choice.attach_mode, plan.choice.exact) == (AttachMode.SYMBOL, True)
    assert "TLS is on by default" in plan.choice.why


def test_every_statement_counts(told: Told) -> None:
    assert told.symbol.loss == {}
    counted = marker_counts(told.symbol.queries)
    early = counted.pop("m_before", 0)  # where its text is known
    assert counted == told.sent
    unnamed = told.symbol.queries[told.symbol.queries["text"].isna()]["executions"].sum()
    assert early + unnamed == CLIENTS * STATEMENTS
    assert told.selects == told.sent.total() + CLIENTS * STATEMENTS, "by the server's own count"
    check_sockets(told)
    for run in (told.symbol, told.socket):
        check_names(run, "m_app_after")
