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
from tag_source import Everyone, tcp_peer

PORT, HIDDEN_PORT = 7001, 7002
NAME = f"127.0.0.1 51234 > 127.0.0.1 {HIDDEN_PORT}"


def peer(port: int, address: str = "127.0.0.1") -> Peer:
    return tcp_peer(51234, port, address)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    """Server 1 has no probes; server 2 has, and may hide sessions."""
    addresses = Addresses({PORT: 1, HIDDEN_PORT: 2}, {"/run/kv.sock": 1})
    where = {"addresses": addresses, "hidden": frozenset({2})}
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone(), **where)) as recorder:  # type: ignore[arg-type]
        yield recorder


def test_a_call_is_reported_once_when_it_has_ended(source: TagSource, channel: Channel) -> None:
    one = peer(PORT)
    set_trace((bytes(15) + b"\1", bytes(7) + b"\2"))
    try:
        with tag(endpoint="a"):
            call = channel.begin(one)
    finally:
        set_trace(None)
    assert source.reported({}) == []
    between_ns = time.monotonic_ns()
    channel.end(one, call, ERROR)
    (reported,) = source.reported({})
    assert (reported.server, reported.system, reported.status) == (1, "mysql", 2)
    expected = (("endpoint", "a"), ("span", f"{2:016x}"), ("trace", f"{1:032x}"))
    assert reported.tags == expected
    assert reported.begin_ns < between_ns <= reported.end_ns
    assert source.reported({}) == []
    assert source.lost == 0


def test_calls_to_other_servers_are_not_reported(source: TagSource, channel: Channel) -> None:
    """Another port; the same port of another host (TEST-NET-1, RFC 5737)."""
    for one in (peer(PORT + 7), peer(PORT, "192.0.2.1")):
        channel.end(one, channel.begin(one), OK)
    assert source.reported({}, everything=True) == []


def test_a_unix_socket_is_known_by_its_path(source: TagSource, channel: Channel) -> None:
    of = {"db.system.name": "redis", "network.transport": "unix", "client.inode": 9}
    for path in ("/run/kv.sock", "/run/other.sock"):
        one = Peer({**of, "server.address": path})
        channel.end(one, channel.begin(one), OK)
    assert [call.server for call in source.reported({})] == [1]


def test_of_a_probed_server_only_hidden_connections_are_reported(
    source: TagSource, channel: Channel
) -> None:
    one = peer(HIDDEN_PORT)
    channel.end(one, channel.begin(one), OK)
    assert source.reported({}) == []  # nothing is known about its connection yet
    assert [call.server for call in source.reported({NAME: 2})] == [2]
    channel.end(one, channel.begin(one), OK)
    assert source.reported({}, everything=True) == []


def test_a_call_without_an_end_is_unknown_or_unfinished(
    source: TagSource, channel: Channel, tmp_path: Path
) -> None:
    """If the program has ended, the call ended unseen; if it continues, the call is unfinished."""
    other = Channel(str(tmp_path / "tags.sock"))
    other.begin(peer(PORT))
    assert source.reported({}) == []
    other.close()
    (gone,) = source.reported({})
    assert (gone.ended, gone.status) == (False, 0)
    channel.begin(peer(PORT))
    assert source.reported({}) == []
    (unfinished,) = source.reported({}, everything=True)
    assert (unfinished.ended, unfinished.status) == (False, 3)


def test_a_program_that_ends_with_its_last_call_has_reported_it(
    source: TagSource, channel: Channel
) -> None:
    one = peer(PORT)
    calls = [channel.begin(one) for _ in range(5)]
    source.reported({})
    for call in calls:
        channel.end(one, call, OK)
    channel.close()
    assert [(call.ended, call.status) for call in source.reported({})] == [(True, 1)] * 5


def test_more_calls_than_a_ring_holds_are_each_reported(
    source: TagSource, channel: Channel
) -> None:
    one = peer(PORT)
    count = 0
    for number in range(50_000):
        channel.end(one, channel.begin(one), OK)
        if number % 1000 == 0:
            count += len(source.reported({}))
    assert count + len(source.reported({})) == 50_000
    assert source.lost == 0


# ---- the server of an address -----------------------------------------------------------------


@dataclass(frozen=True)
class Listens:
    id: int
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    tgids: tuple[int, ...] = (5,)


def test_addresses_are_of_this_namespace_and_of_one_server(tmp_path: Path) -> None:
    for process, namespace in {"self": "net:[1]", "5": "net:[1]", "6": "net:[2]"}.items():
        (tmp_path / process / "ns").mkdir(parents=True)
        (tmp_path / process / "ns/net").symlink_to(namespace)
    servers = [
        Listens(1, (80, 81), ("/a",)),
        Listens(2, (81, 82)),
        Listens(3, (83,), tgids=(6,)),
        Listens(4, (84,), tgids=()),
        Listens(5, (85,), tgids=(99,)),
    ]
    addresses = Addresses.of(servers, tmp_path)
    assert addresses.ports == {80: 1, 82: 2}
    assert addresses.paths == {"/a": 1}


def test_an_address_of_another_host_is_no_server_of_ours() -> None:
    addresses = Addresses({PORT: 1})
    for address, server in (("127.9.9.9", 1), ("192.0.2.7", 0), ("::2", 0)):
        to = Connection("redis", "127.0.0.1 5", f"{address} {PORT}")
        assert addresses.server_of(to) == server
    assert addresses.server_of(Connection("redis")) == 0


def test_two_sockets_of_one_network_are_told_so() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        assert is_same_network(one, other)
