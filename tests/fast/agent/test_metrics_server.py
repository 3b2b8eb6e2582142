# SPDX-License-Identifier: Apache-2.0
"""The process that listens, beside clients that hang, flood, or send rubbish."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from metrics_pages import samples
from qjoule.metrics import http as module
from qjoule.metrics.board import Board
from qjoule.metrics.exposition import page
from qjoule.metrics.families import Family, Sample
from qjoule.metrics.http import MAX_REQUEST_BYTES, Bounds, listen_on
from qjoule.metrics.live_page import LivePage, SnapshotBoard
from qjoule.metrics.server import MetricsServer

FAMILY = Family("qjoule_test", "counter", "A test.", samples=[Sample((("a", "b"),), "3", "1.000")])


class Serving:
    """A server in a thread, as it is in its process."""

    def __init__(self, bounds: Bounds, live: LivePage | None = None) -> None:
        self.listening = listen_on("127.0.0.1", 0)
        self.address = self.listening.getsockname()
        self.board = Board()
        self.board.show([FAMILY], time.monotonic(), 60.0)
        self.server = MetricsServer(self.listening, self.board, bounds, live)
        self._goes_on = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._goes_on:
            self.server.step(0.02)

    def close(self) -> None:
        self._goes_on = False
        self._thread.join(10)
        self.listening.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, 10)

    def send(self, request: bytes) -> bytes:
        """What it answers; empty if it closes the connection without a word."""
        answer = b""
        with suppress(ConnectionError), self.connect() as connection:
            connection.sendall(request)
            while part := connection.recv(1 << 16):
                answer += part
        return answer

    def get(self, path: str, *headers: str, host: str = "x") -> tuple[int, bytes]:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
        head, _, content = self.send("\r\n".join(lines).encode()).partition(b"\r\n\r\n")
        return int(head.split()[1]), content


@pytest.fixture
def serving() -> Iterator[Serving]:
    found = Serving(Bounds(8, 1000.0))
    yield found
    found.close()


def test_pages_and_health_are_served_and_answers_counted(serving: Serving) -> None:
    code, content = serving.get("/metrics", "Accept: application/openmetrics-text; version=1.0.0")
    assert code == 200 and content.endswith(b"# EOF\n")
    assert samples(content, openmetrics=True)["qjoule_test_total", (("a", "b"),)] == 3
    assert serving.get("/healthz") == (200, b"ok\n")
    serving.board.show([FAMILY], time.monotonic() - 100, 60.0)
    assert serving.get("/healthz")[0] == 503, "it is stale"
    content = serving.get("/metrics")[1]
    assert samples(content)["qjoule_http_responses_total", (("code", "503"),)] == 1


def test_the_live_page_is_for_names_of_this_machine_alone(serving: Serving) -> None:
    assert serving.get("/", host="localhost")[0] == 404, "nobody asked for a page"
    board = SnapshotBoard()
    paged = Serving(Bounds(8, 1000.0), LivePage(board))
    try:
        assert paged.get("/snapshot", host="localhost")[0] == 503, "no interval yet"
        board.show(b"{}", time.monotonic(), 60.0)
        for host in ("localhost:9779", "127.0.0.1:8080", "[::1]:9779", "LOCALHOST"):
            assert paged.get("/snapshot", host=host) == (200, b"{}")
            assert b"</html>" in paged.get("/", host=host)[1]
        for host in ("evil.example:9779", "localhost.evil.example", "127.0.0.1:1@evil", ""):
            assert paged.get("/snapshot", host=host)[0] == paged.get("/", host=host)[0] == 421
        assert paged.get("/snapshot", "Host: evil.example", host="localhost")[0] == 421
        head = paged.send(b"GET /snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n").decode()
        (tag,) = (line[6:] for line in head.splitlines() if line.startswith("ETag: "))
        assert paged.get("/snapshot", f"If-None-Match: {tag}", host="localhost") == (304, b"")
        board.show(b"{}", time.monotonic() - 100, 60.0)
        assert paged.get("/snapshot", host="localhost")[0] == 503, "it is stale"
    finally:
        paged.close()


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"\x00\xff\xfe\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics?x=y HTTP/1.0\n\n", 200),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 200),
        (b"GET " + b"a" * MAX_REQUEST_BYTES + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
def test_rubbish_gets_its_answer(serving: Serving, request_bytes: bytes, code: int) -> None:
    answer = serving.send(request_bytes)
    assert answer == b"" or int(answer.split()[1]) == code
    assert serving.get("/healthz")[0] == 200


def test_those_who_hang_lose_their_place(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_S", 0.3)
    with ExitStack() as stack:
        for _ in range(20):  # more than there are places
            stack.enter_context(serving.connect()).sendall(b"GET /metr")
        assert serving.get("/healthz")[0] == 200


def test_one_who_does_not_read_loses_its_place(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    many = [Sample((("a", f"{n:0100d}"),), "1") for n in range(60_000)]
    serving.board.show([Family("qjoule_test", "gauge", "", samples=many)], time.monotonic(), 60.0)
    with serving.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        deadline = time.monotonic() + 20
        while serving.server._answers.get(200, 0) == 0 or serving.server._clients:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_flood_is_answered_at_its_rate() -> None:
    serving = Serving(Bounds(8, 10.0))
    try:
        codes = [serving.get("/metrics")[0] for _ in range(200)]
    finally:
        serving.close()
    assert set(codes) == {200, 429}
    assert codes[0] == 200
    assert serving.server._answers[429] == codes.count(429)


def test_pages_that_do_not_fit_are_not_shown_and_listeners_cannot_change_the_board() -> None:
    board = Board()
    assert board.read() is None
    board._memory[:16] = b"\xff" * 16  # as a listener could
    assert board.show([FAMILY], 1.0, 2.0)
    many = [Sample((("a", "x" * 1000),), "1")] * 20_000
    assert not board.show([Family("big", "gauge", "", samples=many)], 3.0, 2.0)
    shown = board.read()
    assert shown is not None and shown[:2] == (1.0, 2.0)
    assert page(shown[2], openmetrics=True) == page([FAMILY], openmetrics=True)
