# SPDX-License-Identifier: Apache-2.0
"""A process that reports changes, and the recorder it reports to: for tests of both."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from kept_too import tags_either_way
from qjoule.tags.tagging import TagSource
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer

NAMES: list[str | None] = [f"127.0.0.1 {40000 + n} > 127.0.0.1 3306" for n in range(4)]


def new_peer(number: int = 0) -> Peer:
    """A connection from the port 40000 + `number`."""
    return Peer(
        {
            "db.system.name": "mysql",
            "network.transport": "tcp",
            "network.local.address": "127.0.0.1",
            "network.local.port": 40000 + number,
            "server.address": "127.0.0.1",
            "server.port": 3306,
        }
    )


def follow(source: TagSource, channel: Channel) -> None:
    """The recorder asks for changes only, and the process has received that."""
    channel.begin(None)
    source.poll()
    channel.check_ns = 0
    channel.begin(None)
    assert not channel.wants_ends


def ask(source: TagSource, *begins_ns: int, of: int = 0, stream: int = 0) -> list[Any]:
    """Tag `m` of queries of connection `of` that began then; None if unknown."""
    n = len(begins_ns)
    whose = np.full(n, of), np.full(n, stream), np.array(begins_ns, np.int64)
    found = tags_either_way(source, NAMES, *whose)
    return [None if tags is None else dict(tags).get("m", "none") for tags in found]


def records(channel: Channel) -> int:
    """The number of records it has written."""
    recorder = channel._recorder
    assert recorder is not None
    return recorder._taken


def call(channel: Channel, of: Peer, m: str, stream: int = 0) -> int:
    """Makes a call; returns when its query begins at the server."""
    with tag(m=m):
        assert channel.begin(of, stream) == 0  # no end to report
    return time.monotonic_ns()
