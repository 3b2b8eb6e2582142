# SPDX-License-Identifier: Apache-2.0
"""Starts the reattach helper, a process without rights beside the command, which follows servers.

It starts before the command reads untrusted input, and holds the only socket on which the root part
still attaches. The command can only send it a process id, and gets an answer. Whoever takes over
the command through the input that it reads can thus have real servers examined and followed, a
bounded number of times, and nothing else.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from qjoule.children import become_python, fork_helper, wait_shortly
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Kind, ask
from qjoule.session.reattach_helper_process import PROCESS
from qjoule.stream.context import Followed
from qjoule.trace.meta import Server
from qjoule.typed_json import read_as

_ANSWER_BYTES = 1 << 14
_PROGRAM = "from qjoule.session.reattach_helper_process import main; main()"

#: Follows a process: yields facts, the final answer last (`session.turns.Examine`). Its first
#: argument is the root part. It can be pickled.
Follow = Callable[[socket.socket, int, bool], Iterable[Followed]]


class ReattachHelper:
    """The command's end: implements `stream.context.Follower`."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self._connection, self.pid = connection, pid

    def ask(self, pid: int) -> None:
        """Asks to follow a process. A helper with too many waiting requests ignores it."""
        with suppress(OSError):
            self._connection.send(PROCESS.pack(pid))

    def take(self) -> list[Followed]:
        """Returns the answers that have come since the last call."""
        answers = []
        with suppress(OSError, ValueError):
            while content := self._connection.recv(_ANSWER_BYTES):
                answers.append(_read(content))
        return answers

    def close(self) -> None:
        """Waits shortly for the helper's end; if it is following a server, it ends with us."""
        self._connection.close()
        wait_shortly(self.pid)


def start_reattach_helper(follow: Follow) -> ReattachHelper | None:
    """Starts the helper; the caller must have one thread. None: there is no root part."""
    connection = root_part().connection
    if connection is None:
        return None
    to_root = ask(connection, Kind.KEEPER).fd
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    follow_file = _in_memory(pickle.dumps(follow))
    descriptors = (to_root, theirs.fileno(), follow_file)
    pid = fork_helper(partial(become_python, _PROGRAM), descriptors, runs_a_program=True)
    for descriptor in (to_root, follow_file):
        os.close(descriptor)
    theirs.close()
    return ReattachHelper(ours, pid)


def _in_memory(content: bytes) -> int:
    """Returns a descriptor of a file with this content, to be read from its beginning."""
    file = os.memfd_create("qjoule-helper")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _read(content: bytes) -> Followed:
    answer: Followed = read_as(Followed, json.loads(content), "an answer of the reattach helper")
    if answer.server is not None and not isinstance(answer.server, Server):
        raise ValueError("it names no server")
    return answer
