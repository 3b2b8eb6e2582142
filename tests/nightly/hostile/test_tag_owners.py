# SPDX-License-Identifier: Apache-2.0
"""A user who reports root's connections, and their own, to a real recorder."""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from other_user import NOBODY, other_user
from qjoule.reporters.missing import lost
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer
from servers.process import DatabaseServer
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]
QUERIES = 50
WAIT_S = 60.0
TAIL = 64  #: PROTOCOL.md


def _about(client: socket.socket, path: Path) -> dict[str, Any]:
    """A connection as a shim describes it."""
    if client.family == socket.AF_UNIX:
        return {
            **{"db.system.name": "redis", "network.transport": "unix"},
            **{"client.inode": os.fstat(client.fileno()).st_ino, "server.address": str(path)},
        }
    here, there = client.getsockname(), client.getpeername()
    return {
        **{"db.system.name": "redis", "network.transport": "tcp"},
        **{"network.local.address": here[0], "network.local.port": here[1]},
        **{"server.address": there[0], "server.port": there[1]},
    }


def _connect(server: DatabaseServer, tcp: bool) -> socket.socket:
    if tcp:
        return socket.create_connection(("127.0.0.1", server.port))
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(server.socket))
    return client


def _set(client: socket.socket, key: str) -> None:
    client.sendall(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$1\r\nx\r\n".encode())
    assert client.recv(100) == b"+OK\r\n"


def _until_read(channel: Channel, peer: Peer) -> None:
    """Waits until the recorder has read all: it can only check a connection's owner while that is
    open.
    """
    deadline = time.monotonic() + WAIT_S
    for _ in range(2):  # the first time it may not have read the definitions yet
        channel.begin(peer)
        recorder = channel._recorder
        assert recorder is not None
        while struct.unpack_from("=Q", recorder._memory, TAIL)[0] < recorder._taken:
            assert time.monotonic() < deadline, "the recorder does not read"
            time.sleep(0.01)


def _tags(run: Run, key: str) -> list[Any]:
    found = run.having(key)["tags"]
    return [dict(tags) if isinstance(tags, list) else None for tags in found]


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "unix"])
def test_root_s_queries_have_no_tags_of_another_user_s(
    redis: DatabaseServer, recorder_socket: Path, tmp_path: Path, tcp: bool
) -> None:
    about: dict[str, Any] = {}

    def work() -> tuple[None, object]:
        channel, peer = Channel(str(recorder_socket)), Peer(about)
        with tag(m="forged"):
            channel.begin(peer)
        return None, (channel, peer)

    with (
        recording(tmp_path / "t", "--pid", str(redis.pid)),
        closing(_connect(redis, tcp)) as client,
    ):
        about |= _about(client, redis.socket)
        with other_user(NOBODY, work):
            for turn in range(QUERIES):
                _set(client, f"m_root_{turn}")
    run = Run(tmp_path / "t")
    assert _tags(run, "m_root_") == [None] * QUERIES
    assert run.loss["unverified"] >= 1
    assert "calls on connections that may be another user's" in lost(run.loss)


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "unix"])
def test_a_user_s_own_queries_have_their_tags(
    redis: DatabaseServer, recorder_socket: Path, tmp_path: Path, tcp: bool
) -> None:
    def work() -> tuple[None, object]:
        channel = Channel(str(recorder_socket))
        client = _connect(redis, tcp)
        peer = Peer(_about(client, redis.socket))
        for turn in range(QUERIES):
            with tag(m=str(turn)):
                call = channel.begin(peer)
                _set(client, f"m_own_{turn}_")
                channel.end(peer, call, 1)
        _until_read(channel, peer)
        return None, (channel, client, peer)

    if not tcp:
        redis.socket.parent.chmod(0o755)
        redis.socket.chmod(0o777)
    with recording(tmp_path / "t", "--pid", str(redis.pid)), other_user(NOBODY, work):
        pass
    run = Run(tmp_path / "t")
    assert sorted(_tags(run, "m_own_"), key=lambda tags: int(tags["m"])) == [
        {"m": str(turn)} for turn in range(QUERIES)
    ]
    assert "unverified" not in run.loss
