# SPDX-License-Identifier: Apache-2.0
"""Unusual connections of a real PostgreSQL: encrypted, refused, of replicas, joined in the
middle.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from qjoule_drivers import tag
from servers.postgres import offer_tls, postgres_server
from servers.process import DatabaseServer, Unavailable
from tracing.mysql_story import marker_counts
from tracing.postgres_client import postgres_client, query
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

TIMEOUT_S = 60.0
SSL_REQUEST = struct.pack(">II", 8, 80877103)
CANCEL_REQUEST = struct.pack(">IIII", 16, 80877102, 1, 2)
RUNGS = ("socket", "symbol")
READY = b"Z\0\0\0\x05I"


@pytest.fixture(scope="module")
def replicated(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """A PostgreSQL that allows replicas, asks one user for a password, and supports TLS."""
    try:
        with postgres_server("wal_level=logical", "max_wal_senders=4") as server:
            with server.connect() as connection:
                connection.execute("create user m_scram password 'secret' replication")
                offer_tls(server, connection)
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def _tls(server: DatabaseServer) -> None:
    secure: dict[str, Any] = {"tcp": True, "sslmode": "require", "application_name": "release=1.4"}
    with server.connect(**secure) as connection:
        for value in range(30):
            comment = f"/*endpoint='{value % 3}'*/" if value % 5 else ""
            connection.execute(f"select %s::int as m_tls {comment}", [value])
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
        deadline = time.monotonic() + TIMEOUT_S
        while not (received.exists() and "a[integer]:5000" in received.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        replica.terminate()
        replica.wait()
    subprocess.run([*common, "--drop-slot"], check=True)


def _odd_logins(server: DatabaseServer) -> None:
    """Encryption refused; a login byte by byte; a request to cancel."""
    startup = struct.pack(">I", 3 << 16) + b"user\0postgres\0application_name\0m_bare\0\0"
    packet = struct.pack(">I", len(startup) + 4) + startup

    def connected() -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def read_until_ready(connection: socket.socket, times: int) -> None:
        seen = b""
        while seen.count(READY) < times:
            more = connection.recv(4096)
            assert more, "the server closed the connection"
            seen += more

    with connected() as one:
        one.sendall(SSL_REQUEST)
        assert one.recv(1) == b"N"
        one.sendall(packet + query(b"select 1 as m_behind_startup"))
        read_until_ready(one, 2)
    with connected() as one:
        for byte in packet:
            one.sendall(bytes([byte]))
            time.sleep(0.002)
        read_until_ready(one, 1)
        one.sendall(query(b"select 1 as m_byte_by_byte"))
        read_until_ready(one, 1)
    with connected() as one:
        one.sendall(CANCEL_REQUEST)
        assert one.recv(1) == b""


def _until_read(port: int) -> None:
    """Waits until the server has read all that its clients have sent (proc(5), /proc/net/tcp)."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        waiting = [one[4] for one in sockets if int(one[1].partition(":")[2], 16) == port]
        if all(queues.endswith(":00000000") for queues in waiting):
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def runs(
    replicated: DatabaseServer, postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """Attached in the middle of a message whose rest looks like another one."""
    directory = tmp_path_factory.mktemp("connections")
    body = b"select 1 as m_cut, $x$" + b"-" * 9000
    rest = b"".join([query(b"select 1 as m_forged")] * 100) + b"$x$\0"
    rest = rest.replace(b"\0", b"-")[:-1] + b"\0"
    with postgres_client(replicated.port) as cut:
        cut.send(b"Q" + struct.pack(">I", 4 + len(body) + len(rest)) + body)
        _until_read(replicated.port)
        pids = replicated.pid, postgres.pid
        with both_rungs(directory, *pids, options=("--client-tags",)):
            cut.send(rest)
            cut.replies()
            cut.exchange(query(b"select 1 as m_found_again"))
            _tls(replicated)
            _passwords(replicated)
            _replica(replicated, directory / "received")
            _odd_logins(postgres)
    return {rung: Run(directory / rung) for rung in RUNGS}


def test_what_is_hidden_or_cut_is_loss_and_all_else_counts(runs: dict[str, Run]) -> None:
    assert runs["socket"].loss == {"opaque_session": 1, "framing": 1}
    assert runs["symbol"].loss == {}
    expected = Counter(m_found_again=1, m_plain=1, m_scrammed=1)
    expected += Counter(m_behind_startup=1, m_byte_by_byte=1)
    assert marker_counts(runs["socket"].queries) == expected
    found = marker_counts(runs["symbol"].queries)
    assert found.pop("m_cut", 0) <= 1
    assert found == expected + Counter(m_tls=30)


def test_encrypted_statements_have_their_tags_by_symbols(runs: dict[str, Run]) -> None:
    sent = runs["symbol"].having("m_tls")  # some were prepared first
    tags = [dict(of) for of in sent[sent["executions"] > 0]["tags"]]
    expected = Counter(str(value % 3) if value % 5 else None for value in range(30))
    assert Counter(of.get("endpoint") for of in tags) == expected
    assert {of["release"] for of in tags} == {"1.4"}


def test_a_login_is_one_record_however_it_comes(runs: dict[str, Run]) -> None:
    run = runs["socket"]
    (first,) = run.having("m_scrammed").to_dict("records")
    assert first["user"] == "m_scram"
    logins = run.queries[run.queries["command"] == "connect"].sort_values("begin_ns")
    assert (logins["session"].value_counts() == 1).all()
    (login,) = logins[logins["session"] == first["session"]].to_dict("records")
    assert login["end_ns"] <= first["begin_ns"]
    sessions = run.trace.pandas("sessions")
    bare = run.having("m_behind_startup")["session"]
    assert set(sessions[sessions["session"].isin(bare)]["application"].dropna()) == {"m_bare"}
    in_pieces = run.having("m_byte_by_byte")["session"]
    names = sessions[sessions["session"].isin(in_pieces)]
    assert names["application"].isna().all()
    assert set(names["address"].dropna()) == {"127.0.0.1"}


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
            recording(tmp_path / "t", "--pid", str(replicated.pid), "--rung", "symbol")
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
