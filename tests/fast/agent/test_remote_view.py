# SPDX-License-Identifier: Apache-2.0
"""Snapshots from an agent elsewhere: who may see them, and hostile agents and clients."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from fake_attribution import typical
from metrics_pages import snapshots
from qjoule.commands.top import command
from qjoule.errors import QjouleError, UsageError
from qjoule.remote.access import Refused, holder_of, new_token, read_tokens
from qjoule.remote.audit import BURST_S, MAX_BYTES, Audit
from qjoule.remote.client import Connection, address_of
from qjoule.remote.wire import MAX_BYTES as MAX_SNAPSHOT_BYTES
from qjoule.remote.wire import MAX_ROWS, decode, encode
from qjoule.reporters.json_report import document
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.table import render
from qjoule.snapshots import Snapshot

GROUPS = ("server,fingerprint",)
TYPICAL = Snapshot(typical(), typical(), 12.5)


def sent() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(encode(TYPICAL, "mariadb", GROUPS))
    return value


@pytest.mark.parametrize("snapshot", [snapshots(8)[-1], TYPICAL])
def test_received_snapshots_are_those_that_were_sent(snapshot: Snapshot) -> None:
    received, name = decode(encode(snapshot, "mariadb", GROUPS))
    assert (name, received.interval, received.groups) == ("mariadb", snapshot.interval, GROUPS)
    assert (received.elapsed_s, received.ended) == (snapshot.elapsed_s, snapshot.ended)
    errors = [[row.error for row in one.interval.rows] for one in (received, snapshot)]
    assert errors[0] == errors[1]


def changed(path: str, to: Any) -> bytes:
    """A snapshot with another value at a path such as `interval.rows.0.calls`."""
    value = sent()
    *way, last = path.split(".")
    at: Any = value
    for name in way:
        at = at[int(name)] if name.isdigit() else at[name]
    at[last] = to
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "content",
    [
        changed("schema", "qjoule.snapshot/2"),
        changed("interval", []),
        changed("elapsed_s", -1.0),
        changed("name", "x" * 9000),
        changed("interval.trace.start", "yesterday"),
        changed("interval.energy_source.grade", "certain"),
        changed("interval.rows.0.energy_nj", 1),
        changed("interval.rows.0.energy_nj", 10**4000),
        changed("interval.rows.0.calls", -1),
        changed("interval.rows.0.alone", [1.0, -800.0]),
        changed("interval.domains.0.measured_nj", 5),
        changed("interval.domains.0.parts_nj", {}),
        changed("interval.fixed", [sent()["interval"]["fixed"][0]] * MAX_ROWS),
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema":"qjoule.snapshot/1","elapsed_s":NaN}',
        b" " * (MAX_SNAPSHOT_BYTES + 1),
    ],
)
def test_impossible_snapshots_are_refused(content: bytes) -> None:
    with pytest.raises(QjouleError, match=r"is no qjoule\.snapshot/1"):
        decode(content)


def test_texts_of_a_hostile_agent_are_safe_to_show() -> None:
    value = sent()
    value["name"] = "\x1b]0;owned\x07"
    value["interval"]["rows"][0]["shape"] = "\x1b[2J\u202eSELECT\r\n1"
    value["interval"]["rows"][0]["keys"] = {"\x1b[31m": "\x9b5n"}
    value["interval"]["trace"]["host"] = "a\x00b"
    snapshot, name = decode(json.dumps(value).encode())
    state = ViewState(title=name)
    state.accept(snapshot)
    shown = [name, render(snapshot.interval, color=False), *document(snapshot.interval)]
    shown += [line.plain() for line in compose(state, 80, 24)]
    assert not {"\x1b", "\x07", "\x9b", "\x00", "\u202e", "\r"} & set("".join(shown))


NOW = datetime(2026, 11, 23, 23, 30, tzinfo=UTC)
HASH = "0" * 64


def test_a_token_is_valid_until_its_last_day_ends() -> None:
    token, line = new_token("anna", "view,texts", date(2026, 11, 23))
    assert token not in line
    holders = read_tokens("f", f"# tokens\n\n{line}\n")
    holder = holder_of(f"Bearer {token}", holders, NOW)
    assert (holder.name, holder.scopes) == ("anna", frozenset({"view", "texts"}))
    later = datetime(2026, 11, 24, 0, 1, tzinfo=UTC)
    for header, now, why, name in (
        (f"bearer {token}", later, "token expired", "anna"),
        ("", NOW, "no token", ""),
        ("Basic abc", NOW, "no token", ""),
        ("Bearer x", NOW, "wrong token", ""),
        (f"Bearer {HASH}", NOW, "wrong token", ""),
        ("Bearer \xff\udc80", NOW, "wrong token", ""),
    ):
        with pytest.raises(Refused) as refused:
            holder_of(header, holders, now)
        assert (refused.value.why, refused.value.name) == (why, name)
    for content in ("", "a - b", f"a - {HASH[1:]} view", f"a soon {HASH} view", f"a - {HASH} all"):
        with pytest.raises(UsageError):
            read_tokens("f", content)


def test_audit_lines_are_bounded_and_safe() -> None:
    reading, writing = os.pipe()
    audit = Audit(writing)
    for _ in range(50):
        audit.write("refused", path="\x1b[2J\n" + "x" * 10_000)
    os.close(writing)
    with os.fdopen(reading) as file:
        lines = file.read().splitlines()
    assert BURST_S <= len(lines) <= BURST_S + 2
    assert all(len(line) < MAX_BYTES and "\x1b" not in line for line in lines)
    assert all(json.loads(line)["audit"] == "refused" for line in lines)


TOKEN = "t0ken"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n"
Talk = Callable[[socket.socket], None]


@contextmanager
def serving(talk: Talk) -> Iterator[str]:
    """The URL of a server that answers each connection with what `talk` writes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(1 << 16)
            talk(connection)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("first", "piece", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000, "a head without an end"),
        (OK % (MAX_SNAPSHOT_BYTES + 1, b""), b"x" * 65536, "too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"x", "unknown length"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", b"x" * 1000, "what is no HTTP"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://x/\r\n\r\n", b"", "302"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\n\x1b[2J\x1b]0;x", b"", "refused"),
    ],
)
def test_endless_and_foreign_answers_are_refused_in_a_safe_line(
    first: bytes, piece: bytes, words: str
) -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(first)
        while piece:
            connection.sendall(piece)

    for unsafe in ("ftp://db1", "https://db1/path", "https://me:secret@db1", "http://db1"):
        with pytest.raises(UsageError):
            address_of(unsafe)
    with serving(talk) as url, pytest.raises(QjouleError, match=words) as error:
        Connection(address_of(url), TOKEN, None).snapshot()
    assert str(error.value).isprintable() and len(str(error.value)) < 300


def test_top_prints_what_an_agent_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode(TYPICAL, "", GROUPS)

    def talk(connection: socket.socket) -> None:
        connection.sendall(OK % (len(content), b"Connection: close\r\n") + content)

    monkeypatch.setenv("QJOULE_TOKEN", TOKEN)
    with serving(talk) as url:
        words = ["--host", url, "-b", "-n", "2", "--json"]
        done = CliRunner().invoke(command, words, catch_exceptions=False)
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["schema"] for one in printed] == ["qjoule.top/1"] * 2
    assert printed[0]["interval"]["totals_j"]["measured"] > 0
