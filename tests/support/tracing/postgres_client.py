# SPDX-License-Identifier: Apache-2.0
"""A bare client of PostgreSQL's protocol 3, for what drivers cannot send.

PostgreSQL documentation, "Message Formats".
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class PostgresClient:
    """One connection as postgres. `exchange` sends messages and reads up to ReadyForQuery."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(60)
        self._in = self._socket.makefile("rb")
        body = struct.pack(">I", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
        self._socket.sendall(struct.pack(">I", len(body) + 4) + body)
        self.replies()

    def exchange(self, *messages: bytes) -> Counter[str]:
        """The types of the replies, counted: 'D' rows, 'C' completions, 'E' errors, …"""
        self.send(*messages)
        return self.replies()

    def send(self, *messages: bytes) -> None:
        self._socket.sendall(b"".join(messages))

    def replies(self, last: str = "Z") -> Counter[str]:
        """Reads up to a reply of this type."""
        kinds: Counter[str] = Counter()
        while not kinds[last]:
            header = self._in.read(5)
            assert len(header) == 5, "the server closed the connection"
            self._in.read(struct.unpack(">I", header[1:])[0] - 4)
            kinds[chr(header[0])] += 1
        return kinds

    def drop(self) -> None:
        self._in.close()
        self._socket.close()


def message(kind: str, body: bytes) -> bytes:
    return kind.encode() + struct.pack(">I", len(body) + 4) + body


def query(statement: bytes) -> bytes:
    return message("Q", statement + b"\0")


def parse(statement: bytes, name: bytes = b"") -> bytes:
    return message("P", name + b"\0" + statement + b"\0\0\0")


def bind(name: bytes = b"", portal: bytes = b"") -> bytes:
    return message("B", portal + b"\0" + name + b"\0" + bytes(6))


def execute(rows: int = 0, portal: bytes = b"") -> bytes:
    return message("E", portal + b"\0" + struct.pack(">I", rows))


SYNC, FLUSH = message("S", b""), message("H", b"")


@contextmanager
def postgres_client(port: int) -> Iterator[PostgresClient]:
    client = PostgresClient(port)
    try:
        yield client
    finally:
        client.drop()
