# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 for a process that listens, with a bound on each thing that a client chooses.

One thread and no files: connections, bytes of a request, time and answers per second are bounded.
Whoever hangs, floods or sends rubbish takes a place for a few seconds, and others wait for one.
Only GET and HEAD, without bodies. TLS is of the standard library.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

MAX_REQUEST_BYTES = 8192
REQUEST_S, ANSWER_S = 5.0, 10.0
#: How long a connection may rest between two requests, if it is kept.
REST_S = 30.0
PLAIN = "text/plain; charset=utf-8"
_BACKLOG, _CHUNK, _TICK_S = 64, 1 << 16, 1.0
#: Answers beyond the rate that may come at once.
_BURST_S = 2.0
_REASONS = {
    200: "OK",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


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


@dataclass(frozen=True)
class Request:
    """Names of headers are in lower case; equal ones are joined by commas."""

    path: str
    headers: Mapping[str, str]
    bare: bool  #: HEAD
    address: str  #: of the client
    certificate: str = ""  #: common name of the client's certificate, which was checked


@dataclass(frozen=True)
class Answer:
    code: int
    kind: str = PLAIN
    content: bytes = b""
    headers: tuple[str, ...] = ()


@dataclass(slots=True)
class Client:
    connection: socket.socket
    until_s: float
    address: str
    shakes_hands: bool = False
    request: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None
    is_kept: bool = False


class HttpServer:
    """Answers what `respond` says on a listening socket.

    `tls`: a context whose files are read already. `keeps`: serves several requests of a connection.
    """

    def __init__(
        self,
        listening: socket.socket,
        bounds: Bounds,
        *,
        tls: ssl.SSLContext | None = None,
        keeps: bool = False,
    ) -> None:
        listening.setblocking(False)
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
        elif b"\r\n\r\n" in client.request or b"\n\n" in client.request:
            self._handle(client)

    def _handle(self, client: Client) -> None:
        text = bytes(client.request).decode("latin-1").replace("\r\n", "\n")
        head, _, beyond = text.partition("\n\n")
        first, *rest = head.split("\n")
        words = first.split(" ")
        client.is_kept = False
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._answer(client, Answer(400, content=b"that is no HTTP request\n"))
        elif words[0] not in ("GET", "HEAD"):
            self._answer(client, Answer(405, content=b"only GET\n"))
        else:
            headers: dict[str, str] = {}
            for name, _, of in (line.partition(":") for line in rest):
                named = name.strip().lower()
                headers[named] = (
                    f"{headers[named]},{of.strip()}" if named in headers else of.strip()
                )
            client.is_kept = (
                self._keeps
                and words[2] == "HTTP/1.1"
                and not beyond  # a body, or a request before its turn
                and headers.get("connection", "").lower() != "close"
            )
            request = Request(
                words[1].partition("?")[0],
                headers,
                words[0] == "HEAD",
                client.address,
                _certified(client.connection),
            )
            self._answer(client, self.respond(request), bare=request.bare)

    def _answer(self, client: Client, answer: Answer, *, bare: bool = False) -> None:
        self._answers[answer.code] = self._answers.get(answer.code, 0) + 1
        lines = [
            f"HTTP/1.1 {answer.code} {_REASONS[answer.code]}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(answer.content)}",
            f"Connection: {'keep-alive' if client.is_kept else 'close'}",
            "X-Content-Type-Options: nosniff",
            "Cache-Control: no-store",
            *answer.headers,
        ]
        head = ("\r\n".join([*lines, "", ""])).encode()
        client.answer = memoryview(head if bare else head + answer.content)
        client.until_s = time.monotonic() + ANSWER_S
        self._selector.modify(client.connection, selectors.EVENT_WRITE)
        self._send(client)

    def _send(self, client: Client) -> None:
        assert client.answer is not None
        client.answer = client.answer[client.connection.send(client.answer[:_CHUNK]) :]
        if client.answer:
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
