# SPDX-License-Identifier: Apache-2.0
"""Calls known only from clients' reports: to which server, when, and counted once."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.tags.addresses import Addresses, is_same_network
from qjoule.tags.definitions import Connection
from qjoule.tags.tagging import TagSource
from qjoule_drivers import set_trace, tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.ring import ERROR, OK
from tag_owners import Everyone

PORT, HIDDEN_PORT = 7001, 7002
NAME = f"127.0.0.1 51234 > 127.0.0.1 {HIDDEN_PORT}"


def peer(port: int, address: str = "127.0.0.1") -> Peer:
    return Peer(
        {
            **{"db.system.name": "redis", "network.transport": "tcp"},
            **{"network.local.address": "127.0.0.1", "network.local.port": 51234},
            **{"server.address": address, "server.port": port},
        }
    )


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    """Server 1 has no probes; server 2 has, and may hide sessions."""
    addresses = Addresses({PORT: 1, HIDDEN_PORT: 2}, {"/run/kv.sock": 1})
    with closing(
        TagSource(
            tmp_path / "tags.sock", owners=Everyone(), addresses=addresses, hidden=frozenset({2})
        )
    ) as found:
        yield found


def test_a_call_is_told_once_when_it_has_ended(source: TagSource, channel: Channel) -> None:
    one = peer(PORT)
    with tag(endpoint="a"):
        call = channel.begin(one)
    assert source.reported({}) == []
    between_ns = time.monotonic_ns()
    channel.end(one, call, ERROR)
    (told,) = source.reported({})
    assert (told.server, told.system, told.status) == (1, "redis", 2)
    assert told.tags == (("endpoint", "a"),)
    assert told.begin_ns < between_ns <= told.end_ns
    assert source.reported({}) == []
    assert source.lost == 0


def test_what_goes_elsewhere_is_not_told(source: TagSource, channel: Channel) -> None:
    """Another port; the same port of another host (TEST-NET-1, RFC 5737)."""
    for one in (peer(PORT + 7), peer(PORT, "192.0.2.1")):
        channel.end(one, channel.begin(one), OK)
    assert source.reported({}, everything=True) == []


def test_a_unix_socket_is_known_by_its_path(source: TagSource, channel: Channel) -> None:
    ours, other = (
        Peer(
            {
                **{"db.system.name": "redis", "network.transport": "unix"},
                **{"client.inode": 9, "server.address": path},
            }
        )
        for path in ("/run/kv.sock", "/run/other.sock")
    )
    for one in (ours, other):
        channel.end(one, channel.begin(one), OK)
    assert [call.server for call in source.reported({})] == [1]


def test_of_a_probed_server_only_what_cannot_be_read(source: TagSource, channel: Channel) -> None:
    one = peer(HIDDEN_PORT)
    channel.end(one, channel.begin(one), OK)
    assert source.reported({}) == []  # nothing is known about its connection yet
    assert [call.server for call in source.reported({NAME: 2})] == [2]
    channel.end(one, channel.begin(one), OK)
    assert source.reported({}, everything=True) == []


def test_ends_that_never_come(source: TagSource, channel: Channel, tmp_path: Path) -> None:
    """If the program has ended, the call ended unseen; if it continues, the call is unfinished."""
    other = Channel(str(tmp_path / "tags.sock"))
    other.begin(peer(PORT))
    assert source.reported({}) == []
    other.close()
    (gone,) = source.reported({})
    assert (gone.ended, gone.status) == (False, 0)
    channel.begin(peer(PORT))
    assert source.reported({}) == []
    (open_,) = source.reported({}, everything=True)
    assert (open_.ended, open_.status) == (False, 3)


def test_a_program_that_ends_with_its_last_call(source: TagSource, channel: Channel) -> None:
    one = peer(PORT)
    calls = [channel.begin(one) for _ in range(5)]
    source.reported({})
    for call in calls:
        channel.end(one, call, OK)
    channel.close()
    told = source.reported({})
    assert [(call.ended, call.status) for call in told] == [(True, 1)] * 5


def test_more_than_a_ring_holds(source: TagSource, channel: Channel) -> None:
    one = peer(PORT)
    told = 0
    for number in range(50_000):
        channel.end(one, channel.begin(one), OK)
        if number % 1000 == 0:
            told += len(source.reported({}))
    told += len(source.reported({}))
    assert told + source.lost == 50_000
    assert source.lost == 0


def test_the_trace_of_a_call_is_a_tag(source: TagSource, channel: Channel) -> None:
    set_trace((bytes(15) + b"\1", bytes(7) + b"\2"))
    try:
        with tag(endpoint="x"):
            channel.end(peer(PORT), channel.begin(peer(PORT)), OK)
            channel.begin(peer(PORT))
    finally:
        set_trace(None)
    told = source.reported({}, everything=True)
    assert {call.tags for call in told} == {
        (("endpoint", "x"), ("span", f"{2:016x}"), ("trace", f"{1:032x}"))
    }


@dataclass(frozen=True)
class Listens:
    id: int
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    tgids: tuple[int, ...] = (5,)


def proc(directory: Path, **namespaces: str) -> Path:
    for name, namespace in namespaces.items():
        (directory / name / "ns").mkdir(parents=True)
        (directory / name / "ns/net").symlink_to(namespace)
    return directory


def test_addresses_are_of_this_namespace_and_of_one_server(tmp_path: Path) -> None:
    root = proc(tmp_path, **{"self": "net:[1]", "5": "net:[1]", "6": "net:[2]"})
    servers = [
        Listens(1, (80, 81), ("/a",)),
        Listens(2, (81, 82)),
        Listens(3, (83,), tgids=(6,)),
        Listens(4, (84,), tgids=()),
        Listens(5, (85,), tgids=(99,)),
    ]
    found = Addresses.of(servers, root)
    assert found.ports == {80: 1, 82: 2}
    assert found.paths == {"/a": 1}


@pytest.mark.parametrize(
    ("address", "server"), [("127.0.0.1", 1), ("127.9.9.9", 1), ("192.0.2.7", 0), ("::2", 0)]
)
def test_an_address_of_another_host_is_no_server_of_ours(address: str, server: int) -> None:
    connection = Connection("redis", "127.0.0.1 5", f"{address} {PORT}")
    assert Addresses({PORT: 1}).server_of(connection) == server
    assert Addresses({PORT: 1}).server_of(Connection("redis")) == 0


def test_sockets_of_one_network() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        assert is_same_network(one, other)
