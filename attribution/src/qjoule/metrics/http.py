# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 for a process that listens, with a bound on each thing that a client chooses.

One thread and no files: connections, bytes of a request, time and answers per second are bounded.
Whoever hangs, floods or sends rubbish takes a place for a few seconds, and others wait for one.
Only GET, HEAD and, where it is wanted, POST, without bodies. TLS is of the standard library.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from qjoule.metrics.messages import Answer, Request, Wrong, head_of, is_whole, request_of

MAX_REQUEST_BYTES = 8192
REQUEST_S, ANSWER_S = 5.0, 10.0
#: How long a connection may rest between two requests, if it is kept.
REST_S = 30.0
_BACKLOG, _CHUNK, _TICK_S = 64, 1 << 16, 1.0
_PIECE = 1 << 18  #: of a file
#: Answers beyond the rate that may come at once.
_BURST_S = 2.0


@dataclass(frozen=True)
class Bounds:
    """What clients may use together. `per_address`: connections of one address; 0: all of them."""

    connections: int = 32
    requests_per_second: float = 20.0
    per_address: int = 0


class Bucket:
    """A token bucket."""

    def __init__(self, per_second: float, burst_s: float = _BURST_S) -> None:
        self._rate, self._most = per_second, per_second * burst_s
        self._left, self._at_s = self._most, time.monotonic()

    def take(self) -> bool:
        """Whether one more is within the rate."""
        now_s = time.monotonic()
        self._left = min(self._most, self._left + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(slots=True)
class Client:
    connection: socket.socket
    until_s: float
    address: str
    shakes_hands: bool = False
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None
    file: tuple[int, int, int] | None = None  #: descriptor, offset and end of what follows
    is_kept: bool = False


class HttpServer:
    """Answers what `respond` says on a listening socket.

    `tls`: a context whose files are read already. `keeps`: serves several requests of a connection.
    `posts`: POST is served, too.
    """

    def __init__(
        self,
        listening: socket.socket,
        bounds: Bounds,
        *,
        tls: ssl.SSLContext | None = None,
        keeps: bool = False,
        posts: bool = False,
    ) -> None:
        listening.setblocking(False)
        self._posts = posts
        self._listening, self._bounds, self._tls, self._keeps = listening, bounds, tls, keeps
        self._selector = selectors.PollSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._accepts = True
        self._clients: dict[int, Client] = {}
        self._answers: dict[int, int] = {}

    def respond(self, request: Request) -> Answer:
        raise NotImplementedError

    def serve(self) -> None:
        """For ever."""
        while True:
            self.step(_TICK_S)

    def step(self, timeout_s: float) -> None:
        """Waits for events, and handles them."""
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listening:
                self._accept()
            elif (client := self._clients.get(key.fd)) is not None:
                self._go_on(client)
        now_s = time.monotonic()
        for client in [one for one in self._clients.values() if one.until_s < now_s]:
            if client.answer is None and (client.request or not client.is_kept):
                self._answers[408] = self._answers.get(408, 0) + 1
            self._close(client)

    def _go_on(self, client: Client) -> None:
        try:
            if client.shakes_hands:
                assert isinstance(client.connection, ssl.SSLSocket)
                client.connection.do_handshake()
                client.shakes_hands = False
                self._selector.modify(client.connection, selectors.EVENT_READ)
            self._send(client) if client.answer is not None else self._receive(client)
        except (BlockingIOError, ssl.SSLWantReadError):
            waits_for = selectors.EVENT_WRITE if client.answer else selectors.EVENT_READ
            self._selector.modify(client.connection, waits_for)
        except ssl.SSLWantWriteError:
            self._selector.modify(client.connection, selectors.EVENT_WRITE)
        except (OSError, ValueError):  # SSLSocket has a ValueError for some broken handshakes
            self._close(client)

    def _accept(self) -> None:
        with suppress(OSError):
            connection, peer = self._listening.accept()
            if not self._has_room(str(peer[0])):
                connection.close()
                return
            connection.setblocking(False)
            client = Client(connection, time.monotonic() + REQUEST_S, str(peer[0]))
            if self._tls is not None:
                client.connection = self._tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
                client.shakes_hands = True
            self._clients[client.connection.fileno()] = client
            self._selector.register(client.connection, selectors.EVENT_READ)
        self._listen()

    def _has_room(self, address: str) -> bool:
        if not self._bounds.per_address:
            return True
        held = Counter(one.address for one in self._clients.values())
        return held[address] < self._bounds.per_address

    def _listen(self) -> None:
        """Takes no further connections while all places are taken."""
        accepts = len(self._clients) < self._bounds.connections
        if accepts != self._accepts:
            self._accepts = accepts
            if accepts:
                self._selector.register(self._listening, selectors.EVENT_READ)
            else:
                self._selector.unregister(self._listening)

    def _close(self, client: Client) -> None:
        number = client.connection.fileno()
        with suppress(KeyError, ValueError):
            self._selector.unregister(client.connection)
        self._clients.pop(number, None)
        if client.file is not None:
            os.close(client.file[0])
            client.file = None
        with suppress(OSError):
            client.connection.close()
        self._listen()

    def _receive(self, client: Client) -> None:
        content = client.connection.recv(MAX_REQUEST_BYTES + 1 - len(client.request))
        if content and client.is_kept and not client.request:
            client.until_s = time.monotonic() + REQUEST_S
        client.request += content
        if not content:
            self._close(client)
        elif len(client.request) > MAX_REQUEST_BYTES:
            client.is_kept = False
            self._answer(client, Answer(431, content=b"the request is too long\n"))
        elif is_whole(client.request):
            self._handle(client)

    def _handle(self, client: Client) -> None:
        client.is_kept = False
        certificate = _certified(client.connection)
        try:
            request, kept = request_of(
                bytes(client.request), client.address, certificate, posts=self._posts
            )
        except Wrong as wrong:
            self._answer(client, wrong.answer)
            return
        client.is_kept = self._keeps and kept
        self._answer(client, self.respond(request), bare=request.bare)

    def _answer(self, client: Client, answer: Answer, *, bare: bool = False) -> None:
        self._answers[answer.code] = self._answers.get(answer.code, 0) + 1
        head = head_of(answer, kept=client.is_kept)
        client.answer = memoryview(head if bare else head + answer.content)
        if answer.file is not None and not bare:
            # Its own descriptor: the file may be put away while it is sent.
            client.file = (os.dup(answer.file[0]), 0, answer.file[1])
        client.until_s = time.monotonic() + ANSWER_S
        self._selector.modify(client.connection, selectors.EVENT_WRITE)
        self._send(client)

    def _send(self, client: Client) -> None:
        assert client.answer is not None
        client.answer = client.answer[client.connection.send(client.answer[:_CHUNK]) :]
        if client.answer or self._has_more(client):
            return
        if client.is_kept:
            client.answer = None
            client.request.clear()
            client.until_s = time.monotonic() + REST_S
            self._selector.modify(client.connection, selectors.EVENT_READ)
            return
        with suppress(OSError):
            client.connection.shutdown(socket.SHUT_WR)
        self._close(client)

    @staticmethod
    def _has_more(client: Client) -> bool:
        """Goes on with the file, if there is one. Each piece of it has a time of its own."""
        if client.file is None:
            return False
        descriptor, offset, end = client.file
        piece = os.pread(descriptor, min(_PIECE, end - offset), offset) if offset < end else b""
        if not piece:
            os.close(descriptor)
            client.file = None
            client.is_kept = client.is_kept and offset >= end  # the file has become shorter
            return False
        client.file = (descriptor, offset + len(piece), end)
        client.answer = memoryview(piece)
        client.until_s = time.monotonic() + ANSWER_S
        return True


def _certified(connection: socket.socket) -> str:
    found: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    if not found:
        return ""
    names = [pair for part in found.get("subject", ()) for pair in part]
    return next((str(of) for name, of in names if name == "commonName"), "") or "(no name)"


def listen_on(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
