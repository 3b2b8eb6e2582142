# SPDX-License-Identifier: Apache-2.0
"""The process that listens for other desks: snapshots, metrics, a page and orders to record.

It has the files read before it is confined. With the engine it shares memory that the engine
writes, and a socket for orders. Only `/`, which holds no data, is for everybody.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from qjoule.metrics.board import Board
from qjoule.metrics.http import Bounds, Bucket, HttpServer
from qjoule.metrics.messages import Answer, Request
from qjoule.metrics.server import Pages
from qjoule.metrics.shared import SharedBytes
from qjoule.remote.access import Holder, Refused, holder_of
from qjoule.remote.audit import Audit
from qjoule.remote.recordings import PATH, SCOPE, Recordings
from qjoule.remote.without_texts import without_texts

JSON = "application/json"
HTML = "text/html; charset=utf-8"
PATHS = ("/", "/snapshot", "/metrics")
_SCOPES = {"/snapshot": "view", "/metrics": "metrics"}
_TEXTS = "text"  #: the label with the statement
_HEAD = struct.Struct("=dd")  #: when it was shown, and when it is stale, by the monotonic clock


class SnapshotBoard(SharedBytes):
    """Passes encoded snapshots to the process that listens."""

    def show(self, content: bytes, now_s: float, stale_s: float) -> bool:
        return self.put(_HEAD.pack(now_s, stale_s) + content)

    def read(self) -> tuple[float, float, bytes] | None:
        """When it was shown, after how long it is stale, and the snapshot."""
        found = self.get()
        return None if found is None else (*_HEAD.unpack_from(found), found[_HEAD.size :])


@dataclass(frozen=True)
class Access:
    """Who may come in. `certified`: everyone whose certificate the client CA signed."""

    holders: tuple[Holder, ...] = ()
    certified: frozenset[str] = frozenset()


class RemoteServer(HttpServer):
    """Serves what two boards show. `page`: the HTML page with its headers, without data."""

    def __init__(
        self,
        listening: socket.socket,
        boards: tuple[SnapshotBoard, Board],
        access: Access,
        audit: Audit,
        bounds: Bounds,
        *,
        page: tuple[bytes, Sequence[str]],
        recordings: Recordings | None = None,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(listening, bounds, tls=tls, keeps=True, posts=True)
        self._recordings = recordings
        self._board, self._access, self._audit, self._now = boards[0], access, audit, now
        self._metrics = Pages(boards[1])
        self._page, self._page_headers = page
        # Who is refused must not take the answers of who is not.
        self._strangers = Bucket(bounds.requests_per_second)
        self._known = Bucket(bounds.requests_per_second)
        self._start = secrets.token_hex(8)
        self._version = 0
        self._shown_s = self._stale_s = 0.0
        self._full = self._bare = b""

    def respond(self, request: Request) -> Answer:
        if request.path == "/" and not request.posts:
            if not self._strangers.take():
                return _too_many()
            return Answer(200, HTML, self._page, tuple(self._page_headers))
        try:
            holder = self._holder(request)
        except Refused as refused:
            return self._refuse(request, refused)
        return self._serve(request, holder) if self._known.take() else _too_many()

    def _serve(self, request: Request, holder: Holder) -> Answer:
        of_recordings = request.path == PATH or request.path.startswith(f"{PATH}/")
        if request.path not in PATHS and not of_recordings:
            return Answer(404, content=b"there are /, /snapshot, /metrics and /recordings\n")
        scope = SCOPE if of_recordings else _SCOPES.get(request.path, "view")
        if scope not in holder.scopes:
            why = f"without the scope {scope}"
            self._audit.write("refused", why=why, name=holder.name, **_about(request))
            return Answer(403, content=f"this token is {why}\n".encode())
        if of_recordings:
            return self._of_recordings(request, holder)
        if request.posts:
            return Answer(405, content=b"only GET\n")
        return self._shown(request, with_texts="texts" in holder.scopes)

    def _of_recordings(self, request: Request, holder: Holder) -> Answer:
        if self._recordings is None:
            return Answer(404, content=b"this agent runs without --recordings\n")
        return self._recordings.respond(request, holder)

    def _shown(self, request: Request, *, with_texts: bool) -> Answer:
        if request.path == "/snapshot":
            return self._snapshot(request, with_texts=with_texts)
        self._metrics.refresh()
        hidden = "" if with_texts else _TEXTS
        return self._metrics.metrics(request.headers.get("accept", ""), (), without=hidden)

    def _holder(self, request: Request) -> Holder:
        """A token counts more than a certificate, so that it is never ignored."""
        authorization = request.headers.get("authorization", "")
        if request.certificate and not authorization:
            return Holder(request.certificate, self._access.certified)
        return holder_of(authorization, self._access.holders, self._now())

    def _refuse(self, request: Request, refused: Refused) -> Answer:
        named = {"name": refused.name} if refused.name else {}
        self._audit.write("refused", why=refused.why, **named, **_about(request))
        if not self._strangers.take():
            return _too_many()
        # The holder of an expired token has shown that it was theirs.
        words = "the token has expired" if refused.name else "a valid token is needed"
        return Answer(401, content=f"{words}\n".encode(), headers=("WWW-Authenticate: Bearer",))

    def _snapshot(self, request: Request, *, with_texts: bool) -> Answer:
        self._refresh()
        if not self._full:
            return Answer(503, content=b"no interval yet\n")
        age_s = time.monotonic() - self._shown_s
        if age_s > self._stale_s:
            return Answer(503, content=f"the last interval ended {age_s:.0f} s ago\n".encode())
        tag = f'"{self._start}-{self._version}-{int(with_texts)}"'
        headers = (f"ETag: {tag}",)
        if request.headers.get("if-none-match", "") == tag:
            return Answer(304, JSON, headers=headers)
        if with_texts:
            return Answer(200, JSON, self._full, headers)
        self._bare = self._bare or without_texts(self._full)
        return Answer(200, JSON, self._bare, headers)

    def _refresh(self) -> None:
        version = self._board.version
        if version != self._version and (found := self._board.read()) is not None:
            self._shown_s, self._stale_s, self._full = found
            self._version, self._bare = version, b""


def warm_up() -> None:
    """Runs what a request needs, so that nothing is imported later, when no file can be opened."""
    without_texts(json.dumps({"interval": {"rows": [], "model": {}}}).encode())


def _about(request: Request) -> dict[str, str]:
    return {"address": request.address, "path": request.path}


def _too_many() -> Answer:
    return Answer(429, content=b"too many requests\n")
