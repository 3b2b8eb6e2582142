# SPDX-License-Identifier: Apache-2.0
"""The process that asks servers, and the messages between it and `session.credential_helper`."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, Protocol, TypeVar

from qjoule.children import FIRST
from qjoule.contract import TEXT_BYTES
from qjoule.errors import QjouleError
from qjoule.root_part.reader_filter import keep_from_starting
from qjoule.servers.client import (
    BATCH,
    CONNECTIONS_MAX,
    Account,
    NamedConnection,
    NamesBefore,
    NamesSource,
    Text,
    TextsById,
    TextSource,
)
from qjoule.session.credentials import Peer, Peers, TracedProcess, account_for, read_credentials

QUESTION = struct.Struct("=HQ")  #: server, shape; the statement's key follows
ANSWER = struct.Struct("=HQI")  #: server, shape, length of the statement; its text follows
KEY_BYTES_MAX = 64
#: In place of a shape: asks for names. Each answer has a name; the last is empty.
NAMES = (1 << 64) - 1
FIELDS = len(NamedConnection._fields)  #: of a name, separated by NULs
_FIELD_CHARACTERS = 128  #: most per field
_WHY_BYTES_MAX = 200
_FILE, _COMMAND = FIRST, FIRST + 1  #: descriptors: the credentials, and the socket to the command
#: Time after a failure before a server is asked again.
_RETRY_S = 5.0
_NO_TEXT = Text(b"", 0)


@dataclass(frozen=True)
class QueriedServer:
    """A server that may be asked, if there is an account for it."""

    label: str
    flavour: str
    port: int
    process: TracedProcess
    kind: TextsById | None
    names: NamesBefore | None


def answer(servers: Mapping[int, QueriedServer]) -> None:
    """Runs the credential helper until the command ends."""
    peers = Peers()
    peers.guard()
    keep_from_starting(connecting=True)
    command = socket.socket(fileno=_COMMAND)
    try:
        accounts = read_credentials(_FILE)
        why = ""
    except QjouleError as error:
        accounts, why = {}, str(error)
    os.close(_FILE)
    sources = {number: _Source(server, accounts, peers, why) for number, server in servers.items()}
    while batch := _questions(command):
        for number, questions in batch.items():
            if number in sources:
                for content in sources[number].answers(number, questions):
                    command.send(content)


def _questions(command: socket.socket) -> dict[int, dict[int, bytes]]:
    """Returns the requested shapes and their keys, by server; empty if the command has ended."""
    batch: dict[int, dict[int, bytes]] = defaultdict(dict)
    flags = 0
    for _ in range(BATCH):
        try:
            content = command.recv(QUESTION.size + KEY_BYTES_MAX, flags)
        except BlockingIOError:
            break
        if len(content) < QUESTION.size:
            break
        server, shape = QUESTION.unpack_from(content)
        batch[server][shape] = content[QUESTION.size :]
        flags = socket.MSG_DONTWAIT
    return batch


class _Closing(Protocol):
    def close(self) -> None: ...


_S = TypeVar("_S", bound=_Closing)
_T = TypeVar("_T")


class _LazyConnection(Generic[_S]):
    """A connection to one server, opened at the first question and again after failures."""

    def __init__(
        self, account: Account, peer: Peer, view: str, connect: Callable[[Account], _S]
    ) -> None:
        self._account, self._peer, self._view, self._connect = account, peer, view, connect
        self._source: _S | None = None
        self._failed_s = -_RETRY_S

    def ask(self, question: Callable[[_S], _T], nothing: _T) -> tuple[_T, str]:
        """Returns the answer, or `nothing` and the reason; no reason within `_RETRY_S` of a
        failure."""
        if time.monotonic() - self._failed_s < _RETRY_S:
            return nothing, ""
        try:
            if self._source is None:
                self._source = self._connect(self._account)
            return question(self._source), ""
        except QjouleError as error:
            words = str(error)
        except Exception as error:  # each driver has its own classes
            words = self._peer.refused or without_password(error, self._account)
            words = f"{self._view} cannot be read: {words}"
        self._failed_s = time.monotonic()
        if self._source is not None:
            with suppress(Exception):
                self._source.close()
            self._source = None
        return nothing, words


class _Source:
    """Answers questions about texts and names of one server."""

    def __init__(
        self, server: QueriedServer, accounts: Mapping[str, Account], peers: Peers, why: str
    ) -> None:
        self._why = why
        self._texts: _LazyConnection[TextSource] | None = None
        self._names: _LazyConnection[NamesSource] | None = None
        if why:
            return
        kind, names, port, process = server.kind, server.names, server.port, server.process
        try:
            account = account_for(accounts, server.label, server.flavour, process.uid)
            peer = peers.add(account.host, port, process)
        except QjouleError as error:
            self._why = str(error)
            return
        account = replace(account, host=peer.address, process=process.pid)
        if kind:
            self._texts = _LazyConnection(account, peer, kind.view, lambda a: kind.connect(a, port))
        if names:
            self._names = _LazyConnection(
                account, peer, names.view, lambda a: names.connect(a, port)
            )

    def answers(self, number: int, questions: dict[int, bytes]) -> Iterator[bytes]:
        """Yields the messages that answer these questions."""
        names = questions.pop(NAMES, None) is not None
        if questions:
            yield from self._text_answers(number, questions)
        if names:
            yield from self._name_answers(number)

    def _text_answers(self, number: int, questions: Mapping[int, bytes]) -> Iterator[bytes]:
        texts: Mapping[bytes, Text] = {}
        why = self._why
        if not why and self._texts is not None:
            keys = list(questions.values())
            texts, why = self._texts.ask(lambda source: source.texts(keys), texts)
        yield from _reason(number, why)
        for shape, key in questions.items():
            text = texts.get(key, _NO_TEXT)
            yield ANSWER.pack(number, shape, text.length) + text.start[:TEXT_BYTES]

    def _name_answers(self, number: int) -> Iterator[bytes]:
        names: list[NamedConnection] = []
        why = self._why
        if not why and self._names is not None:
            (names, unseen), why = self._names.ask(_all_names, (names, ""))
            why = why or unseen
        yield from _reason(number, why)
        head = ANSWER.pack(number, NAMES, 0)
        for connection in names:
            fields = [field.replace("\0", "")[:_FIELD_CHARACTERS] for field in connection]
            yield head + "\0".join(fields).encode("utf-8", "replace")
        yield head


def _all_names(source: NamesSource) -> tuple[list[NamedConnection], str]:
    names = list(islice(source.names(), CONNECTIONS_MAX))
    return names, source.unseen


def _reason(number: int, why: str) -> Iterator[bytes]:
    if why:
        yield ANSWER.pack(number, 0, 0) + why.encode()[:_WHY_BYTES_MAX]


def without_password(error: Exception, account: Account) -> str:
    """Returns a driver's message in one line, without the password."""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return words.replace(account.password, "…") if account.password else words
