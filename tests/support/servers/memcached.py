# SPDX-License-Identifier: Apache-2.0
"""memcached from the distribution (`memcached`), and a client."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import DatabaseServer, free_port, running, server_directory

THREADS = 4


class Client:
    """One connection. `text` sends its argument and reads that many replies."""

    def __init__(self, server: DatabaseServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def line(self) -> bytes:
        return self._file.readline().rstrip(b"\r\n")

    def text(self, data: bytes, replies: int = 1) -> list[bytes]:
        """The lines up to the last reply, without values and their headers."""
        self.send(data)
        return [self._reply() for _ in range(replies)]

    def _reply(self) -> bytes:
        while True:
            line = self.line()
            head, *words = line.split()
            if head == b"VALUE":
                self._file.read(int(words[2]) + 2)
            elif head == b"VA":
                self._file.read(int(words[0]) + 2)
                return line
            else:
                return line

    def stats(self) -> dict[str, int]:
        self.send(b"stats\r\n")
        found: dict[str, int] = {}
        while (line := self.line()) != b"END":
            _, name, value = line.split(b" ", 2)
            if value.isdigit():
                found[name.decode()] = int(value)
        return found


@contextmanager
def memcached_server(*options: str) -> Iterator[DatabaseServer]:
    """A memcached with these additional options. Raises Unavailable."""
    program = shutil.which("memcached")
    if program is None:
        raise Unavailable("memcached is not installed (package memcached)")
    with server_directory() as directory:
        port = free_port()
        user = pwd.getpwuid(os.geteuid()).pw_name
        argv = [program, "-l", "127.0.0.1", "-p", str(port), "-t", str(THREADS), "-u", user]
        argv += options
        server = DatabaseServer("memcached", directory, argv, port, directory / "s", _connect)
        with running(server) as started:
            yield started


def _connect(server: DatabaseServer, _tcp: bool, _arguments: dict[str, Any]) -> Client:
    return Client(server)
