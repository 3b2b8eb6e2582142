# SPDX-License-Identifier: Apache-2.0
"""Unusual connections of a real PostgreSQL: encrypted, refused, of replicas."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from qjoule_drivers import tag
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import offer_tls, or_skip
from tracing.mysql_story import marker_counts
from tracing.recording import Run, both_attach_modes, recording
from waiting import until

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

ATTACH_MODES = ("socket", "symbol")


@pytest.fixture(scope="module")
def replicated(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """A PostgreSQL that allows replicas, asks one user for a password, and supports TLS."""
    with or_skip(), postgres_server("wal_level=logical", "max_wal_senders=4") as server:
        with server.connect() as connection:
            connection.execute("create user m_scram password 'secret' replication")
            offer_tls(server, connection)
        yield server


def _tls(server: DatabaseServer) -> None:
    with server.connect(tcp=True, sslmode="require") as connection:
        for value in range(30):
            connection.execute("select %s::int as m_tls", [value])
    with server.connect(tcp=True, sslmode="disable") as connection:
        connection.execute("select 1 as m_plain")


def _passwords(server: DatabaseServer) -> None:
    arguments = {"user": "m_scram", "password": "secret", "sslmode": "disable"}
    with closing(server.connect(tcp=True, **arguments)) as connection:
        connection.execute("select 1 as m_scrammed")
    with pytest.raises(psycopg.OperationalError):
        server.connect(tcp=True, **{**arguments, "password": "wrong"})


def _replica(server: DatabaseServer, received: Path) -> None:
    """Its connection streams for as long as it lasts."""
    receiver = Path(server.argv[0]).with_name("pg_recvlogical")
    common = [str(receiver), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    common += ["-d", "dbname=postgres sslmode=disable", "--slot=logged"]
    subprocess.run([*common, "--create-slot"], check=True)
    replica = subprocess.Popen([*common, "--start", "-f", str(received)])
    try:
        with server.connect() as connection:
            connection.execute("create table logged (a int)")
            connection.execute("insert into logged select generate_series(1, 5000)")
        until(lambda: received.exists() and "a[integer]:5000" in received.read_text())
    finally:
        replica.terminate()
        replica.wait()
    subprocess.run([*common, "--drop-slot"], check=True)


@pytest.fixture(scope="module")
def runs(replicated: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    directory = tmp_path_factory.mktemp("connections")
    with both_attach_modes(directory, replicated.pid):
        _tls(replicated)
        _passwords(replicated)
        _replica(replicated, directory / "received")
    return {attach_mode: Run(directory / attach_mode) for attach_mode in ATTACH_MODES}


def test_what_is_hidden_is_loss_and_all_else_counts(runs: dict[str, Run]) -> None:
    assert runs["socket"].loss == {"opaque_session": 1}
    assert runs["symbol"].loss == {}
    expected = Counter(m_plain=1, m_scrammed=1)
    assert marker_counts(runs["socket"].queries) == expected
    assert marker_counts(runs["symbol"].queries) == expected + Counter(m_tls=30)
    assert list(runs["socket"].having("m_scrammed")["user"]) == ["m_scram"]


def test_a_replica_is_the_servers_work(runs: dict[str, Run]) -> None:
    """The command that started it is no query."""
    for run in runs.values():
        assert "walsender" in set(run.trace.pandas("owners")["role"])
        texts = run.queries["text"].dropna().str.lower()
        assert not texts.str.startswith("start_replication").any()
        assert texts.str.startswith("drop_replication_slot").sum() == 1


def test_tags_of_sessions_that_symbols_read(
    replicated: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    """Their connections are identified by the socket in the server's own memory."""
    ways: list[dict[str, Any]] = [
        {"tcp": True, "sslmode": "require"},
        {"tcp": True, "sslmode": "disable"},
        {"tcp": False},
    ]
    with ExitStack() as stack:
        before = stack.enter_context(replicated.connect(tcp=True, sslmode="require"))
        stack.enter_context(
            recording(tmp_path / "t", "--pid", str(replicated.pid), "--attach", "symbol")
        )
        opened = [before, *(stack.enter_context(replicated.connect(**way)) for way in ways)]
        for turn in range(40):
            number = turn * 7 % 11
            with tag(m=f"k{number}", way=str(turn % 4)):
                opened[turn % 4].execute(f"select {turn} as m_tagged_k{number}")
        opened[0].execute("select 1 as m_untagged")
    run = Run(tmp_path / "t")
    tagged = run.having("m_tagged")
    assert len(tagged) == 40
    tags = [dict(of) for of in tagged["tags"]]
    assert [f"select ? as m_tagged_{of['m']}" for of in tags] == list(tagged["text"])
    by_way = dict(zip([of["way"] for of in tags], tagged["session"], strict=True))
    assert len(set(by_way.values())) == len(by_way) == 4
    assert [len(of) for of in run.having("m_untagged")["tags"]] == [0]
    assert run.loss == {}
    del tags_socket
