# SPDX-License-Identifier: Apache-2.0
"""A bare client of the Redis protocol, for what drivers cannot send.

Redis documentation, "Redis serialization protocol specification" (RESP 2 and 3).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class RedisError(Exception):
    """The server's error reply."""


class RedisClient:
    """One connection. Every call waits for its replies."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._in = self._socket.makefile("rb")

    def ask(self, sent: bytes, replies: int = 1) -> list[Any]:
        """Sends this at once; returns the replies."""
        self._socket.sendall(sent)
        return [self._reply() for _ in range(replies)]

    def close(self) -> None:
        self._in.close()
        self._socket.close()

    def _reply(self) -> Any:
        line = self._in.readline()
        kind, rest = line[:1], line[1:-2]
        if not line:
            raise ConnectionError("the server has closed the connection")
        if kind == b"-":
            return RedisError(rest.decode())
        if kind in b"+_":
            return rest or None
        number = int(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"$":
            return self._in.read(number + 2)[:-2]
        return [self._reply() for _ in range(number * (2 if kind == b"%" else 1))]


@contextmanager
def redis_client(port: int) -> Iterator[RedisClient]:
    client = RedisClient(port)
    try:
        yield client
    finally:
        client.close()


def resp(*parts: bytes) -> bytes:
    """A command."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
