# SPDX-License-Identifier: Apache-2.0
"""What clients do to a memcached in the tests, and what its statistics say about it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from servers.memcached import Client
from servers.process import DatabaseServer
from tracing.at_once import at_once

CLIENTS = 32
ROUNDS = 100  #: of each client: a set, a get, a silent set and a get of ten keys
MANY = 10
PIPELINED = 50  #: more than a worker executes for one connection at a time
LARGE = 600_000


@dataclass
class Story:
    before: dict[str, int]
    after: dict[str, int] = field(default_factory=dict)

    def count(self, *names: str) -> int:
        """By how much the sum of these statistics grew."""
        return sum(self.after[name] - self.before[name] for name in names)


def tell(server: DatabaseServer) -> Story:
    """Runs the whole story; returns once the server has done it all."""
    with Client(server) as referee:
        story = Story(referee.stats())
        at_once(lambda number: _one(server, number), range(CLIENTS))
        _pipelined(server)
        _pieces(server)
        _meta(server)
        story.after = referee.stats()
    return story


def _one(server: DatabaseServer, number: int) -> None:
    many = b" ".join(b"user:%d" % i for i in range(MANY))
    with Client(server) as client:
        for i in range(ROUNDS):
            key = b"user:%d" % (number * ROUNDS + i)
            assert client.text(b"set %s 0 0 6\r\nsecret\r\n" % key) == [b"STORED"]
            assert client.text(b"get %s\r\n" % key) == [b"END"]
            client.send(b"set quiet:%d 0 0 2 noreply\r\nab\r\n" % i)
            assert client.text(b"get %s\r\n" % many) == [b"END"]
        assert client.text(b"set number:%d 0 0 1\r\n1\r\n" % number) == [b"STORED"]
        assert client.text(b"incr number:%d 41\r\n" % number) == [b"42"]
        assert client.text(b"decr missing:%d 1\r\n" % number) == [b"NOT_FOUND"]
        assert client.text(b"touch number:%d 100\r\n" % number) == [b"TOUCHED"]
        assert client.text(b"gat 100 number:%d\r\n" % number) == [b"END"]
        assert client.text(b"delete number:%d\r\n" % number) == [b"DELETED"]


def _pipelined(server: DatabaseServer) -> None:
    pair = b"set pipe:1 0 0 3\r\nabc\r\nget pipe:1\r\n"
    with Client(server) as client:
        replies = client.text(pair * PIPELINED, 2 * PIPELINED)
        assert replies == [b"STORED", b"END"] * PIPELINED


def _pieces(server: DatabaseServer) -> None:
    """A command in many reads, cut within its line, its value and its line end."""
    with Client(server) as client:
        for piece in (b"se", b"t piece:1 0 ", b"0 5\r", b"\nhe", b"llo", b"\r"):
            client.send(piece)
            time.sleep(0.02)
        assert client.text(b"\n") == [b"STORED"]
        value = b"v" * LARGE
        assert client.text(b"set large:1 0 0 %d\r\n%s\r\n" % (LARGE, value)) == [b"STORED"]
        assert client.text(b"get large:1\r\n") == [b"END"]
        # A value that looks like a command is still a value.
        assert client.text(b"set trap:1 0 0 12\r\nget secret\r\n\r\n") == [b"STORED"]


def _meta(server: DatabaseServer) -> None:
    with Client(server) as client:
        for number in range(ROUNDS):
            assert client.text(b"ms meta:%d 2\r\nhi\r\n" % number) == [b"HD"]
            assert client.text(b"mg meta:%d v\r\n" % number)[0].startswith(b"VA 2")
            assert client.text(b"md meta:%d q\r\nmn\r\n" % number) == [b"MN"]
