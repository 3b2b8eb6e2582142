# SPDX-License-Identifier: Apache-2.0
"""MongoDB's protocol on a bare socket: any messages, in pieces or at once."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import bson
import psutil

from fuzz.mongodb_library import decompressed, op_msg
from qjoule_studies.servers.process import DatabaseServer
from waiting import until

MORE_TO_COME = 2  #: flag: no reply is wanted
OP_REPLY = 1  #: the servers' reply to requests from before OP_MSG
TIMEOUT_S = 60.0


class Client:
    """One connection."""

    def __init__(self, server: DatabaseServer) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._in.close()
        self.socket.close()

    def ask(self, command: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
        return self.exchange(op_msg({**command, "$db": "shop"}, sections))

    def exchange(self, message: bytes) -> dict[str, Any]:
        self.socket.sendall(message)
        return self.reply()

    def reply(self) -> dict[str, Any]:
        size = self._in.read(4)
        if not size:
            raise ConnectionError("the server closed the connection")
        message = decompressed(size + self._in.read(struct.unpack("<I", size)[0] - 4))
        old = struct.unpack_from("<I", message, 12)[0] == OP_REPLY
        document: dict[str, Any] = bson.decode(message[16 + (20 if old else 5) :])
        return document


@contextmanager
def clients(server: DatabaseServer, count: int) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Client(server)) for _ in range(count)]


def clients_gone(server: DatabaseServer) -> None:
    """Waits until the server has read the end of every peer."""
    connections = psutil.Process(server.pid).net_connections
    until(lambda: not any(peer.raddr for peer in connections("tcp")), "the end of its connections")
