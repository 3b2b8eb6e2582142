# SPDX-License-Identifier: Apache-2.0
"""Statements of MySQL's X Protocol: seen by symbols; on sockets every output says they are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qjoule.contract import Rung
from qjoule.session.targets import plan_tracing
from servers.mysql import mysql_server
from servers.process import DatabaseServer
from tracing import mysql_story as day
from tracing.mysql_x_client import XClient
from tracing.recording import Run, both_rungs

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

STATEMENTS = 40
PAUSE_S = 0.3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseServer]:
    path = tmp_path_factory.mktemp("x")
    path.chmod(0o777)
    words = ("--mysqlx=ON", "--mysqlx-port=0", f"--mysqlx-socket={path}/mysqlx.sock", "--skip-ssl")
    with mysql_server(*words) as started:
        yield started


def _socket(server: DatabaseServer) -> Path:
    (word,) = (word for word in server.argv if word.startswith("--mysqlx-socket="))
    return Path(word.partition("=")[2])


def test_its_statements_are_seen_by_symbols(server: DatabaseServer, tmp_path: Path) -> None:
    with (
        both_rungs(tmp_path, server.pid),
        XClient(_socket(server)) as client,
        closing(server.connect()) as connection,
    ):
        for _ in range(STATEMENTS):
            client.query(b"select 1 as m_x")
            connection.query("select 1 as m_classic")
        time.sleep(PAUSE_S)
        client.query(b"select 1 as m_last")
    socket, symbol = Run(tmp_path / "socket"), Run(tmp_path / "symbol")
    assert day.marker_counts(socket.queries) == {"m_classic": STATEMENTS}
    seen = day.marker_counts(symbol.queries)
    assert seen == {"m_x": STATEMENTS, "m_classic": STATEMENTS, "m_last": 1}
    latencies = symbol.having("m_x")["end_ns"] - symbol.having("m_x")["begin_ns"]
    assert (latencies < PAUSE_S * 1e9 / 2).all(), "a query ends before its client asks again"
    assert symbol.loss == {}


def test_sockets_are_not_called_exact(server: DatabaseServer) -> None:
    (by_itself,) = plan_tracing([server.pid], None).traced
    assert (by_itself.choice.rung, by_itself.choice.exact) == (Rung.SYMBOL, True)
    (asked,) = plan_tracing([server.pid], Rung.SOCKET).traced
    assert not asked.choice.exact
    assert "sessions of the X Protocol" in asked.choice.unseen
