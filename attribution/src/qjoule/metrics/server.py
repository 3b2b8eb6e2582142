# SPDX-License-Identifier: Apache-2.0
"""The process that listens: answers GET /metrics and /healthz, and can do nothing else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from qjoule.metrics import exposition, protobuf
from qjoule.metrics.board import Board
from qjoule.metrics.families import Family, Sample, seconds
from qjoule.metrics.http import Bounds, Bucket, HttpServer
from qjoule.metrics.messages import Answer, Request


class Pages:
    """The pages that `board` shows, each made once per interval."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._pages: dict[tuple[str, str], bytes] = {}
        self._version = -1
        self._families: list[Family] = []
        self._shown_s = self._stale_s = 0.0

    def refresh(self) -> None:
        version = self._board.version
        if version != self._version and (found := self._board.read()) is not None:
            self._shown_s, self._stale_s, self._families = found
            self._version = version
            self._pages.clear()

    def health(self) -> Answer:
        age_s = time.monotonic() - self._shown_s
        if not self._families:
            return Answer(503, content=b"no interval yet\n")
        if age_s > self._stale_s:
            return Answer(503, content=f"the last interval ended {age_s:.0f} s ago\n".encode())
        return Answer(200, content=b"ok\n")

    def metrics(self, accept: str, more: Sequence[Family], without: str = "") -> Answer:
        """`without`: a label that is left out."""
        kind = exposition.wanted(accept)
        key = kind, without
        if key not in self._pages:
            families = [*self._families, *more]
            if without:
                families = [_without(one, without) for one in families]
            self._pages[key] = exposition.content(families, kind)
        return Answer(200, kind, self._pages[key])


class MetricsServer(HttpServer):
    """Serves what `board` shows on a listening socket."""

    def __init__(self, listening: socket.socket, board: Board, bounds: Bounds) -> None:
        super().__init__(listening, bounds)
        self._pages = Pages(board)
        self._bucket = Bucket(bounds.requests_per_second)
        self._began_s = time.time()

    def respond(self, request: Request) -> Answer:
        if not self._bucket.take():
            return Answer(429, content=b"too many requests\n")
        if request.path not in ("/metrics", "/healthz"):
            return Answer(404, content=b"there are /metrics and /healthz\n")
        self._pages.refresh()
        if request.path == "/healthz":
            return self._pages.health()
        return self._pages.metrics(request.headers.get("accept", ""), [self._own()])

    def _own(self) -> Family:
        created = seconds(self._began_s)
        samples = [
            Sample((("code", str(code)),), str(count), created)
            for code, count in sorted(self._answers.items())
        ]
        about = "Answers to scrapers until the last interval, by HTTP status."
        return Family("qjoule_http_responses", "counter", about, samples=samples)


def _without(family: Family, label: str) -> Family:
    samples = [
        replace(one, labels=tuple(pair for pair in one.labels if pair[0] != label))
        for one in family.samples
    ]
    return replace(family, samples=samples)


def warm_up(families: Iterable[Family]) -> None:
    """Runs what a request needs, so that nothing is imported later, when no file can be opened."""
    exposition.content(families, exposition.wanted("text/plain;q=0.5"))
    exposition.content(families, protobuf.PROTOBUF)
    with suppress(PermissionError):  # a service's own filter may refuse it
        os.nice(5)
