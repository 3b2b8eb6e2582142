# SPDX-License-Identifier: Apache-2.0
"""The live page: one HTML file that requests snapshots from where it came from, nothing else.

It is for browsers on this machine, so it has no password; `qjoule.metrics.server` refuses names of
strangers. Its own scripts insert what arrives as text, never as markup.
"""

from __future__ import annotations

import secrets
import struct
import time
from importlib.resources import files

from qjoule.metrics.messages import Answer, Request
from qjoule.metrics.shared import SharedBytes
from qjoule.report.page import policy

_REPORT = files("qjoule.report").joinpath("vendor")
_OWN = files("qjoule.metrics").joinpath("static")
_HEAD = struct.Struct("=dd")  #: when it was shown, and when it is stale, by the monotonic clock


class SnapshotBoard(SharedBytes):
    """Passes encoded snapshots (`qjoule.remote.wire`) to the process that listens."""

    def show(self, content: bytes, now_s: float, stale_s: float) -> bool:
        return self.put(_HEAD.pack(now_s, stale_s) + content)


class LivePage:
    """Answers `/` and `/snapshot`."""

    def __init__(self, board: SnapshotBoard) -> None:
        self._board = board
        self._html, self._headers = _page()
        self._start = secrets.token_hex(8)

    def respond(self, request: Request) -> Answer | None:
        """None: it is another path."""
        if request.path not in ("/", "/snapshot"):
            return None
        if request.path == "/":
            return Answer(200, "text/html; charset=utf-8", self._html, self._headers)
        return self._snapshot(request)

    def _snapshot(self, request: Request) -> Answer:
        version, content = self._board.version, self._board.get()
        if content is None:
            return Answer(503, content=b"no interval yet\n")
        shown_s, stale_s = _HEAD.unpack_from(content)
        age_s = time.monotonic() - shown_s
        if age_s > stale_s:
            return Answer(503, content=f"the last interval ended {age_s:.0f} s ago\n".encode())
        tag = f'"{self._start}-{version}"'
        headers = (f"ETag: {tag}",)
        if request.headers.get("if-none-match", "") == tag:
            return Answer(304, headers=headers)
        return Answer(200, "application/json", content[_HEAD.size :], headers)


def _page() -> tuple[bytes, tuple[str, ...]]:
    """The page, and the headers that it needs."""
    plot = _REPORT.joinpath("uPlot-1.6.32.min.js").read_text(encoding="utf-8").strip()
    own = _OWN.joinpath("live.js").read_text(encoding="utf-8").strip()
    style = "\n".join(
        file.read_text(encoding="utf-8")
        for file in (_REPORT.joinpath("uPlot-1.6.32.min.css"), _OWN.joinpath("live.css"))
    ).strip()
    html = _OWN.joinpath("live.html").read_text(encoding="utf-8")
    for name, text in (("STYLE", style), ("PLOT", plot), ("OWN", own)):
        html = html.replace(f"@{name}@", text)
    more = "connect-src 'self'; img-src data:; frame-ancestors 'none'"
    headers = (
        f"Content-Security-Policy: {policy([plot, own], style)}; {more}",
        "Referrer-Policy: no-referrer",
        "X-Frame-Options: DENY",
    )
    return html.encode(), headers
