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

import pandas as pd
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


def test_tls_is_seen_by_the_symbols_and_counted_on_the_sockets(
    replicated: DatabaseServer, tmp_path: Path
) -> None:
    secure: dict[str, Any] = {"tcp": True, "sslmode": "require", "application_name": "release=1.4"}
    with both_rungs(tmp_path, replicated.pid, options=("--client-tags",)):
        with replicated.connect(**secure) as connection:
            assert connection.execute(
                "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
            ).fetchone() == (True,)
            for value in range(30):
                comment = f"/*endpoint='{value % 3}'*/" if value % 5 else ""
                connection.execute(f"select %s::int as m_tls {comment}", [value])
        with replicated.connect(tcp=True, sslmode="disable") as connection:
            connection.execute("select 1 as m_plain")
    socket_run, symbol_run = Run(tmp_path / "socket"), Run(tmp_path / "symbol")
    assert marker_counts(symbol_run.queries) == {"m_tls": 30, "m_plain": 1}
    assert symbol_run.loss == {}
    said = symbol_run.having("m_tls")  # some were prepared first
    tags = [dict(of) for of in said[said["executions"] > 0]["tags"]]
    expected = Counter(str(value % 3) if value % 5 else None for value in range(30))
    assert Counter(of.get("endpoint") for of in tags) == expected
    assert {of["release"] for of in tags} == {"1.4"}
    assert marker_counts(socket_run.queries) == {"m_plain": 1}
    assert socket_run.loss == {"opaque_session": 1}


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
    assert marker_counts(tagged) == {f"m_tagged_k{n}": c for n, c in _turns_by_kind().items()}
    assert [f"m_tagged_{dict(tags)['m']}" for tags in tagged["tags"]] == [
        text.removeprefix("select ? as ") for text in tagged["text"]
    ]
    ways_seen = [dict(tags)["way"] for tags in tagged["tags"]]
    by_way = dict(zip(ways_seen, tagged["session"], strict=True))
    assert len(set(by_way.values())) == len(by_way) == 4
    assert [len(tags) for tags in run.having("m_untagged")["tags"]] == [0]
    assert run.loss == {}
    del tags_socket


def _turns_by_kind() -> Counter[int]:
    return Counter(turn * 7 % 11 for turn in range(40))


def test_encryption_refused_and_requests_to_cancel(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    startup = struct.pack(">I", 3 << 16) + b"user\0postgres\0application_name\0m_bare\0\0"
    packet = struct.pack(">I", len(startup) + 4) + startup
    with recording(tmp_path / "t", "--pid", str(postgres.pid), "--rung", "socket"):
        with socket.create_connection(("127.0.0.1", postgres.port)) as one:
            one.settimeout(TIMEOUT_S)
            one.sendall(SSL_REQUEST)
            assert one.recv(1) == b"N"
            one.sendall(packet + query(b"select 1 as m_behind_startup"))
            seen = b""
            while seen.count(b"Z\0\0\0\x05I") < 2:
                seen += one.recv(4096)
        with socket.create_connection(("127.0.0.1", postgres.port)) as one:
            one.settimeout(TIMEOUT_S)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in packet:
                one.sendall(bytes([byte]))
                time.sleep(0.002)
            while not seen.endswith(b"Z\0\0\0\x05I"):
                seen += one.recv(4096)
            one.sendall(query(b"select 1 as m_byte_by_byte"))
            assert one.recv(4096)
        with socket.create_connection(("127.0.0.1", postgres.port)) as one:
            one.sendall(struct.pack(">IIII", 16, 80877102, 1, 2))
            one.settimeout(TIMEOUT_S)
            assert one.recv(1) == b""
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert marker_counts(run.queries) == {"m_behind_startup": 1, "m_byte_by_byte": 1}
    assert run.commands()["connect"] == 2
    sessions = run.trace.pandas("sessions")
    assert list(sessions["user"].dropna()) == ["postgres"], "the other came in pieces"
    assert list(sessions["application"].dropna()) == ["m_bare"]
    assert set(sessions["address"]) == {"127.0.0.1"}


def test_a_login_with_a_password_is_one_record(replicated: DatabaseServer, tmp_path: Path) -> None:
    with recording(tmp_path / "t", "--pid", str(replicated.pid), "--rung", "socket"):
        arguments = {"user": "m_scram", "password": "secret", "sslmode": "disable"}
        with closing(replicated.connect(tcp=True, **arguments)) as connection:
            connection.execute("select 1 as m_first")
        with pytest.raises(psycopg.OperationalError):
            replicated.connect(tcp=True, **{**arguments, "password": "wrong"})
    run = Run(tmp_path / "t")
    assert run.commands()["connect"] == 2
    (first,) = run.having("m_first").to_dict("records")
    assert first["user"] == "m_scram"
    login = run.queries[run.queries["command"] == "connect"].sort_values("begin_ns").iloc[0]
    assert login["end_ns"] <= first["begin_ns"]
    assert run.loss == {}


def test_a_replica_is_the_servers_work(replicated: DatabaseServer, tmp_path: Path) -> None:
    """Its connection streams for as long as it lasts; the command that started it is no query."""
    received = tmp_path / "received"
    receiver = Path(replicated.argv[0]).with_name("pg_recvlogical")
    common = [str(receiver), "-h", "127.0.0.1", "-p", str(replicated.port), "-U", "postgres"]
    common += ["-d", "dbname=postgres sslmode=disable", "--slot=m_slot"]
    with replicated.connect() as connection, both_rungs(tmp_path, replicated.pid):
        subprocess.run([*common, "--create-slot"], check=True)
        replica = subprocess.Popen([*common, "--start", "-f", str(received)])
        try:
            connection.execute("create table m_logged (a int)")
            connection.execute("insert into m_logged select generate_series(1, 5000)")
            deadline = time.monotonic() + TIMEOUT_S
            while not (received.exists() and "a[integer]:5000" in received.read_text()):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            replica.terminate()
            replica.wait()
        subprocess.run([*common, "--drop-slot"], check=True)
        connection.execute("drop table m_logged")
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        assert "walsender" in set(run.trace.pandas("owners")["role"]), rung
        texts = run.queries["text"].dropna().str.lower()
        assert not texts.str.startswith("start_replication").any(), rung
        assert texts.str.startswith("drop_replication_slot").sum() == 1, rung
        assert run.loss == {}, rung


def test_notifications_are_not_queries(replicated: DatabaseServer, tmp_path: Path) -> None:
    with (
        closing(replicated.connect()) as listener,
        closing(replicated.connect()) as teller,
        both_rungs(tmp_path, replicated.pid),
    ):
        listener.execute("listen m_channel")
        for number in range(5):
            teller.execute(f"notify m_channel, '{number}'")
        heard = [note.payload for note in listener.notifies(timeout=TIMEOUT_S, stop_after=5)]
        assert heard == list("01234")
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        assert marker_counts(run.queries) == {"m_channel": 6}, rung
        assert run.loss == {}, rung


def test_a_copy_behind_a_comment(replicated: DatabaseServer, tmp_path: Path) -> None:
    """At first it is not recognised as a COPY; the work on its data still counts for it."""
    with (
        replicated.connect() as connection,
        recording(tmp_path / "t", "--pid", str(replicated.pid), "--rung", "socket"),
    ):
        connection.execute("create table m_copied (a int, b text)")
        with connection.cursor() as cursor:
            with cursor.copy("/* nightly */ copy m_copied from stdin") as copy:
                for number in range(30_000):
                    copy.write_row((number, "x" * 50))
            cursor.execute("select 1 as m_after")
        connection.execute("drop table m_copied")
    run = Run(tmp_path / "t")
    assert _cpu_ns(run, "copy m_copied") > 10 * _cpu_ns(run, "m_after")
    assert marker_counts(run.queries) == {"m_copied": 3, "m_after": 1}


def _cpu_ns(run: Run, word: str) -> int:
    segments: pd.DataFrame = run.trace.pandas("segments")
    mine = segments[segments["query"].isin(set(run.having(word)["query"]))]
    return int((mine["t1_ns"] - mine["t0_ns"]).sum())


def test_attached_in_the_middle_of_a_message(replicated: DatabaseServer, tmp_path: Path) -> None:
    """The rest of the message looks like another one: it is not taken for a message."""
    forged = query(b"select 1 as m_forged")
    body = b"select 1 as m_cut, $x$" + b"-" * 9000
    rest = b"".join([forged] * 100) + b"$x$\0"
    rest = rest.replace(b"\0", b"-")[:-1] + b"\0"
    head = b"Q" + struct.pack(">I", 4 + len(body) + len(rest)) + body
    with postgres_client(replicated.port) as client:
        client.send(head)
        _until_read(replicated.port)
        with recording(tmp_path / "t", "--pid", str(replicated.pid), "--rung", "socket"):
            client.send(rest)
            client.replies()
            client.exchange(query(b"select 1 as m_found_again"))
    run = Run(tmp_path / "t")
    assert marker_counts(run.queries) == {"m_found_again": 1}
    assert run.loss == {"framing": 1}


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
