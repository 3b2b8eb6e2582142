# SPDX-License-Identifier: Apache-2.0
"""Unusual Redis connections: cut, old, encrypted."""

from __future__ import annotations

import fcntl
import random
import socket
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import Rung
from servers.certificates import self_signed
from servers.process import DatabaseServer, free_port
from servers.redis import redis_server
from tracing.recording import Run, recording
from tracing.redis_client import resp
from tracing.releases import planned

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CUT = 400  #: commands in random pieces


def _random_pieces(client: Any) -> None:
    """Wherever the bytes are cut, also on a connection that was open before."""
    rng, wire = random.Random(7), client.connection._sock
    commands = [resp(b"SET", b"cut:%d" % n, b"v" * rng.choice((0, 1, 9, 900))) for n in range(CUT)]
    wire.sendall(commands[0])  # an unambiguous beginning: whole, in one read
    assert client.connection.read_response() == b"OK"
    stream, at = b"".join(commands[1:]), 0
    while at < len(stream):
        size = rng.choice((1, 2, 3, 5, 17, 64, 300, 4000))
        wire.sendall(stream[at : at + size])
        at += size
    for _ in commands[1:]:
        assert client.connection.read_response() == b"OK"


def _wait_until_read(wire: socket.socket) -> None:
    """Waits until the other side has read what was sent."""
    unsent = bytearray(4)
    while True:
        fcntl.ioctl(wire, termios.TIOCOUTQ, unsent)
        if not any(unsent):
            return
        time.sleep(0.001)


def test_redis_connections_from_before_that_are_cut(redis: DatabaseServer, tmp_path: Path) -> None:
    with redis.connect() as old, redis.connect() as half:
        # Attached in the middle of a command: its rest is lost, and not taken for a command.
        wire = half.connection._sock
        wire.sendall(b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$9\r\n*3\r")
        _wait_until_read(wire)
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            wire.sendall(b"\n$1234\r\n")
            assert half.connection.read_response() == b"OK"
            half.get("whole:1")
            _random_pieces(old)
    run = Run(tmp_path / "t")
    assert run.loss == {"framing": 1}
    assert run.executions() == {"GET whole:?": 1, "SET cut:?": CUT}


def test_redis_with_tls_is_not_exact_and_its_sessions_are_loss(
    redis: DatabaseServer, tmp_path: Path
) -> None:
    """Also if TLS is configured later. A server on a unix socket alone has none."""
    assert (planned(redis).choice.rung, planned(redis).choice.exact) == (Rung.SOCKET, True)
    key, certificate = self_signed(tmp_path)
    pems = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    more = ("--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")
    with redis_server(*pems, *more) as server, server.connect() as client:
        assert planned(server).choice.exact
        port = free_port()
        client.config_set("tls-port", port)
        choice = planned(server).choice
        assert not choice.exact
        assert "with TLS" in choice.why
        with recording(tmp_path / "t", "--pid", str(server.pid)):
            with server.connect(
                tcp=True, port=port, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False
            ) as secure:
                secure.get("hidden:1")
            client.get("plain:1")
        client.config_set("tls-port", 0)
        client.config_set("port", 0)
        assert planned(server).choice.exact
    run = Run(tmp_path / "t")
    assert run.loss == {"opaque_session": 1}
    counted = run.executions()
    assert (counted["GET plain:?"], counted["GET hidden:?"]) == (1, 0)
