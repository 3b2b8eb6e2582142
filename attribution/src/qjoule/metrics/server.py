# SPDX-License-Identifier: Apache-2.0
"""The process that listens: answers GET /metrics and /healthz, and with a page / and /snapshot. It
can do nothing else.

On loopback only an IP address or `localhost` is answered as `Host`. A browser lets a page of a
stranger whose name leads to 127.0.0.1 (DNS rebinding) ask, but then that name is in `Host`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from qjoule.metrics import exposition, protobuf
from qjoule.metrics.families import Family, Sample, seconds
from qjoule.metrics.http import Bounds, HttpServer
from qjoule.metrics.messages import Answer, Origins, Request
from qjoule.metrics.shared import Board

if TYPE_CHECKING:
    from qjoule.metrics.live_page import LivePage


_PORT = re.compile(r":[0-9]{1,5}\Z")


class MetricsServer(HttpServer):
    """Serves what `board` shows on a listening socket, each page made once per interval.

    `live`: for browsers, if that is wanted.
    """

    def __init__(
        self,
        listening: socket.socket,
        board: Board,
        bounds: Bounds,
        live: LivePage | None = None,
        origins: Origins | None = None,
    ) -> None:
        super().__init__(listening, bounds, origins)
        self._is_loopback = ipaddress.ip_address(listening.getsockname()[0]).is_loopback
        self._board, self._live = board, live
        self._pages: dict[str, bytes] = {}
        self._version = -1
        self._families: list[Family] = []
        self._shown_s = self._stale_s = 0.0
        self._began_s = time.time()

    def respond(self, request: Request) -> Answer:
        host = request.headers.get("host")
        if self._is_loopback and host is not None and not is_no_strangers(host):
            return Answer(403, content=b"on loopback, Host must be an IP address or localhost\n")
        if self._live is not None and (answer := self._live.respond(request)) is not None:
            return answer
        if request.path not in ("/metrics", "/healthz"):
            return Answer(404, content=b"there are /metrics and /healthz\n")
        self._refresh()
        if request.path == "/healthz":
            return self._health()
        return self._metrics(request.headers.get("accept", ""))

    def _refresh(self) -> None:
        version = self._board.version
        if version != self._version and (shown := self._board.read()) is not None:
            self._shown_s, self._stale_s, self._families = shown
            self._version = version
            self._pages.clear()

    def _health(self) -> Answer:
        age_s = time.monotonic() - self._shown_s
        if not self._families:
            return Answer(503, content=b"no interval yet\n")
        if age_s > self._stale_s:
            return Answer(503, content=f"the last interval ended {age_s:.0f} s ago\n".encode())
        return Answer(200, content=b"ok\n")

    def _metrics(self, accept: str) -> Answer:
        kind = exposition.wanted(accept)
        if kind not in self._pages:
            self._pages[kind] = exposition.content([*self._families, self._own()], kind)
        return Answer(200, kind, self._pages[kind])

    def _own(self) -> Family:
        created = seconds(self._began_s)
        samples = [
            Sample((("code", str(code)),), str(count), created)
            for code, count in sorted(self._answers.items())
        ]
        about = "Answers to scrapers until the last interval, by HTTP status."
        return Family("qjoule_http_responses", "counter", about, samples=samples)


def is_no_strangers(host: str) -> bool:
    """Whether no DNS server decides where a name leads, as `Host` has it: with any port, because
    `ssh -L` may forward another one.
    """
    name = _PORT.sub("", host).lower()
    if name == "localhost":
        return True
    try:
        bare = name[1:-1] if name[:1] + name[-1:] == "[]" else name
        return (ipaddress.ip_address(bare).version == 6) == (bare != name)
    except ValueError:
        return False


def warm_up(families: Iterable[Family]) -> None:
    """Runs what a request needs, so that nothing is imported later, when no file can be opened."""
    exposition.content(families, exposition.wanted("text/plain;q=0.5"))
    exposition.content(families, protobuf.PROTOBUF)
    with suppress(PermissionError):  # a service's own filter may refuse it
        os.nice(5)
