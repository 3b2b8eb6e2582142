# SPDX-License-Identifier: Apache-2.0
"""The process that listens, beside clients that hang, flood, or send rubbish."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from metrics_pages import samples
from qjoule.commands.agent_listeners import user_of_sockets
from qjoule.metrics import http as module
from qjoule.metrics.exposition import Family, Sample, page
from qjoule.metrics.http import MAX_REQUEST_BYTES, Bounds, listen_on
from qjoule.metrics.messages import Origins
from qjoule.metrics.server import LivePage, MetricsServer
from qjoule.metrics.shared import BYTES, Board, SnapshotBoard

FAMILY = Family("qjoule_test", "counter", "A test.", samples=[Sample((("a", "b"),), "3", "1.000")])

MANY = [Sample((("a", f"{n:0100d}"),), "1") for n in range(60_000)]
LARGE = Family("qjoule_test", "gauge", "", samples=MANY)  #: more than a connection holds


class OfAddresses(Origins):
    """Each address of loopback is another peer, as addresses of other machines are."""

    def of(self, connection: socket.socket) -> str:
        return str(connection.getpeername()[0])


class Serving:
    """A server in a thread, as it is in its process."""

    def __init__(
        self, bounds: Bounds, live: LivePage | None = None, origins: Origins | None = None
    ) -> None:
        self.listening = listen_on("127.0.0.1", 0)
        self.address = self.listening.getsockname()
        self.board = Board()
        self.board.show([FAMILY], time.monotonic(), 60.0)
        self.server = MetricsServer(self.listening, self.board, bounds, live, origins)
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

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(self.address, 10, (source, 0))

    def send(self, request: bytes, source: str = "127.0.0.1") -> bytes:
        """What it answers; empty if it closes the connection without a word."""
        answer = b""
        with suppress(ConnectionError), self.connect(source) as connection:
            connection.sendall(request)
            while part := connection.recv(1 << 16):
                answer += part
        return answer

    def get(
        self, path: str, *headers: str, host: str = "localhost", source: str = "127.0.0.1"
    ) -> tuple[int, bytes]:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
        head, _, content = self.send("\r\n".join(lines).encode(), source).partition(b"\r\n\r\n")
        return int(head.split()[1]), content


@pytest.fixture
def serving() -> Iterator[Serving]:
    server = Serving(Bounds(8, 1000.0))
    yield server
    server.close()


def test_pages_and_health_are_served_and_answers_counted(serving: Serving) -> None:
    code, content = serving.get("/metrics", "Accept: application/openmetrics-text; version=1.0.0")
    assert code == 200 and content.endswith(b"# EOF\n")
    assert samples(content, openmetrics=True)["qjoule_test_total", (("a", "b"),)] == 3
    assert serving.get("/healthz") == (200, b"ok\n")
    serving.board.show([FAMILY], time.monotonic() - 100, 60.0)
    assert serving.get("/healthz")[0] == 503, "it is stale"
    content = serving.get("/metrics")[1]
    assert samples(content)["qjoule_http_responses_total", (("code", "503"),)] == 1


def test_on_loopback_no_name_of_a_stranger_is_answered(serving: Serving) -> None:
    assert serving.get("/", host="localhost")[0] == 404, "nobody asked for a page"
    board = SnapshotBoard()
    paged = Serving(Bounds(8, 1000.0), LivePage(board))
    try:
        assert paged.get("/snapshot", host="localhost")[0] == 503, "no interval yet"
        board.show(b"{}", time.monotonic(), 60.0)
        for host in ("localhost:9779", "127.0.0.1:8080", "[::1]:9779", "LOCALHOST", "192.0.2.1"):
            assert paged.get("/snapshot", host=host) == (200, b"{}")
            assert b"</html>" in paged.get("/", host=host)[1]
        paths = ("/", "/snapshot", "/metrics", "/healthz")
        strange = ("evil.example:9779", "localhost.evil.example", "127.0.0.1:1@evil", "1.2", "::1")
        for host in (*strange, "", "localhost,evil.example"):
            assert {paged.get(path, host=host)[0] for path in paths} == {403}, host
        assert paged.get("/snapshot", "Host: evil.example", host="localhost")[0] == 403
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
        deadline = time.monotonic() + 20
        while serving.server._clients:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("peers", [1, 40])
def test_silent_connections_keep_nobody_out(peers: int) -> None:
    with (
        closing(Serving(Bounds(32, 1000.0), origins=OfAddresses())) as serving,
        ExitStack() as all_,
    ):
        for number in range(250):
            all_.enter_context(serving.connect(f"127.0.1.{number % peers + 1}"))
        began_s = time.monotonic()
        assert serving.get("/metrics")[0] == serving.get("/healthz")[0] == 200
        assert time.monotonic() - began_s < module.REQUEST_S / 2, "it waited for no time limit"
        assert len(serving.server._clients) <= (9 if peers == 1 else 32)


def test_an_answer_that_is_being_read_does_not_give_way() -> None:
    with closing(Serving(Bounds(4, 1000.0), origins=OfAddresses())) as serving:
        serving.board.show([LARGE], time.monotonic(), 60.0)
        with serving.connect() as reader:
            reader.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert reader.recv(1 << 10)
            assert serving.send(b"GET /healthz HTTP/1.0\r\n\r\n") == b"", "its share is in use"
            assert sum(map(len, iter(lambda: reader.recv(1 << 20), b""))) > 6_000_000


def test_a_flood_is_answered_at_its_rate_and_leaves_answers_for_others() -> None:
    with closing(Serving(Bounds(32, 20.0), origins=OfAddresses())) as serving:
        flood = [serving.get("/metrics", source="127.0.1.1")[0] for _ in range(100)]
        others = [serving.get("/healthz", source=f"127.0.1.{n}")[0] for n in (2, 3)]
    assert flood[0] == 200 and flood.count(200) < 20 and set(flood) == {200, 429}
    assert others == [200, 200]
    assert serving.server._answers[429] == flood.count(429)


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_origin_is_an_address_or_a_network(address: str, origin: str) -> None:
    peer = SimpleNamespace(getpeername=lambda: (address, 9))
    assert Origins().of(cast(socket.socket, peer)) == origin


@pytest.mark.parametrize("listens", ["127.0.0.1", "::"])
def test_on_loopback_an_origin_is_a_user(listens: str) -> None:
    with listen_on(listens, 0) as listening:
        address = ("127.0.0.1", listening.getsockname()[1])
        with socket.create_connection(address, 10, ("127.0.0.9", 0)), listening.accept()[0] as end:
            assert Origins(user_of_sockets()).of(end) == f"user {os.getuid()}"
            assert Origins().of(end) == "loopback"


def test_one_who_does_not_read_loses_its_place(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    serving.board.show([LARGE], time.monotonic(), 60.0)
    with serving.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        deadline = time.monotonic() + 20
        while serving.server._answers.get(200, 0) == 0 or serving.server._clients:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _address(memory: mmap.mmap) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


@pytest.mark.parametrize(("mapping", "signals"), [("_readable", False), ("_writable", True)])
def test_a_listener_cannot_write_what_is_shown(mapping: str, signals: bool) -> None:
    board = Board()
    assert board.show([FAMILY], 1.0, 2.0)
    address, libc = _address(getattr(board, mapping)), ctypes.CDLL(None)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    if not (child := os.fork()):
        refused = libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, both) == -1
        if not refused or signals:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            ctypes.memset(address, 0xFF, 16)
        os._exit(0 if board.read() else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) if signals else status == 0
    shown = board.read()
    assert shown is not None and shown[:2] == (1.0, 2.0)


def test_pages_that_do_not_fit_are_not_shown() -> None:
    board = Board()
    assert board.read() is None
    assert board.show([FAMILY], 1.0, 2.0)
    many = [Sample((("a", "x" * 1000),), "1")] * (BYTES // 1000)
    assert not board.show([Family("big", "gauge", "", samples=many)], 3.0, 2.0)
    shown = board.read()
    assert shown is not None and shown[:2] == (1.0, 2.0)
    assert page(shown[2], openmetrics=True) == page([FAMILY], openmetrics=True)
