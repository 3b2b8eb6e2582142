# SPDX-License-Identifier: Apache-2.0
"""Starts the credential helper, a process without rights that asks servers for texts and names with
the user's credentials.

It is forked before the command reads any untrusted input. It alone knows passwords, and accepts
only two requests from the command: the text of a statement, by its key, and names of connections.
It logs in to a server at the first request, once the server is proven to be the traced one
(`session.credentials`), and only runs statements of its own code.
"""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from qjoule.children import fork_helper, wait_shortly
from qjoule.contract import TEXT_BYTES
from qjoule.servers.attach_plan import AttachPlan
from qjoule.servers.client import CONNECTIONS_MAX, NamedConnection, NamesBefore, TextsById
from qjoule.servers.decoding import decoding_of
from qjoule.servers.types import Server
from qjoule.session.credential_helper_process import (
    ANSWER,
    FIELDS,
    KEY_BYTES_MAX,
    NAMES,
    QUESTION,
    QueriedServer,
    answer,
)
from qjoule.session.credentials import open_credentials, traced_process
from qjoule.stream.before_tracing import Names
from qjoule.stream.prepared_texts import StatementText


class CredentialHelper:
    """The command's end: implements `before_tracing.Asking` and `before_tracing.AskingNames`."""

    def __init__(
        self,
        connection: socket.socket,
        pid: int,
        kinds: Mapping[int, TextsById],
        named: Mapping[int, NamesBefore],
    ) -> None:
        connection.setblocking(False)
        self._connection, self._pid = connection, pid
        self._unsent: deque[bytes] = deque()
        self._answers: list[StatementText] = []
        self._partial: defaultdict[int, list[NamedConnection]] = defaultdict(list)  #: incomplete
        self._names: list[Names] = []
        self.kinds, self.named = kinds, named
        #: Reasons why servers cannot be asked, by the server's number.
        self.refused: dict[int, str] = {}

    def ask(self, server: int, shape: int, key: bytes) -> None:
        """Asks for a statement. `take` returns the answer, even if there is no text."""
        self._unsent.append(QUESTION.pack(server, shape) + key[:KEY_BYTES_MAX])
        self._send()

    def ask_names(self, server: int) -> None:
        """Asks for the names of a server's connections."""
        self._unsent.append(QUESTION.pack(server, NAMES))
        self._send()

    def take(self, wait_s: float = 0.0) -> list[StatementText]:
        """Returns the answers that have come. Waits up to `wait_s` for the first."""
        self._wait(self._answers, wait_s)
        answers, self._answers = self._answers, []
        return answers

    def take_names(self, wait_s: float = 0.0) -> list[Names]:
        """Returns the names that have come. Waits up to `wait_s` for the first."""
        self._wait(self._names, wait_s)
        names, self._names = self._names, []
        return names

    def _wait(self, wanted: list[StatementText] | list[Names], wait_s: float) -> None:
        self._send()
        deadline = time.monotonic() + wait_s
        while self._receive() and not wanted and time.monotonic() < deadline:
            time.sleep(0.01)

    def _receive(self) -> bool:
        """Reads the messages that have come. Returns false if the credential helper has ended."""
        while True:
            try:
                content = self._connection.recv(ANSWER.size + TEXT_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if len(content) < ANSWER.size:
                for number in {*self.kinds, *self.named}:
                    self.refused.setdefault(number, "the process that asks has ended")
                return False
            server, shape, length = ANSWER.unpack_from(content)
            self._dispatch(server, shape, length, content[ANSWER.size :])

    def _dispatch(self, server: int, shape: int, length: int, content: bytes) -> None:
        if not shape:
            self.refused[server] = content.decode("utf-8", "replace")
        elif shape != NAMES:
            self._answers.append(StatementText(shape, content, length))
        elif content:
            fields = content.decode("utf-8", "replace").split("\0")
            if len(fields) == FIELDS and len(self._partial[server]) < CONNECTIONS_MAX:
                self._partial[server].append(NamedConnection(*fields))
        else:
            self._names.append(Names(server, tuple(self._partial.pop(server, ()))))

    def close(self) -> None:
        self._connection.close()
        wait_shortly(self._pid)

    def _send(self) -> None:
        with suppress(OSError):
            while self._unsent:
                self._connection.send(self._unsent[0])
                self._unsent.popleft()


def start_credential_helper(
    path: Path, plan: AttachPlan, *, client_tags: bool = False
) -> CredentialHelper | None:
    """Starts the credential helper; the caller must have one thread. None: it could ask no server.

    `client_tags`: also ask for names that clients give their connections.

    Raises:
        QjouleError: the file cannot be used.
    """
    servers = {
        planned.server.id: queried
        for planned in plan.traced
        if (queried := _queried_server(planned.server, client_tags)) is not None
    }
    file = open_credentials(path)
    if not servers:
        os.close(file)
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = fork_helper(lambda: answer(servers), (file, theirs.fileno()))
    os.close(file)
    theirs.close()
    return CredentialHelper(
        ours,
        pid,
        {number: queried.kind for number, queried in servers.items() if queried.kind},
        {number: queried.names for number, queried in servers.items() if queried.names},
    )


def _queried_server(server: Server, client_tags: bool) -> QueriedServer | None:
    """Returns how to ask a server; None if there is nothing to ask it for."""
    decoding = decoding_of(server.kind)
    names = decoding.names_before
    if names is not None and names.by_thread and server.thread_pool.value is not False:
        names = None
    if names is not None and names.with_client_tags and not client_tags:
        names = None
    if not server.running or not server.ports or not (names or decoding.texts_by_id):
        return None
    process = traced_process(server)
    return QueriedServer(
        server.label, server.flavour, server.ports[0], process, decoding.texts_by_id, names
    )
