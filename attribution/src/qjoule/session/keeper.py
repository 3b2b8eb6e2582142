# SPDX-License-Identifier: Apache-2.0
"""The keeper: a process without rights that stays beside the command, to follow servers.

It is forked before the command reads anything from strangers, and holds the only socket on which
the root part still attaches. The command can only send it the number of a process, and gets an
answer. So whoever takes over the command while it reads statements can have real servers examined
and followed, a bounded number of times, and nothing else.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict

from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Kind, ask
from qjoule.root_part.reader_filter import keep_from_starting
from qjoule.session.helper import FIRST, fork_helper, wait_shortly
from qjoule.stream.following import Followed
from qjoule.trace.meta import Server
from qjoule.typed_json import read_as

_PROCESS = struct.Struct("=i")
_ANSWER_BYTES = 1 << 14
_ROOT, _COMMAND = FIRST, FIRST + 1  #: the keeper's descriptors

#: Follows a process: yields what is known, the final answer last. Its argument is the root part.
Follow = Callable[[socket.socket, int], Iterable[Followed]]


class Keeper:
    """The command's end: a `stream.following.Follower`."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self._connection, self.pid = connection, pid

    def ask(self, pid: int) -> None:
        """Asks for a process to be followed. A keeper that has too much to do ignores it."""
        with suppress(OSError):
            self._connection.send(_PROCESS.pack(pid))

    def take(self) -> list[Followed]:
        """The answers that have come since the last call."""
        found = []
        with suppress(OSError, ValueError):
            while content := self._connection.recv(_ANSWER_BYTES):
                found.append(_read(content))
        return found

    def close(self) -> None:
        """Waits shortly for the keeper's end. One that is following a server ends with this
        process.
        """
        self._connection.close()
        wait_shortly(self.pid)


def start_keeper(follow: Follow) -> Keeper | None:
    """Starts it, while this process has one thread. None: there is no root part."""
    connection = root_part().connection
    if connection is None:
        return None
    to_root = ask(connection, Kind.KEEPER).fd
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = fork_helper(lambda: _keep(follow), (to_root, theirs.fileno()))
    os.close(to_root)
    theirs.close()
    return Keeper(ours, pid)


def _keep(follow: Follow) -> None:
    """The whole life of the keeper."""
    keep_from_starting()
    root = socket.socket(fileno=_ROOT)
    asking = socket.socket(fileno=_COMMAND)
    while len(content := asking.recv(_PROCESS.size)) == _PROCESS.size:
        for answer in follow(root, *_PROCESS.unpack(content)):
            asking.send(json.dumps(asdict(answer)).encode())


def _read(content: bytes) -> Followed:
    found: Followed = read_as(Followed, json.loads(content), "an answer of the keeper")
    if found.server is not None and not isinstance(found.server, Server):
        raise ValueError("it names no server")
    return found
