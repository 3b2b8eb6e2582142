# SPDX-License-Identifier: Apache-2.0
"""Applications that report to a `TagSource`, and the tags that it gives to their queries. Also:
shared memory that a test writes by hand.
"""

from __future__ import annotations

import array
import fcntl
import json
import mmap
import os
import socket
import struct
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from qjoule.tags.connections import Owner
from qjoule.tags.definitions import Connection
from qjoule.tags.kept_calls import KeptCalls, kept_calls
from qjoule.tags.tagging import TagSource
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer


def tags_either_way(
    source: TagSource, names: list[str | None], codes: Any, streams: Any, begins_ns: Any
) -> list[Any]:
    """Tags of queries, see `TagSource.tags_of`. Both ways must give the same."""
    source.poll()
    calls = source._calls
    with calls._lock:
        sorted_calls = calls._sorted()
        keys, sets = calls._keys.names(), list(calls._tags)
        kept = KeptCalls(kept_calls(sorted_calls, calls._valid_until(sorted_calls), keys, sets))
    later = kept.tags_of(names, codes, streams, begins_ns).to_pylist()
    at_once: list[Any] = source.tags_of(names, codes, streams, begins_ns).to_pylist()
    assert _sorted(later) == _sorted(at_once)
    return at_once


def _sorted(tag_lists: list[Any]) -> list[Any]:
    return [tags and sorted(tags) for tags in tag_lists]


NAMES: list[str | None] = [f"127.0.0.1 {40000 + n} > 127.0.0.1 3306" for n in range(4)]


class Everyone:
    """All connections belong to this process's user: made-up ones have no owner in the kernel."""

    def owner_of(self, connection: Connection) -> Owner | None:
        del connection
        return Owner(os.geteuid(), b"")

    def close(self) -> None:
        pass


def tcp_peer(local_port: int, server_port: int, address: str = "127.0.0.1") -> Peer:
    """A TCP connection as a shim describes it."""
    return Peer(
        {
            "db.system.name": "mysql",
            "network.transport": "tcp",
            "network.local.address": "127.0.0.1",
            "network.local.port": local_port,
            "server.address": address,
            "server.port": server_port,
        }
    )


def new_peer(number: int = 0) -> Peer:
    """A new connection that the server calls `NAMES[number]`."""
    return tcp_peer(40000 + number, 3306)


def follow(source: TagSource, channel: Channel) -> None:
    """The recorder asks for changes only, and the process has received that."""
    channel.begin(None)
    source.poll()
    channel.to.until_ns = 0
    channel.begin(None)
    assert not channel.wants_ends


def ask(source: TagSource, *begins_ns: int, connection: int = 0, stream: int = 0) -> list[Any]:
    """Tag `m` of queries of this connection that began then; None if unknown."""
    n = len(begins_ns)
    whose = np.full(n, connection), np.full(n, stream), np.array(begins_ns, np.int64)
    tags_of = tags_either_way(source, NAMES, *whose)
    return [None if tags is None else dict(tags).get("m", "none") for tags in tags_of]


def records(channel: Channel) -> int:
    """The number of records it has written."""
    recorder = channel._recorder
    assert recorder is not None
    return recorder._taken


def call(channel: Channel, peer: Peer, m: str, stream: int = 0) -> int:
    """Makes a call; returns when its query begins at the server."""
    with tag(m=m):
        channel.begin(peer, stream)
    return time.monotonic_ns()


def honest(path: Path, source: TagSource) -> None:
    """An application that connects now is accepted."""
    with closing(Channel(str(path))) as channel:
        assert ask(source, call(channel, new_peer(), "honest")) == ["honest"]


# ---- shared memory as an application makes it, by hand: see drivers/PROTOCOL.md ------------------

HELLO = b"qjoule tags 1\n"


def memfd(content: bytes, *, seal: bool = True) -> int:
    """A descriptor of memory with this content at its start."""
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if seal:
        fcntl.fcntl(fd, 1033, 0x2)  # F_ADD_SEALS, F_SEAL_SHRINK
    return fd


def header(slots: int = 2048, size: int = 64, magic: bytes = b"QJTAGS\x00\x01") -> bytes:
    """The header of a ring."""
    return struct.pack("=8sII", magic, slots, size).ljust(4096, b"\0")


def empty_ring(slots: int = 2048) -> int:
    """A descriptor of a ring without records."""
    return memfd(header(slots) + bytes(slots * 64))


def greet(path: Path, message: bytes, descriptors: list[int]) -> socket.socket:
    """Connects to a recorder; the message carries the descriptors, which are then closed here."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(str(path))
    rights = array.array("i", descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
    client.sendmsg([message], ancillary)
    for descriptor in descriptors:
        os.close(descriptor)
    return client


class HandMade:
    """An application whose every message and record a test writes itself."""

    def __init__(self, path: Path, ring: int | None = None) -> None:
        descriptor = empty_ring() if ring is None else ring
        self.memory = mmap.mmap(descriptor, 0)
        self.socket = greet(path, HELLO, [descriptor])

    def define(self, kind: str, number: int, definition: dict[str, Any]) -> None:
        self.socket.send(json.dumps({kind: number, "of": definition}).encode())

    def record(self, number: int, t_ns: int, connection: int, tags: int, kind: int = 1) -> None:
        at = 4096 + (number - 1) * 64 + 24
        struct.pack_into("=QQQQQ", self.memory, at, 0, t_ns, connection << 32 | tags, kind, number)
