# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 for a process that listens, with a bound on each thing that a client chooses.

One thread and no files: connections, bytes of a request, time and answers per second are bounded.
Whoever hangs, floods or sends rubbish takes a place for a few seconds, and others wait for one.
Only GET and HEAD, one request for each connection.
"""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field

from qjoule.metrics.messages import Answer, Request, Wrong, head_of, is_whole, request_of

MAX_REQUEST_BYTES = 8192
REQUEST_S, ANSWER_S = 5.0, 10.0
_BACKLOG, _CHUNK, _TICK_S = 64, 1 << 16, 1.0
#: Answers beyond the rate that may come at once.
_BURST_S = 2.0


@dataclass(frozen=True)
class Bounds:
    """What clients may use together."""

    connections: int = 32
    requests_per_second: float = 20.0


class Bucket:
    """A token bucket."""

    def __init__(self, per_second: float) -> None:
        self._rate, self._most = per_second, per_second * _BURST_S
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
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None


class HttpServer:
    """Answers what `respond` says on a listening socket."""

    def __init__(self, listening: socket.socket, bounds: Bounds) -> None:
        listening.setblocking(False)
        self._listening, self._bounds = listening, bounds
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
            if client.answer is None:
                self._answers[408] = self._answers.get(408, 0) + 1
            self._close(client)

    def _go_on(self, client: Client) -> None:
        try:
            self._send(client) if client.answer is not None else self._receive(client)
        except BlockingIOError:
            pass
        except OSError:
            self._close(client)

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            self._clients[connection.fileno()] = Client(connection, time.monotonic() + REQUEST_S)
            self._selector.register(connection, selectors.EVENT_READ)
        self._listen()

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
        with suppress(OSError):
            client.connection.close()
        self._listen()

    def _receive(self, client: Client) -> None:
        content = client.connection.recv(MAX_REQUEST_BYTES + 1 - len(client.request))
        client.request += content
        if not content:
            self._close(client)
        elif len(client.request) > MAX_REQUEST_BYTES:
            self._answer(client, Answer(431, content=b"the request is too long\n"))
        elif is_whole(client.request):
            self._handle(client)

    def _handle(self, client: Client) -> None:
        try:
            request = request_of(bytes(client.request))
        except Wrong as wrong:
            self._answer(client, wrong.answer)
            return
        self._answer(client, self.respond(request), bare=request.bare)

    def _answer(self, client: Client, answer: Answer, *, bare: bool = False) -> None:
        self._answers[answer.code] = self._answers.get(answer.code, 0) + 1
        head = head_of(answer)
        client.answer = memoryview(head if bare else head + answer.content)
        client.until_s = time.monotonic() + ANSWER_S
        self._selector.modify(client.connection, selectors.EVENT_WRITE)
        self._send(client)

    def _send(self, client: Client) -> None:
        assert client.answer is not None
        client.answer = client.answer[client.connection.send(client.answer[:_CHUNK]) :]
        if client.answer:
            return
        with suppress(OSError):
            client.connection.shutdown(socket.SHUT_WR)
        self._close(client)


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
