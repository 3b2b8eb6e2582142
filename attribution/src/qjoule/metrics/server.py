# SPDX-License-Identifier: Apache-2.0
"""The process that listens: answers GET /metrics and /healthz, with a page also / and /snapshot,
with stacks /profile, and /samples if configured. It can do nothing else.

On loopback, `Host` must be an IP address or `localhost`. A stranger's page whose name resolves to
127.0.0.1 (DNS rebinding) can make a browser send requests, but with that name as `Host`.

The live page is one HTML file that requests snapshots from where it came from, nothing else. It is
for browsers on this machine, so it has no password. Its own scripts insert what arrives as text,
never as markup.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from qjoule.metrics import exposition
from qjoule.metrics.exposition import Family, by_label, seconds
from qjoule.metrics.http import Bounds, HttpServer
from qjoule.metrics.messages import Origins, Request, Response
from qjoule.metrics.shared import Board, SnapshotBoard

_PORT = re.compile(r":[0-9]{1,5}\Z")


class MetricsServer(HttpServer):
    """Serves what `board` shows on a listening socket, each page made once per interval.

    `live`: the page for browsers, if configured. `shown`: further documents, by path.
    """

    def __init__(
        self,
        listening: socket.socket,
        board: Board,
        bounds: Bounds,
        live: LivePage | None = None,
        origins: Origins | None = None,
        *,
        shown: Mapping[str, ShownBytes] = MappingProxyType({}),
    ) -> None:
        super().__init__(listening, bounds, origins)
        self._is_loopback = ipaddress.ip_address(listening.getsockname()[0]).is_loopback
        self._board, self._live, self._others = board, live, shown
        self._pages: dict[str, bytes] = {}
        self._version = -1
        self._families: list[Family] = []
        self._shown_s = self._stale_s = 0.0
        self._began_s = time.time()

    def respond(self, request: Request) -> Response:
        host = request.headers.get("host")
        if self._is_loopback and host is not None and not is_local_name(host):
            return Response(403, content=b"on loopback, Host must be an IP address or localhost\n")
        if self._live is not None and (answer := self._live.respond(request)) is not None:
            return answer
        if request.path in self._others:
            return self._others[request.path].respond(request)
        if request.path not in ("/metrics", "/healthz"):
            return Response(404, content=b"there are /metrics and /healthz\n")
        self._refresh()
        if request.path == "/healthz":
            return self._health()
        return self._metrics(request.headers.get("accept", ""))

    def _refresh(self) -> None:
        version = self._board.version
        if version != self._version and (page := self._board.read()) is not None:
            self._shown_s, self._stale_s, self._families = page
            self._version = version
            self._pages.clear()

    def _health(self) -> Response:
        shown_s = self._shown_s if self._families else None
        return _stale_response(shown_s, self._stale_s) or Response(200, content=b"ok\n")

    def _metrics(self, accept: str) -> Response:
        kind = exposition.preferred_format(accept)
        if kind not in self._pages:
            self._pages[kind] = exposition.content([*self._families, self._own_family()], kind)
        return Response(200, kind, self._pages[kind])

    def _own_family(self) -> Family:
        about = "Answers to scrapers until the last interval, by HTTP status."
        answers = {str(code): count for code, count in self._answers.items()}
        created = seconds(self._began_s)
        return by_label("qjoule_http_responses", about, "code", answers, created)


def _stale_response(shown_s: float | None, stale_s: float) -> Response | None:
    """The error if nothing was shown (None) or too long ago by the monotonic clock; else None."""
    if shown_s is None:
        return Response(503, content=b"no interval yet\n")
    age_s = time.monotonic() - shown_s
    if age_s > stale_s:
        return Response(503, content=f"the last interval ended {age_s:.0f} s ago\n".encode())
    return None


def is_local_name(host: str) -> bool:
    """Whether a `Host` header is an IP address or `localhost`, which no DNS server can redirect.

    Any port will do, because `ssh -L` may forward another one.
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
    exposition.content(families, exposition.preferred_format("text/plain;q=0.5"))
    exposition.content(families, exposition.PROTOBUF)
    with suppress(PermissionError):  # a service's own filter may refuse it
        os.nice(5)


class ShownBytes:
    """Serves what a board shows; 304 if the client has it already."""

    def __init__(self, board: SnapshotBoard, kind: str) -> None:
        self._board, self._kind = board, kind
        self._start = os.urandom(8).hex()

    def respond(self, request: Request) -> Response:
        version, document = self._board.version, self._board.read()
        shown_s, stale_s, content = document or (None, 0.0, b"")
        if (unwell := _stale_response(shown_s, stale_s)) is not None:
            return unwell
        tag = f'"{self._start}-{version}"'
        headers = (f"ETag: {tag}",)
        if request.headers.get("if-none-match", "") == tag:
            return Response(304, headers=headers)
        return Response(200, self._kind, content, headers)


class LivePage:
    """Answers `/` and `/snapshot`."""

    def __init__(self, board: SnapshotBoard) -> None:
        self._snapshot = ShownBytes(board, "application/json")
        self._html, self._headers = _page()

    def respond(self, request: Request) -> Response | None:
        """None: it is another path."""
        if request.path not in ("/", "/snapshot"):
            return None
        if request.path == "/":
            return Response(200, "text/html; charset=utf-8", self._html, self._headers)
        return self._snapshot.respond(request)


def _page() -> tuple[bytes, tuple[str, ...]]:
    """The page, and the headers that it needs."""
    from importlib.resources import files  # noqa: PLC0415 (an agent without a page needs neither)

    from qjoule.report.page import policy  # noqa: PLC0415

    report = files("qjoule.report").joinpath("vendor")
    static = files("qjoule.metrics").joinpath("static")
    plot = report.joinpath("uPlot-1.6.32.min.js").read_text(encoding="utf-8").strip()
    own = static.joinpath("live.js").read_text(encoding="utf-8").strip()
    style = "\n".join(
        file.read_text(encoding="utf-8")
        for file in (report.joinpath("uPlot-1.6.32.min.css"), static.joinpath("live.css"))
    ).strip()
    html = static.joinpath("live.html").read_text(encoding="utf-8")
    for name, text in (("STYLE", style), ("PLOT", plot), ("OWN", own)):
        html = html.replace(f"@{name}@", text)
    more = "connect-src 'self'; img-src data:; frame-ancestors 'none'"
    headers = (
        f"Content-Security-Policy: {policy([plot, own], style)}; {more}",
        "Referrer-Policy: no-referrer",
        "X-Frame-Options: DENY",
    )
    return html.encode(), headers
