# SPDX-License-Identifier: Apache-2.0
"""The asker: a process without rights that asks servers for texts, with the user's credentials.

It is forked before the command reads anything from strangers. It alone knows passwords, and all
that the command can send it is the key of a statement. It logs in to a server when the first
statement of that server is asked for, and never runs a statement that its own code does not hold.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.contract import TEXT_BYTES
from qjoule.errors import QjouleError
from qjoule.root_part.reader_filter import keep_from_starting
from qjoule.servers.decoding import decoding_of
from qjoule.servers.plan import AttachPlan
from qjoule.servers.texts_by_id import BATCH, Account, Text, TextsById, TextSource
from qjoule.session.credentials import open_credentials, read_credentials
from qjoule.session.helper import FIRST, fork_helper, wait_shortly
from qjoule.stream.answers import Answer

_QUESTION = struct.Struct("=HQ")  #: server, shape; the statement's key follows
_ANSWER = struct.Struct("=HQI")  #: server, shape, length of the statement; its text follows
_KEY_BYTES_MAX, _WHY_BYTES_MAX = 64, 200
_ANSWER_BYTES_MAX = _ANSWER.size + TEXT_BYTES
_FILE, _COMMAND = FIRST, FIRST + 1  #: the asker's descriptors
#: A server that did not answer is not asked again before this time.
_RETRY_S = 5.0
_NO_TEXT = Text(b"", 0)


class Asker:
    """The command's end: a `stream.answers.Asking`."""

    def __init__(self, connection: socket.socket, pid: int, kinds: Mapping[int, TextsById]) -> None:
        connection.setblocking(False)
        self._connection, self._pid = connection, pid
        self._unsent: deque[bytes] = deque()
        self.kinds = kinds
        #: Why a server cannot be asked, by its number.
        self.refused: dict[int, str] = {}

    def ask(self, server: int, shape: int, key: bytes) -> None:
        """Asks for a statement. The answer, also that there is none, comes from `take`."""
        self._unsent.append(_QUESTION.pack(server, shape) + key[:_KEY_BYTES_MAX])
        self._send()

    def take(self, wait_s: float = 0.0) -> list[Answer]:
        """The answers that have come. Waits for some up to `wait_s`."""
        self._send()
        found: list[Answer] = []
        deadline = time.monotonic() + wait_s
        while True:
            try:
                content = self._connection.recv(_ANSWER_BYTES_MAX)
            except BlockingIOError:
                if found or time.monotonic() >= deadline:
                    return found
                time.sleep(0.01)
                continue
            except OSError:
                return found
            if len(content) < _ANSWER.size:
                for number in self.kinds:
                    self.refused.setdefault(number, "the process that asks has ended")
                return found
            server, shape, length = _ANSWER.unpack_from(content)
            if shape:
                found.append(Answer(shape, content[_ANSWER.size :], length))
            else:
                self.refused[server] = content[_ANSWER.size :].decode("utf-8", "replace")

    def close(self) -> None:
        self._connection.close()
        wait_shortly(self._pid)

    def _send(self) -> None:
        with suppress(OSError):
            while self._unsent:
                self._connection.send(self._unsent[0])
                self._unsent.popleft()


@dataclass(frozen=True)
class _Server:
    """A server that may be asked, if an account fits it."""

    label: str
    flavour: str
    port: int
    kind: TextsById


def start_asker(path: Path, plan: AttachPlan) -> Asker | None:
    """Starts it, while this process has one thread. None: it could ask no server of the plan.

    Raises:
        QjouleError: the file cannot be used.
    """
    servers = {
        planned.server.id: _Server(
            planned.server.label, planned.server.flavour, planned.server.ports[0], kind
        )
        for planned in plan.traced
        if (kind := decoding_of(planned.server.kind).texts_by_id) and planned.server.ports
    }
    file = open_credentials(path)
    if not servers:
        os.close(file)
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = fork_helper(lambda: _answer(servers), (file, theirs.fileno()))
    os.close(file)
    theirs.close()
    return Asker(ours, pid, {number: one.kind for number, one in servers.items()})


def _answer(servers: Mapping[int, _Server]) -> None:
    """The whole life of the asker."""
    keep_from_starting(connecting=True)
    command = socket.socket(fileno=_COMMAND)
    try:
        accounts = read_credentials(_FILE)
        why = ""
    except QjouleError as error:
        accounts, why = {}, str(error)
    os.close(_FILE)
    sources = {
        number: _Source(one, accounts.get(one.label, accounts.get(one.flavour)), why)
        for number, one in servers.items()
    }
    while batch := _questions(command):
        for number, questions in batch.items():
            if number in sources:
                for content in sources[number].answers(number, questions):
                    command.send(content)


def _questions(command: socket.socket) -> dict[int, dict[int, bytes]]:
    """By server: the shapes that are asked for, with their keys. Empty: the command has ended."""
    found: dict[int, dict[int, bytes]] = defaultdict(dict)
    flags = 0
    for _ in range(BATCH):
        try:
            content = command.recv(_QUESTION.size + _KEY_BYTES_MAX, flags)
        except BlockingIOError:
            break
        if len(content) < _QUESTION.size:
            break
        server, shape = _QUESTION.unpack_from(content)
        found[server][shape] = content[_QUESTION.size :]
        flags = socket.MSG_DONTWAIT
    return found


class _Source:
    """One server, and the connection to it while there is one."""

    def __init__(self, server: _Server, account: Account | None, why: str) -> None:
        self._server, self._account, self._why = server, account, why
        self._source: TextSource | None = None
        self._failed_s = -_RETRY_S

    def answers(self, number: int, questions: Mapping[int, bytes]) -> Iterator[bytes]:
        """The messages that answer these questions."""
        texts: Mapping[bytes, Text] = {}
        why = self._why or (
            "" if self._account else f"the credentials have no [{self._server.flavour}]"
        )
        if not why and time.monotonic() - self._failed_s >= _RETRY_S:
            texts, why = self._texts(list(questions.values()))
        if why:
            yield _ANSWER.pack(number, 0, 0) + why.encode()[:_WHY_BYTES_MAX]
        for shape, key in questions.items():
            text = texts.get(key, _NO_TEXT)
            yield _ANSWER.pack(number, shape, text.length) + text.start[:TEXT_BYTES]

    def _texts(self, keys: Sequence[bytes]) -> tuple[Mapping[bytes, Text], str]:
        """The texts, or why there are none."""
        assert self._account is not None
        try:
            if self._source is None:
                self._source = self._server.kind.connect(self._account, self._server.port)
            return self._source.texts(keys), ""
        except QjouleError as error:
            words = str(error)
        except Exception as error:  # each driver has its own
            words = f"{self._server.kind.view} cannot be read: {_said(error, self._account)}"
        self._failed_s = time.monotonic()
        if self._source is not None:
            with suppress(Exception):
                self._source.close()
            self._source = None
        return {}, words


def _said(error: Exception, account: Account) -> str:
    """A driver's words in one line, without the password."""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return words.replace(account.password, "…") if account.password else words
