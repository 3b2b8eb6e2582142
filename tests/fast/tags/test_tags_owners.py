# SPDX-License-Identifier: Apache-2.0
"""Owners of connections: real sockets of several users, and whose reports are accepted."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from other_user import NOBODY, SOMEBODY, other_user
from qjoule.tags import claims
from qjoule.tags.definitions import Connection
from qjoule.tags.owners import Owner, SocketOwners
from qjoule.tags.tagging import TagSource
from tag_ring import greet, header, memfd

FAMILIES = {
    "127.0.0.1": socket.AF_INET,
    "::1": socket.AF_INET6,
    "::ffff:127.0.0.1": socket.AF_INET6,
}
HOLDS = 5
_NEW_USER_AND_NET = 0x50000000  # CLONE_NEWUSER | CLONE_NEWNET


@pytest.fixture
def owners() -> Iterator[SocketOwners]:
    with closing(SocketOwners()) as found:
        yield found


def _listening(address: str = "127.0.0.1") -> socket.socket:
    server = socket.socket(FAMILIES[address])
    server.bind((address, 0))
    server.listen()
    return server


def _described(client: socket.socket) -> dict[str, Any]:
    """A connection as a shim describes it."""
    if client.family == socket.AF_UNIX:
        inode = os.fstat(client.fileno()).st_ino
        return {"db.system.name": "x", "network.transport": "unix", "client.inode": inode}
    here, there = client.getsockname(), client.getpeername()
    return {
        **{"db.system.name": "x", "network.transport": "tcp"},
        **{"network.local.address": here[0], "network.local.port": here[1]},
        **{"server.address": there[0], "server.port": there[1]},
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


def _tell(path: Path, of: dict[str, Any], tag: str, t_ns: int | None = None) -> socket.socket:
    """Reports what a shim would: from now on, everything on the connection has this tag."""
    ring = memfd(header() + bytes(2048 * 64))
    memory = mmap.mmap(ring, 0)
    teller = greet(path, b"qjoule tags 1\n", [ring])
    teller.send(json.dumps({"connection": 1, "of": of}).encode())
    teller.send(json.dumps({"tags": 2, "of": {"m": tag}}).encode())
    t_ns = time.monotonic_ns() if t_ns is None else t_ns
    struct.pack_into("=QQQQQ", memory, 4096 + 24, 0, t_ns, 1 << 32 | 2, HOLDS, 1)
    return teller


def _ask(source: TagSource, of: dict[str, Any]) -> Any:
    """The tag of a query that begins now."""
    one = np.zeros(1, np.int64)
    (tags,) = source.tags_of([_name(of)], one, one, one + time.monotonic_ns()).to_pylist()
    return None if tags is None else dict(tags)["m"]


@pytest.mark.parametrize("address", FAMILIES)
def test_the_owner_of_a_tcp_connection(owners: SocketOwners, address: str) -> None:
    with _listening(address) as server, socket.socket(server.family) as client:
        client.connect(server.getsockname()[:2])
        about = _described(client)
        found = owners.owner_of(_connection(about))
        assert found is not None and found.uid == os.geteuid()
        # The server's socket listens at the same addresses, but it is not the connection.
        stranger = {**about, "network.local.port": 1}
        assert owners.owner_of(_connection(stranger)) is None
        assert owners.owner_of(Connection("x", "127.0.0.1 1", "127.0.0.1 1")) is None


def test_the_owner_of_a_unix_socket(owners: SocketOwners) -> None:
    client, server = socket.socketpair()
    with client, server:
        found = owners.owner_of(_connection(_described(client)))
        assert found is not None and found.uid == os.geteuid()
        other = owners.owner_of(_connection(_described(server)))
        assert other is not None and other.cookie != found.cookie
    assert owners.owner_of(_connection({"client.inode": 1 << 40})) is None


def test_nonsense_has_no_owner(owners: SocketOwners) -> None:
    for client, server in ((None, None), ("unix 0", None), ("unix x", None), ("a 1", "b 2")):
        assert owners.owner_of(Connection("x", client, server)) is None
    assert owners.owner_of(Connection("x", "::1 5", "127.0.0.1 5")) is None
    owners.close()
    assert owners.owner_of(Connection("x", "unix 1")) is None


@pytest.mark.root
def test_owners_are_told_apart(owners: SocketOwners) -> None:
    with _listening() as server:

        def connect() -> tuple[Any, object]:
            client = socket.create_connection(server.getsockname())
            one, other = socket.socketpair()
            return [_described(client), _described(one)], (client, one, other)

        for uid in (NOBODY, SOMEBODY):
            with other_user(uid, connect) as abouts:
                for about in abouts:
                    found = owners.owner_of(_connection(about))
                    assert found is not None and found.uid == uid


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_nobody_is_believed_about_another_user_s_connection(path: Path, kind: str) -> None:
    with closing(TagSource(path)) as source, _listening() as server:
        client, peer = (
            socket.socketpair() if kind == "unix" else (_connected(server), socket.socket())
        )
        about = _described(client)
        with client, peer, other_user(NOBODY, lambda: (None, _tell(path, about, "forged"))):
            assert _ask(source, about) is None
            assert (source.unverified, source.lost) == (1, 0)
            assert source.calls_on([_name(about)]) == [False]
            with _tell(path, about, "true"):  # root may report anything
                assert _ask(source, about) == "true"
            assert source.unverified == 1


@pytest.mark.root
def test_a_user_is_believed_about_their_own_connections(path: Path) -> None:
    with closing(TagSource(path)) as source, _listening() as server:

        def work() -> tuple[Any, object]:
            pair = socket.socketpair()
            clients = socket.create_connection(server.getsockname()), pair[0]
            abouts = [_described(client) for client in clients]
            return abouts, (clients, pair, [_tell(path, about, "own") for about in abouts])

        with other_user(NOBODY, work) as abouts:
            assert [_ask(source, about) for about in abouts] == ["own", "own"]
            with other_user(SOMEBODY, lambda: (None, [_tell(path, abouts[0], "forged")])):
                assert _ask(source, abouts[0]) == "own"
            assert source.unverified == 1


@pytest.mark.root
def test_a_connection_from_before_its_process_changed_user_is_root_s(path: Path) -> None:
    with closing(TagSource(path)) as source, _listening() as server:
        client = _connected(server)

        def work() -> tuple[Any, object]:
            about = _described(client)
            return about, _tell(path, about, "inherited")

        with client, other_user(NOBODY, work) as about:
            assert _ask(source, about) is None
            assert source.unverified == 1


@pytest.mark.root
def test_a_connection_of_another_namespace_is_nobody_s(path: Path) -> None:
    """Anybody can have the same addresses in their own namespace."""
    with closing(TagSource(path)) as source, _listening() as server, _connected(server) as client:
        about = _described(client)

        def work() -> tuple[Any, object]:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.unshare(_NEW_USER_AND_NET) == 0, os.strerror(ctypes.get_errno())
            return None, _tell(path, about, "forged")

        with other_user(NOBODY, work):
            assert _ask(source, about) is None
            assert source.unverified == 1


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


def test_addresses_that_become_another_s() -> None:
    owners, now_ns = _Owners(), 5_000_000_000
    found = claims.Claims(1000, owners)
    for number in (1, 2):
        found.add(number, Connection("x", "unix 1"), now_ns)
    assert found.until(1) == claims.NEVER_NS
    assert not list(found.check(now_ns + claims.CHECK_NS - 1)) and owners.asked == 2
    later_ns = now_ns + claims.CHECK_NS
    assert not list(found.check(later_ns)) and owners.asked == 4
    # The same user, but another socket: valid since the first one was last seen.
    owners.answer = Owner(1000, b"second")
    last_ns = later_ns + claims.CHECK_NS
    assert list(found.check(last_ns)) == [(1, later_ns), (2, later_ns)]
    assert found.until(1) == later_ns
    assert not list(found.check(last_ns + claims.CHECK_NS)) and owners.asked == 6
    # Closed, and nobody's: valid until now.
    found.add(3, Connection("x", "unix 1"), last_ns)
    owners.answer = None
    assert list(found.check(last_ns + claims.CHECK_NS)) == [(3, last_ns + claims.CHECK_NS)]


@pytest.mark.root
def test_what_held_is_over_when_the_connection_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "CHECK_NS", 0)
    with closing(TagSource(path)) as source, _listening() as server:

        def connect() -> tuple[Any, object]:
            client = socket.create_connection(server.getsockname())
            return _described(client), client

        with (
            other_user(NOBODY, connect) as about,
            other_user(NOBODY, lambda: (None, _tell(path, about, "own"))),
        ):
            assert _ask(source, about) == "own"
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()  # a reset: nothing remains of the connection
            source.poll()
            assert _ask(source, about) is None


@pytest.mark.root
def test_nobody_speaks_of_what_is_to_come(path: Path) -> None:
    with closing(TagSource(path)) as source, _listening() as server:

        def work() -> tuple[Any, object]:
            client = socket.create_connection(server.getsockname())
            about = _described(client)
            ahead_ns = time.monotonic_ns() + 60_000_000_000
            return about, (client, _tell(path, about, "ahead", ahead_ns))

        with other_user(NOBODY, work) as about:
            assert _ask(source, about) is None
            assert source.lost == 1


def _connected(server: socket.socket) -> socket.socket:
    return socket.create_connection(server.getsockname())
