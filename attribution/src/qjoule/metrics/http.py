# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 for a process that listens, with a bound on each thing that a client chooses.

One thread and no files: connections, bytes of a request, time and answers per second are bounded.
Each origin (`qjoule.metrics.messages`) has a share of places and answers, so one that hangs, floods
or sends rubbish takes nothing from others. If all places are taken, the connection that has been
idle longest gives way. Only GET and HEAD, one request for each connection.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from qjoule.metrics.messages import (
    Origins,
    Request,
    RequestError,
    Response,
    is_complete,
    parse_request,
    response_head,
)

MAX_REQUEST_BYTES = 8192
REQUEST_S, ANSWER_S = 5.0, 10.0
_BACKLOG, _CHUNK, _TICK_S = 64, 1 << 16, 1.0
#: Answers beyond the rate that may come at once.
_BURST_S = 2.0
#: The largest share of places and answers of one origin.
SHARE = 0.25
#: A client that took nothing of its answer for so long is idle.
_STALLED_S = 2.0
#: Origins whose rate is remembered; the one that asked least recently is forgotten.
_MAX_ORIGINS = 1024


@dataclass(frozen=True)
class Bounds:
    """Bounds of all clients together."""

    connections: int = 32
    requests_per_second: float = 20.0

    @property
    def connections_of_one(self) -> int:
        """Connections of one origin."""
        return max(1, int(self.connections * SHARE))


class Bucket:
    """A token bucket."""

    def __init__(self, per_second: float) -> None:
        self._rate, self._most = per_second, max(1.0, per_second * _BURST_S)
        self._tokens, self._at_s = self._most, time.monotonic()

    def take(self) -> bool:
        """Takes a token. False: there is none, the rate is exceeded."""
        now_s = time.monotonic()
        self._tokens = min(self._most, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Rates:
    """A bucket for all, and one for each origin."""

    def __init__(self, per_second: float) -> None:
        self._all, self._of_one_s = Bucket(per_second), per_second * SHARE
        self._buckets: dict[str, Bucket] = {}  #: the one that asked least recently first

    def take(self, origin: str) -> bool:
        """Whether one more answer is within the rates, of this origin and of all together."""
        bucket = self._buckets.pop(origin, None) or Bucket(self._of_one_s)
        self._buckets[origin] = bucket
        if len(self._buckets) > _MAX_ORIGINS:
            del self._buckets[next(iter(self._buckets))]
        return bucket.take() and self._all.take()


@dataclass(slots=True)
class Client:
    connection: socket.socket
    origin: str
    until_s: float
    moved_s: float  #: time of the accept, or of the last progress of the answer
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None

    def is_idle(self, now_s: float) -> bool:
        return self.answer is None or now_s - self.moved_s > _STALLED_S


class HttpServer:
    """Answers each request on a listening socket with what `respond` returns."""

    def __init__(
        self, listening: socket.socket, bounds: Bounds, origins: Origins | None = None
    ) -> None:
        listening.setblocking(False)
        self._listening, self._bounds = listening, bounds
        self._origins, self._rates = origins or Origins(), Rates(bounds.requests_per_second)
        self._selector = selectors.PollSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._clients: dict[int, Client] = {}
        self._answers: dict[int, int] = {}

    def respond(self, request: Request) -> Response:
        raise NotImplementedError

    def serve(self) -> None:
        while True:
            self.step(_TICK_S)

    def step(self, timeout_s: float) -> None:
        """Waits for events, and handles them."""
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listening:
                self._accept()
            elif (client := self._clients.get(key.fd)) is not None:
                self._on_event(client)
        now_s = time.monotonic()
        for client in [client for client in self._clients.values() if client.until_s < now_s]:
            if client.answer is None:
                self._answers[408] = self._answers.get(408, 0) + 1
            self._close(client)

    def _on_event(self, client: Client) -> None:
        try:
            self._send(client) if client.answer is not None else self._receive(client)
        except BlockingIOError:
            pass
        except OSError:
            self._close(client)

    def _accept(self) -> None:
        """Accepts all waiting connections, so that none keeps others out of the kernel's queue."""
        with suppress(OSError):
            for _ in range(_BACKLOG):
                connection, _ = self._listening.accept()
                self._register(connection)

    def _register(self, connection: socket.socket) -> None:
        """Registers or closes a connection. What it sent is read before others are accepted."""
        try:
            connection.setblocking(False)
            origin = self._origins.of(connection)
        except OSError:
            connection.close()
            return
        now_s = time.monotonic()
        if not self._make_room(origin, now_s):
            connection.close()
            return
        client = Client(connection, origin, now_s + REQUEST_S, now_s)
        self._clients[connection.fileno()] = client
        self._selector.register(connection, selectors.EVENT_READ)
        self._on_event(client)

    def _make_room(self, origin: str, now_s: float) -> bool:
        """Closes the connection that was idle longest if there is no room. False: none is idle."""
        own = [client for client in self._clients.values() if client.origin == origin]
        if len(own) >= self._bounds.connections_of_one:
            return self._close_idle(own, now_s)
        if len(self._clients) >= self._bounds.connections:
            return self._close_idle(self._clients.values(), now_s)
        return True

    def _close_idle(self, clients: Collection[Client], now_s: float) -> bool:
        idle = [client for client in clients if client.is_idle(now_s)]
        if idle:
            self._close(min(idle, key=lambda client: client.moved_s))
        return bool(idle)

    def _close(self, client: Client) -> None:
        number = client.connection.fileno()
        with suppress(KeyError, ValueError):
            self._selector.unregister(client.connection)
        self._clients.pop(number, None)
        with suppress(OSError):
            client.connection.close()

    def _receive(self, client: Client) -> None:
        content = client.connection.recv(MAX_REQUEST_BYTES + 1 - len(client.request))
        client.request += content
        if not content:
            self._close(client)
        elif len(client.request) > MAX_REQUEST_BYTES:
            self._answer(client, Response(431, content=b"the request is too long\n"))
        elif is_complete(client.request):
            self._handle(client)

    def _handle(self, client: Client) -> None:
        try:
            request = parse_request(bytes(client.request))
        except RequestError as wrong:
            self._answer(client, wrong.answer)
            return
        if self._rates.take(client.origin):
            self._answer(client, self.respond(request), bare=request.bare)
        else:
            self._answer(client, Response(429, content=b"too many requests\n"))

    def _answer(self, client: Client, answer: Response, *, bare: bool = False) -> None:
        self._answers[answer.code] = self._answers.get(answer.code, 0) + 1
        head = response_head(answer)
        client.answer = memoryview(head if bare else head + answer.content)
        client.moved_s = time.monotonic()
        client.until_s = client.moved_s + ANSWER_S
        self._selector.modify(client.connection, selectors.EVENT_WRITE)
        self._send(client)

    def _send(self, client: Client) -> None:
        assert client.answer is not None
        client.answer = client.answer[client.connection.send(client.answer[:_CHUNK]) :]
        client.moved_s = time.monotonic()
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
