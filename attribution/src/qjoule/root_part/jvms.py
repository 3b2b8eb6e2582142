# SPDX-License-Identifier: Apache-2.0
"""Reads JVMs of other users, and puts agents into them, through the root part."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from qjoule.errors import QjouleError
from qjoule.root_part.access import SocketAccess, bind_process, identity_of
from qjoule.root_part.client import RootPart, refusal_message
from qjoule.root_part.examiner import Failed, Task, run_all
from qjoule.root_part.protocol import Kind, Refused, RootPartGone, ask
from qjoule.servers.access import Access
from qjoule.servers.jvm.attach import CannotAttach
from qjoule.servers.jvm.process import Identity, Reach, ReachedJvm, ended, status_of


def reach_by(part: RootPart) -> Reach:
    """Returns the `Reach` of `put_agents`. Call it before any thread runs: examiners are forked."""

    @contextmanager
    def reach(pid: int, exe_id: tuple[int, int]) -> Iterator[ReachedJvm]:
        connection = part.need("an agent")
        bound_socket = _bind(connection, pid)
        with bound_socket:
            jvm = _Jvm(pid, SocketAccess(bound_socket), part)
            try:
                exe = ask(connection, Kind.EXE, pid=pid)
            except Refused:
                raise ended(pid) from None
            # The pid was not reused: the bound process had not ended when the executable was read.
            status_of(jvm)
            if identity_of(exe.file).key != exe_id:
                raise CannotAttach(f"process {pid} executes another program by now")
            yield jvm

    return reach


@dataclass(frozen=True)
class _Jvm:
    """A `ReachedJvm`. `access` is bound to its process."""

    pid: int
    access: Access
    _part: RootPart

    def examine(self, look: Callable[[Access], bytes]) -> bytes:
        answers: list[bytes | Failed] = []
        # Uses its own socket, so that we never read what the loader leaves unread there.
        with _bind(self._part.need("an agent"), self.pid) as theirs:
            descriptor = theirs.detach()
        run_all(
            [lambda: Task(lambda number: _examined(number, look), descriptor)],
            lambda _number, answer: answers.append(answer),
        )
        status_of(self)  # proves that `theirs` was bound to the same process
        (answer,) = answers
        if isinstance(answer, Failed):
            raise CannotAttach(f"process {self.pid} cannot have an agent: {answer}")
        return answer

    def loader(
        self, identity: Identity, *, client_tags: bool, may_signal: bool, seconds: float
    ) -> socket.socket:
        try:
            connection = self._part.loader(
                self.pid,
                identity.pid,
                client_tags=client_tags,
                may_signal=may_signal,
                seconds=round(seconds),
            )
        except Refused as error:
            status_of(self)
            raise CannotAttach(
                f"cannot run {sys.executable} as user {identity.uid}: {refusal_message(error)}"
            ) from None
        try:
            status_of(self)
        except BaseException:
            connection.close()
            raise
        return connection

    def brings_pipe(self, loader: socket.socket) -> bool:
        answers: list[bytes | Failed] = []
        run_all(
            [lambda: Task(_brings_pipe, os.dup(loader.fileno()), cpu_s=2)],
            lambda _number, answer: answers.append(answer),
        )
        return answers == [b"pipe"]


def _bind(connection: socket.socket, pid: int) -> socket.socket:
    try:
        return bind_process(connection, pid)[1]
    except Refused as error:
        raise CannotAttach(f"process {pid} cannot be looked at: {refusal_message(error)}") from None
    except RootPartGone:
        raise
    except QjouleError:
        raise ended(pid) from None


def _examined(descriptor: int, examine: Callable[[Access], bytes]) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor) as connection:
        return examine(SocketAccess(connection))


def _brings_pipe(descriptor: int) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor) as connection:
        # socket.recv_fds() of Python 3.11 ignores flags.
        _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_LEN(4), socket.MSG_PEEK)
    numbers = [int.from_bytes(content, sys.byteorder) for _, _, content in ancillary]
    return b"pipe" if numbers and stat.S_ISFIFO(os.fstat(numbers[0]).st_mode) else b"none"
