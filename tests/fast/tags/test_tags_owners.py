# SPDX-License-Identifier: Apache-2.0
"""Whose reports on a connection are accepted: root's, and those of the user who made its socket."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from other_user import NOBODY, SOMEBODY, other_user
from qjoule.tags import application
from qjoule.tags.application import shares_namespaces
from qjoule.tags.connections import Owner, SocketOwners
from qjoule.tags.definitions import Connection
from qjoule.tags.tagging import TagSource
from tag_source import HandMade
from waiting import until

HOLDS = 5
_NEW_NET = 0x40000000


@pytest.fixture
def owners() -> Iterator[SocketOwners]:
    with closing(SocketOwners()) as kernel:
        yield kernel


@pytest.fixture
def source(path: Path) -> Iterator[TagSource]:
    """Unlike in other tests, it looks up the owners of connections."""
    with closing(TagSource(path)) as recorder:
        yield recorder


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def _connected(server: socket.socket) -> socket.socket:
    return socket.create_connection(server.getsockname()[:2])


def _described(client: socket.socket) -> dict[str, Any]:
    """A connection as a shim describes it."""
    if client.family == socket.AF_UNIX:
        inode = os.fstat(client.fileno()).st_ino
        return {"db.system.name": "x", "network.transport": "unix", "client.inode": inode}
    here, there = client.getsockname(), client.getpeername()
    return {
        "db.system.name": "x",
        "network.transport": "tcp",
        "network.local.address": here[0],
        "network.local.port": here[1],
        "server.address": there[0],
        "server.port": there[1],
    }


def _name(of: dict[str, Any]) -> str:
    if "client.inode" in of:
        return f"unix {of['client.inode']}"
    plain = {key: str(value).removeprefix("::ffff:") for key, value in of.items()}
    here = f"{plain['network.local.address']} {plain['network.local.port']}"
    return f"{here} > {plain['server.address']} {plain['server.port']}"


def _connection(of: dict[str, Any]) -> Connection:
    client, _, server = _name(of).partition(" > ")
    return Connection("x", client, server or None)


def _report(path: Path, of: dict[str, Any], tag: str, t_ns: int | None = None) -> HandMade:
    """Reports what a shim would: from now on, everything on the connection has this tag."""
    reporter = HandMade(path)
    reporter.define("connection", 1, of)
    reporter.define("tags", 2, {"m": tag})
    reporter.record(1, time.monotonic_ns() if t_ns is None else t_ns, 1, 2, HOLDS)
    return reporter


def _ask(source: TagSource, of: dict[str, Any]) -> Any:
    """The tag of a query that begins now."""
    zero = np.zeros(1, np.int64)
    (tags,) = source.tags_of([_name(of)], zero, zero, zero + time.monotonic_ns()).to_pylist()
    return None if tags is None else dict(tags)["m"]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_the_owner_of_a_tcp_connection(owners: SocketOwners, address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, 0))
        server.listen()
        with _connected(server) as client:
            about = _described(client)
            owner = owners.owner_of(_connection(about))
            assert owner is not None and owner.uid == os.geteuid()
            # The server's socket listens at the same addresses, but it is not the connection.
            assert owners.owner_of(_connection({**about, "network.local.port": 1})) is None


def test_the_owner_of_a_unix_socket_and_of_nonsense(owners: SocketOwners) -> None:
    client, server = socket.socketpair()
    with client, server:
        owner, other = (owners.owner_of(_connection(_described(end))) for end in (client, server))
        assert owner is not None and owner.uid == os.geteuid()
        assert other is not None and other.cookie != owner.cookie
    assert owners.owner_of(_connection({"client.inode": 1 << 40})) is None
    for name, to in ((None, None), ("unix 0", None), ("unix x", None), ("a 1", "b 2")):
        assert owners.owner_of(Connection("x", name, to)) is None
    assert owners.owner_of(Connection("x", "::1 5", "127.0.0.1 5")) is None
    owners.close()
    assert owners.owner_of(Connection("x", "unix 1")) is None


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_nobody_is_believed_about_another_user_s_connection(
    source: TagSource, server: socket.socket, path: Path, kind: str
) -> None:
    pair = socket.socketpair()
    with _connected(server) if kind == "tcp" else pair[0] as client:
        about = _described(client)
        with other_user(NOBODY, lambda: (None, _report(path, about, "forged"))):
            assert _ask(source, about) is None
            assert (source.unverified, source.lost) == (1, 0)
            assert source.calls_on([_name(about)]) == [False]
            with _report(path, about, "true").socket:  # root may report anything
                assert _ask(source, about) == "true"
            assert source.unverified == 1


@pytest.mark.root
def test_a_user_is_believed_about_their_own_connections(
    source: TagSource, server: socket.socket, owners: SocketOwners, path: Path
) -> None:
    def work() -> tuple[Any, object]:
        pair = socket.socketpair()
        clients = _connected(server), pair[0]
        abouts = [_described(client) for client in clients]
        return abouts, (clients, pair, [_report(path, about, "own") for about in abouts])

    with other_user(NOBODY, work) as abouts:
        for about in abouts:
            owner = owners.owner_of(_connection(about))
            assert owner is not None and owner.uid == NOBODY
            assert _ask(source, about) == "own"
        with other_user(SOMEBODY, lambda: (None, [_report(path, abouts[0], "forged")])):
            assert _ask(source, abouts[0]) == "own"
        assert source.unverified == 1


@pytest.mark.root
@pytest.mark.parametrize(
    ("uid", "new_namespaces"), [(NOBODY, 0), (NOBODY, _NEW_NET), (0, _NEW_NET)]
)
def test_a_connection_of_the_machine_s_root_is_neither_a_user_s_nor_a_container_s_root_s(
    source: TagSource, server: socket.socket, path: Path, uid: int, new_namespaces: int
) -> None:
    """A process inherits it from root; anybody can have the same addresses in a namespace."""
    with _connected(server) as client:
        about = _described(client)

        def work() -> tuple[None, object]:
            return None, _report(path, about, "forged")

        with other_user(uid, work, new_namespaces):
            assert _ask(source, about) is None
            assert source.unverified == 1


@pytest.mark.root
@pytest.mark.parametrize("namespace", [("--pid",), ("--user", "--map-root-user")])
def test_only_processes_of_our_namespaces_may_be_the_machine_s_root(
    namespace: tuple[str, ...],
) -> None:
    assert shares_namespaces(os.getpid())
    command = ["unshare", *namespace, "--fork", "--kill-child", "sleep", "600"]
    with subprocess.Popen(command) as outer:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        assert not shares_namespaces(int(until(children.read_text)))
        outer.kill()
    assert not shares_namespaces(outer.pid)


@pytest.mark.root
def test_a_report_ends_with_its_connection(
    source: TagSource, server: socket.socket, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "CHECK_NS", 0)

    def connect() -> tuple[Any, object]:
        client = _connected(server)
        return _described(client), client

    with (
        other_user(NOBODY, connect) as about,
        other_user(NOBODY, lambda: (None, _report(path, about, "own"))),
    ):
        assert _ask(source, about) == "own"
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()  # a reset: nothing remains of the connection
        source.poll()
        assert _ask(source, about) is None


@pytest.mark.root
def test_a_report_of_the_future_is_lost(
    source: TagSource, server: socket.socket, path: Path
) -> None:
    def work() -> tuple[Any, object]:
        client = _connected(server)
        about = _described(client)
        ahead_ns = time.monotonic_ns() + 60_000_000_000
        return about, (client, _report(path, about, "ahead", ahead_ns))

    with other_user(NOBODY, work) as about:
        assert _ask(source, about) is None
        assert source.lost == 1


class _Owners:
    """Owners as set by a test."""

    def __init__(self) -> None:
        self.answer: Owner | None = Owner(1000, b"first")
        self.asked = 0

    def owner_of(self, connection: Connection) -> Owner | None:
        del connection
        self.asked += 1
        return self.answer

    def close(self) -> None:
        pass


def test_claims_are_checked_again_because_addresses_are_reused() -> None:
    owners, now_ns = _Owners(), 5_000_000_000
    of_user = application.ConnectionOwnership(1000, owners)
    for number in (1, 2):
        of_user.add(number, Connection("x", "unix 1"), now_ns)
    assert of_user.until(1) == application.NEVER_NS
    assert not list(of_user.check(now_ns + application.CHECK_NS - 1)) and owners.asked == 2
    later_ns = now_ns + application.CHECK_NS
    assert not list(of_user.check(later_ns)) and owners.asked == 4
    # The same user, but another socket: valid since the first one was last seen.
    owners.answer = Owner(1000, b"second")
    last_ns = later_ns + application.CHECK_NS
    assert list(of_user.check(last_ns)) == [(1, later_ns), (2, later_ns)]
    assert of_user.until(1) == later_ns
    assert not list(of_user.check(last_ns + application.CHECK_NS)) and owners.asked == 6
    # Closed, and nobody's: valid until now.
    of_user.add(3, Connection("x", "unix 1"), last_ns)
    owners.answer = None
    assert list(of_user.check(last_ns + application.CHECK_NS)) == [
        (3, last_ns + application.CHECK_NS)
    ]
