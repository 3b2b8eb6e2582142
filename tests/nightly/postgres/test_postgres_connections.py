# SPDX-License-Identifier: Apache-2.0
"""Unusual connections of a real PostgreSQL: encrypted, refused, of replicas. Also: pipelines,
portals and messages in pieces.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from qjoule_drivers import tag
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import offer_tls, or_skip
from tracing.mysql_story import MARKER, marker_counts
from tracing.postgres_client import (
    SYNC,
    PostgresClient,
    bind,
    execute,
    message,
    parse,
    postgres_client,
    query,
)
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
    """A replica whose connection streams for as long as the block lasts."""
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
    """The sessions' connections are identified by the socket in the server's own memory."""
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
        connections = [before, *(stack.enter_context(replicated.connect(**way)) for way in ways)]
        for turn in range(40):
            number = turn * 7 % 11
            with tag(m=f"k{number}", way=str(turn % 4)):
                connections[turn % 4].execute(f"select {turn} as m_tagged_k{number}")
        connections[0].execute("select 1 as m_untagged")
    run = Run(tmp_path / "t")
    tagged = run.having("m_tagged")
    assert len(tagged) == 40
    tags = [dict(pairs) for pairs in tagged["tags"]]
    assert [f"select ? as m_tagged_{pairs['m']}" for pairs in tags] == list(tagged["text"])
    by_way = dict(zip([pairs["way"] for pairs in tags], tagged["session"], strict=True))
    assert len(set(by_way.values())) == len(by_way) == 4
    assert [len(pairs) for pairs in run.having("m_untagged")["tags"]] == [0]
    assert run.loss == {}
    del tags_socket


# --------------------------------------------------------------------------------------------------
#
# Pipelines, portals and messages in pieces: executions are those of pg_stat_statements.

#: Statements on different tables are different to pg_stat_statements.
TABLES = ("m_skipped", "m_mixed", "m_cursor", "m_unused", "m_pieces", "m_batch", "m_list", "m_gone")
TURNS = 10
BATCH = 2_000  #: executions of one pipeline: many times the server's buffer of 8 KB
SEVERAL = "(text lost: different statements in one request)"
GONE = "(text lost: the server has none of that name)"


@dataclass(frozen=True)
class Trial:
    attach_mode: str
    run: Run
    counted: Counter[str]  #: by marker, of pg_stat_statements


def _skipped(client: PostgresClient) -> None:
    """After an error the server skips the rest of a pipeline."""
    for name, text in (
        (b"bad", b"select 1 / (i - 1) as m_fails from generate_series(1, 1) i"),
        (b"good", b"select i from m_skipped"),
        (b"mixed", b"select i from m_mixed"),
    ):
        client.exchange(parse(text, name), SYNC)
    bad, good, mixed = ([bind(name), execute()] for name in (b"bad", b"good", b"mixed"))
    client.exchange(*good, SYNC)
    for _ in range(TURNS):
        assert client.exchange(*bad, *good * TURNS, SYNC)["C"] == 0
        refused = parse(b"select m_refused from m_nowhere"), bind(), execute()
        assert client.exchange(*refused, *good * TURNS, SYNC)["C"] == 0
    assert client.exchange(*mixed * (BATCH // 2), *bad, *mixed * BATCH, SYNC)["C"] == BATCH // 2


def _portals(client: PostgresClient) -> None:
    """Uses portals as asyncpg's cursor objects do, and some that end in other ways."""
    client.exchange(parse(b"select generate_series(1, 20) from m_cursor", b"c"), SYNC)
    client.exchange(parse(b"select i from m_unused", b"u"), SYNC)
    for portal in (b"", b"p") * TURNS:
        client.exchange(query(b"begin"))
        for statement, name in ((b"c", portal), (b"c", b"abandoned"), (b"u", b"never run")):
            client.exchange(bind(statement, name), SYNC)
        for rows in (5, 5, 0):
            assert client.exchange(execute(rows, portal), SYNC)["D"] == (rows or 10)
        client.exchange(execute(1, b"abandoned"), SYNC)
        client.exchange(bind(b"c", b"closed"), execute(1, b"closed"), SYNC)
        client.exchange(message("C", b"Pclosed\0"), SYNC)
        client.exchange(query(b"commit"))
        assert client.exchange(execute(5, portal), SYNC)["E"] == 1


def _pieces(client: PostgresClient) -> None:
    text = b"select 1" + b", 1 as c" * 400 + b" from m_pieces"
    for request in (query(text), parse(text) + bind() + execute() + SYNC):
        for cuts in ((3,), (5,), (20,), (1448, 2896), (len(request) - 7,)):
            for begin, end in pairwise((0, *cuts, len(request))):
                client.send(request[begin:end])
                time.sleep(0.01)
            client.replies()
    client.exchange(parse(b"select i from m_batch", b"b"), SYNC)
    client.exchange(*[bind(b"b"), execute()] * BATCH, SYNC)


def _texts(client: PostgresClient) -> None:
    for length in range(1500, 1500 + TURNS):  # far beyond 4,096 bytes, the values of any length
        values = b",".join(b"%d" % (n * n * n % 99991) for n in range(length))
        client.exchange(query(b"select i from m_list where i in (" + values + b")"))
    for empty in (b"", b"-- nothing"):
        client.exchange(query(empty))
    client.exchange(parse(b"select i from m_gone", b"gone"), SYNC)
    client.exchange(bind(b"gone"), execute(), SYNC)
    client.exchange(query(b"deallocate gone"))
    assert client.exchange(bind(b"gone"), execute(), SYNC)["E"] == 1


@pytest.fixture(scope="module")
def on_postgres(
    postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
    directory = tmp_path_factory.mktemp("pipelines")
    with postgres.connect() as observer:
        observer.execute("create extension if not exists pg_stat_statements")
        for table in TABLES:
            observer.execute(f"create table {table} as select 1 as i")
        observer.execute("select pg_stat_statements_reset()")
        with both_attach_modes(directory, postgres.pid), postgres_client(postgres.port) as client:
            for part in (_skipped, _portals, _pieces, _texts):
                part(client)
        counted: Counter[str] = Counter()
        for text, calls in observer.execute("select query, calls from pg_stat_statements"):
            if marker := MARKER.search(text):
                counted[marker[0]] += calls
    return {
        attach_mode: Trial(attach_mode, Run(directory / attach_mode), counted)
        for attach_mode in ATTACH_MODES
    }


@pytest.fixture(params=ATTACH_MODES)
def trial(request: pytest.FixtureRequest, on_postgres: dict[str, Trial]) -> Trial:
    return on_postgres[request.param]


def test_executions_are_those_of_pg_stat_statements(trial: Trial) -> None:
    expected = trial.counted.copy()
    # A portal that was bound and never run is a call there, and to us none.
    assert expected.pop("m_unused") == 2 * TURNS
    assert expected["m_skipped"] == 1 and expected["m_cursor"] == 6 * TURNS
    assert (expected["m_pieces"], expected["m_batch"]) == (10, BATCH)
    if trial.attach_mode == "socket":  # it shows a request's statement only if there is one
        assert expected.pop("m_mixed") == BATCH // 2 == trial.run.executions()[SEVERAL] - 1
    executed = trial.run.queries[~trial.run.queries["status"].isin(["error"])]
    assert marker_counts(executed) == expected
    assert trial.run.loss == {}


def test_each_error_is_one_call(trial: Trial) -> None:
    failed = marker_counts(trial.run.queries[trial.run.queries["status"].isin(["error"])])
    assert failed["m_fails"] == TURNS + (trial.attach_mode == "symbol")
    assert failed["m_refused"] == TURNS
    assert failed["m_skipped"] == failed["m_gone"] == failed["m_cursor"] == 0


def test_statements_that_are_cut_or_have_no_text(trial: Trial) -> None:
    lists = trial.run.having("m_list")
    assert list(lists["text"].unique()) == ["select i from m_list where i in (?+…"]
    if trial.attach_mode == "socket":  # the other shows neither
        assert trial.run.executions()["(empty)"] == 2
        assert trial.run.executions()[GONE] == 1
