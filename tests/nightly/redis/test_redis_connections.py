# SPDX-License-Identifier: Apache-2.0
"""Unusual Redis connections: cut, old, hostile, encrypted, served by other threads."""

from __future__ import annotations

import fcntl
import random
import socket
import termios
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import Block, Mode, OwnerKind
from servers.certificates import self_signed
from servers.process import DatabaseServer, Unavailable, free_port
from servers.redis import redis_server
from tracing import redis_story as day
from tracing.recording import Run, recording
from tracing.redis_client import resp
from tracing.tracer import tracing

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


def test_redis_commands_in_random_pieces(redis: DatabaseServer, tmp_path: Path) -> None:
    """Wherever the bytes are cut, also on a connection that was open before, the counts
    are exact.
    """
    rng = random.Random(7)
    commands = [resp(b"SET", b"cut:%d" % n, b"v" * rng.choice((0, 1, 9, 900))) for n in range(400)]
    stream = b"".join(commands)
    with redis.connect() as client:
        wire = client.connection._sock
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            wire.sendall(commands[0])  # an unambiguous beginning: whole, in one read
            assert client.connection.read_response() == b"OK"
            at = 0
            while at < len(stream):
                size = rng.choice((1, 2, 3, 5, 17, 64, 300, 4000))
                wire.sendall(stream[at : at + size])
                at += size
            for _ in range(len(commands)):
                assert client.connection.read_response() == b"OK"
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert run.executions() == {"SET cut:?": len(commands) + 1}


def test_redis_attached_in_the_middle_of_a_command(redis: DatabaseServer, tmp_path: Path) -> None:
    """The rest of that command is reported as lost, and not as a command; the next one counts."""
    with redis.connect() as client:
        wire = client.connection._sock
        wire.sendall(b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$9\r\n*3\r")
        wait_until_read(wire)
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            wire.sendall(b"\n$1234\r\n")
            assert client.connection.read_response() == b"OK"
            wire.sendall(resp(b"GET", b"whole:1"))
            client.connection.read_response()
    run = Run(tmp_path / "t")
    assert run.loss == {"framing": 1}
    assert run.executions() == {"GET whole:?": 1}


def test_redis_new_connections_are_read_from_their_first_byte(
    redis: DatabaseServer, tmp_path: Path
) -> None:
    """On a Redis that already ran: the first bytes may be a plain line, or a part of a command."""
    commands = [b"ECHO OK\r\n", resp(b"SET", b"first:2", b"x")]
    with redis.connect() as referee, recording(tmp_path / "t", "--pid", str(redis.pid)):
        for command in commands:
            for cut in (1, 5):
                with socket.create_connection(("127.0.0.1", redis.port), timeout=60) as wire:
                    wire.sendall(command[:cut])
                    _wait_until_it_has_some(referee, wire)
                    wire.sendall(command[cut:])
                    assert b"OK\r\n" in wire.recv(64)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    assert (counted["ECHO"], counted["SET first:?"]) == (2, 2)


def _wait_until_it_has_some(referee: Any, wire: socket.socket) -> None:
    """Waits until the server has read part of a command from this client."""
    address = "{}:{}".format(*wire.getsockname())
    deadline = time.monotonic() + 60
    while not any(one["addr"] == address and int(one["qbuf"]) > 0 for one in referee.client_list()):
        assert time.monotonic() < deadline, "the server reads nothing"
        time.sleep(0.001)


def test_redis_nonsense_is_refused_and_harms_nobody(redis: DatabaseServer, tmp_path: Path) -> None:
    nonsense = [
        b"*1\r\n$99999999999999999999\r\n",
        b"*-5\r\n*1\r\n$-1\r\n",
        b"*99999999999\r\n",
        b"*1\r\n!4\r\nPING\r\n",
        b"*2\r\n$4\r\nPING\r\n*1\r\n",
        b"\x00\xff" * 5000 + b"\r\n",
        b"*" + b"1" * 100 + b"\r\n",
    ]
    with recording(tmp_path / "t", "--pid", str(redis.pid)):
        for bytes_ in nonsense:
            with socket.create_connection(("127.0.0.1", redis.port), timeout=60) as wire:
                wire.sendall(bytes_)
                wire.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):  # it need not have read all of it
                    while wire.recv(4096):
                        pass
        with redis.connect() as client:
            for _ in range(50):
                client.get("sane:1")
    run = Run(tmp_path / "t")
    assert run.executions()["GET sane:?"] == 50
    assert set(run.loss) <= {"framing"}


def test_redis_restarted_while_recording(tmp_path: Path) -> None:
    with served() as server:
        with recording(tmp_path / "t"):
            for run in range(2):
                with server.connect() as client:
                    client.get(f"{'ab'[run]}:1")
                server.stop()
                server.start()
        counted = Run(tmp_path / "t").executions()
    assert (counted["GET a:?"], counted["GET b:?"]) == (1, 1)


def test_redis_live_view_counts_the_same(redis: DatabaseServer) -> None:
    with tracing(Mode.LIVE, *_plan(redis), "--energy", "none") as session:
        day.benchmark(redis, "-n", "20000", "get", "x:1")
        session.finish()
    sums = session.records(Block.AGGREGATE)
    queries = sums[sums["owner_kind"] == OwnerKind.QUERY]
    by_shape = Counter[int]()
    for row in queries:
        by_shape[int(row["shape"])] += int(row["calls"])
    assert 20_000 in by_shape.values()


def _plan(server: DatabaseServer) -> list[str]:
    file = Path(server.executable).stat()
    which = f"1:redis:socket:{file.st_dev}:{file.st_ino}"
    return ["--server", which, "--running", f"1:{server.pid}"]


def wait_until_read(wire: socket.socket) -> None:
    """Waits until the other side has read what was sent."""
    unsent = bytearray(4)
    while True:
        fcntl.ioctl(wire, termios.TIOCOUTQ, unsent)
        if not any(unsent):
            return
        time.sleep(0.001)


@contextmanager
def served(*options: str) -> Iterator[DatabaseServer]:
    try:
        with redis_server(*options) as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_redis_sessions_with_tls_are_loss(tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    port = free_port()
    pems = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    more = ("--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")
    with served("--tls-port", str(port), *pems, *more) as server:
        with recording(tmp_path / "t", "--pid", str(server.pid)):
            with server.connect(
                tcp=True, port=port, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False
            ) as client:
                client.get("hidden:1")
            with server.connect() as client:
                client.get("plain:1")
        run = Run(tmp_path / "t")
    assert run.loss == {"opaque_session": 1}
    counted = run.executions()
    assert counted["GET plain:?"] == 1
    assert "GET hidden:?" not in counted
