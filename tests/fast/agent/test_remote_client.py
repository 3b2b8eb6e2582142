# SPDX-License-Identifier: Apache-2.0
"""`top --host` beside servers that are hostile, slow, or no agents."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from click.testing import CliRunner

from fake_attribution import typical
from qjoule.commands.top import command
from qjoule.errors import QjouleError, UsageError
from qjoule.remote import client, source
from qjoule.remote.client import Connection, address_of, checked_token
from qjoule.remote.source import RemoteSource
from qjoule.remote.wire import MAX_BYTES, encode
from qjoule.snapshots import Controls, Snapshot

TOKEN = "t0ken"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n"


class Server:
    """Answers each connection, in plain HTTP, with what `says` writes."""

    def __init__(self, says: Callable[[socket.socket], None]) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        self._says = says
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(1 << 16)
            self._says(connection)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def connection(self) -> Connection:
        return Connection(address_of(self.url), TOKEN, None)


@pytest.fixture
def serving() -> Iterator[Callable[[Callable[[socket.socket], None]], Server]]:
    made: list[Server] = []

    def make(says: Callable[[socket.socket], None]) -> Server:
        made.append(Server(says))
        return made[-1]

    yield make
    for one in made:
        one.listening.close()


Serving = Callable[[Callable[[socket.socket], None]], Server]


def endless(first: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    def says(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(piece)

    return says


@pytest.mark.parametrize(
    ("first", "piece", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000, "a head without an end"),
        (b"", b"\x00" * 1000, "a head without an end"),
        (OK % (MAX_BYTES + 1, b""), b"x" * 65536, "too long"),
        (OK % (10**8, b""), b"x" * 65536, "too long"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", "unknown length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"x", "unknown length"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", b"x" * 1000, "what is no HTTP"),
    ],
)
def test_an_endless_answer_is_refused(
    serving: Serving, first: bytes, piece: bytes, words: str
) -> None:
    with pytest.raises(QjouleError, match=words):
        serving(endless(first, piece)).connection().snapshot()


@pytest.mark.parametrize("first", [b"", OK % (1000, b"")])
def test_an_answer_that_drips_ends_in_time(
    serving: Serving, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.5)

    def says(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    with pytest.raises(ConnectionError, match="no answer in time"):
        serving(says).connection().snapshot()


def test_words_of_a_refusal_are_made_safe(serving: Serving) -> None:
    content = b"\x1b[2J\x1b]0;owned\x07no\r\nno" + b"x" * 5000

    def says(connection: socket.socket) -> None:
        head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(content)
        connection.sendall(head + content)

    with pytest.raises(QjouleError, match="refused") as error:
        serving(says).connection().snapshot()
    assert str(error.value).isprintable() and len(str(error.value)) < 300


def test_a_redirect_is_not_followed(serving: Serving) -> None:
    other = serving(endless(b"", b"x"))

    def says(connection: socket.socket) -> None:
        location = b"Location: %b/\r\n" % other.url.encode()
        connection.sendall(b"HTTP/1.1 302 Found\r\n%bContent-Length: 0\r\n\r\n" % location)

    with pytest.raises(QjouleError, match="302"):
        serving(says).connection().snapshot()
    assert not other.connections


def test_what_is_no_snapshot_ends_the_source(serving: Serving) -> None:
    def says(connection: socket.socket) -> None:
        connection.sendall(OK % (2, b"") + b"{}")

    found = RemoteSource(serving(says).connection(), "x").snapshots(Controls())
    with pytest.raises(QjouleError, match=r"no qjoule\.snapshot/1"):
        next(found)


def test_an_agent_that_goes_away_is_waited_for_but_not_for_ever(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "POLL_S", 0.01)
    monkeypatch.setattr(source, "PATIENCE_S", 0.5)
    attribution = typical()
    content = encode(Snapshot(attribution, attribution, 1.0), "", ("server,fingerprint",))
    turns = iter([True, False, True])

    def says(connection: socket.socket) -> None:
        if next(turns, False):
            connection.sendall(OK % (len(content), b"Connection: close\r\n") + content)

    one = serving(says)
    found = RemoteSource(one.connection(), "x").snapshots(Controls())
    next(found)
    next(found)
    with pytest.raises(QjouleError, match="the connection was closed"):
        next(found)
    gone = RemoteSource(Connection(address_of("http://127.0.0.1:1"), TOKEN, None), "x")
    with pytest.raises(QjouleError, match="refused"):
        next(gone.snapshots(Controls()))


def test_closing_ends_a_read_that_waits(serving: Serving) -> None:
    one = RemoteSource(serving(lambda _: time.sleep(60)).connection(), "x")
    threading.Timer(0.3, one.close).start()
    began_s = time.monotonic()
    assert list(one.snapshots(Controls())) == []
    assert time.monotonic() - began_s < client.ANSWER_S


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("db1", "must be a URL"),
        ("ftp://db1", "must be a URL"),
        ("https://", "must be a URL"),
        ("https://db1:99999", "must be a URL"),
        ("https://[::1", "must be a URL"),
        ("https://db1/path", "must be a URL"),
        ("https://me:secret@db1", "must be a URL"),
        ("http://db1", "only https://"),
        ("http://192.168.1.1:9780", "only https://"),
        ("http://localhost.example", "only https://"),
    ],
)
def test_addresses_are_checked(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        address_of(url)


def test_addresses_are_read() -> None:
    assert address_of("https://[::1]:1").name == "[::1]:1"
    assert address_of("https://db1/").name == "db1:9780"
    assert not address_of("http://localhost:5").is_encrypted


@pytest.mark.parametrize("text", ["", "a b", "a\r\nX: y", "\x1b", "é", "a" * 5000])
def test_a_token_is_one_word(text: str) -> None:
    with pytest.raises(UsageError, match="one word"):
        checked_token(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--host https://db1", "needs --token-file"),
        ("--host http://db1 --token-file {token}", "only https://"),
        ("--host https://db1 --by server", "--by is not for --host"),
        ("--host https://db1 -d 5", "--delay is not for --host"),
        ("--host https://db1 --replay x", "--replay is not for --host"),
        ("--host https://db1 --key k", "--key needs --cert"),
        ("--token-file {token}", "are for --host"),
        ("--host https://db1 --token-file {token} --ca /nowhere", "/nowhere: no certificates"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: str, says: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    found = CliRunner().invoke(command, ["-b", *words.format(token=token).split()])
    assert isinstance(found.exception, UsageError)
    assert says in str(found.exception)


def test_top_prints_what_an_agent_sends(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    attribution = typical()
    content = encode(Snapshot(attribution, attribution, 1.0), "", ("server,fingerprint",))
    seen = []

    def says(connection: socket.socket) -> None:
        connection.sendall(OK % (len(content), b"Connection: close\r\n") + content)

    monkeypatch.setenv("QJOULE_TOKEN", TOKEN)
    words = ["--host", serving(says).url, "-b", "-n", "2", "--json"]
    found = CliRunner().invoke(command, words, catch_exceptions=False)
    seen = [json.loads(line) for line in found.stdout.splitlines()]
    assert [one["schema"] for one in seen] == ["qjoule.top/1"] * 2
    assert seen[0]["interval"]["totals_j"]["measured"] > 0
