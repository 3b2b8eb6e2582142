# SPDX-License-Identifier: Apache-2.0
"""The names (perhaps tags) that Redis clients give their connections, compared with the server's
view. Also: Redis and Valkey of newer suites.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from qjoule.contract import AttachMode
from qjoule.servers.elf import open_executable
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import command_stats
from servers.newer import Release
from tracing import redis_story as day
from tracing.recording import Run, attribute, recording
from tracing.redis_client import RedisClient, RedisError, redis_client, resp
from tracing.releases import is_documented, planned, releases, running

pytestmark = [pytest.mark.root, pytest.mark.server]


def set_name(name: bytes) -> bytes:
    return resp(b"CLIENT", b"SETNAME", name)


MULTI, EXEC, DISCARD, RESET = (resp(word) for word in (b"MULTI", b"EXEC", b"DISCARD", b"RESET"))
FIRST, OTHER = set_name(b"release=1"), set_name(b"release=2")
NAMES_ITSELF = b"return redis.call('client', 'setname', 'release=2')"

#: What a client sends, each at once, and how many commands that is: it waits for that many replies.
SENT: dict[str, list[tuple[bytes, int]]] = {
    "plain": [(FIRST, 1)],
    "renamed": [(FIRST, 1), (OTHER, 1)],
    "by_hello": [(resp(b"HELLO", b"3", b"SETNAME", b"release=1"), 1)],
    "in_a_pipeline": [(FIRST + resp(b"GET", b"x:1") + OTHER + resp(b"GET", b"x:1"), 4)],
    "refused": [(FIRST, 1), (set_name(b"release=2 beta"), 1)],
    "quotes": [(set_name(b"""release="1'"""), 1)],
    "as_long_as_read": [(set_name(b"release=" + b"x" * 248), 1)],
    "taken_back": [(FIRST, 1), (set_name(b""), 1)],
    "reset": [(FIRST, 1), (RESET, 1)],
    "transaction": [(MULTI, 1), (FIRST, 1), (EXEC, 1)],
    "discarded": [(FIRST, 1), (MULTI, 1), (OTHER, 1), (DISCARD, 1)],
    "by_a_script": [(FIRST, 1), (resp(b"EVAL", NAMES_ITSELF, b"0"), 1)],
    "line": [(b"CLIENT SETNAME release=1\r\n", 1)],
}
#: These are not parsed: whatever name the server has, none is known to the tracer.
UNREAD: dict[str, list[tuple[bytes, int]]] = {
    "too_long": [(FIRST, 1), (set_name(b"release=" + b"x" * 249), 1)],
    "escaped": [(b'CLIENT SETNAME "release=\\x31"\r\n', 1)],
}


def _say(client: RedisClient, mark: str, story: list[tuple[bytes, int]]) -> str | None:
    """Sends the story, then GET of a key of this name; returns the server's name for the client."""
    for sent, replies in story:
        client.ask(sent, replies)
    (name,) = client.ask(resp(b"CLIENT", b"GETNAME"))
    client.ask(resp(b"GET", b"%s:1" % mark.encode()))
    assert not isinstance(name, RedisError), name
    return name.decode() if name else None


def _names(run: Run) -> dict[str, str | None]:
    """For each key, the name of the client that sent the command."""
    gets = run.queries[run.queries["text"].str.fullmatch("GET .*:[?]")]
    pairs = zip(gets["text"].str[4:-2], gets["application"], strict=True)
    return {mark: None if pd.isna(name) else str(name) for mark, name in pairs}


def _release(run: Run, mark: str) -> str | None:
    (tags,) = run.having(f"GET {mark}:")["tags"]
    return dict(tags).get("release") if isinstance(tags, list) else None


def _descriptor(client: RedisClient) -> str:
    """The number of the server's descriptor for this connection."""
    (listed,) = client.ask(resp(b"CLIENT", b"INFO"))
    fields: dict[str, str] = dict(word.partition("=")[::2] for word in listed.decode().split())
    return fields["fd"]


def _clients_with_one_descriptor(server: DatabaseServer) -> None:
    with redis_client(server.port) as client:
        _say(client, "former", [(FIRST, 1)])
        former = _descriptor(client)
    deadline = time.monotonic() + 60
    while True:  # the server closes its end when it gets to it
        with redis_client(server.port) as client:
            if _descriptor(client) == former:
                assert _say(client, "later", []) is None
                return
        assert time.monotonic() < deadline


@pytest.mark.beside
def test_every_way_to_a_name(redis: DatabaseServer, tmp_path: Path) -> None:
    expected: dict[str, str | None] = {}
    with redis_client(redis.port) as before:
        before.ask(FIRST)
        with recording(tmp_path / "t", "--pid", str(redis.pid), "--client-tags"):
            assert _say(before, "from_before", []) == "release=1"
            _say(before, "from_now", [(OTHER, 1)])
            for mark, story in {**SENT, **UNREAD}.items():
                with redis_client(redis.port) as client:
                    expected[mark] = _say(client, mark, story)
            _clients_with_one_descriptor(redis)
    assert len(set(expected.values()) - {None}) > 4
    assert all(expected[mark] for mark in UNREAD)
    expected |= dict.fromkeys((*UNREAD, "from_before", "later"))
    expected |= {"from_now": "release=2", "former": "release=1"}
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert _names(run) == expected
    releases = {mark: _release(run, mark) for mark in ("plain", "renamed", "quotes")}
    assert releases == {"plain": "1", "renamed": "2", "quotes": None}
    assert _release(run, "as_long_as_read") == "x" * 248
    _is_attributed(run, tmp_path / "t")


def _is_attributed(run: Run, trace: Path) -> None:
    rows = attribute(trace, "--by", "application,tag:release")["rows"]
    calls = {(row["application"], row["tag:release"]): row["calls"] for row in rows}
    queries = run.queries[run.queries["application"] == "release=2"]
    assert calls["release=2", "2"] == queries["executions"].sum() > 10
    assert calls["release=\"1'", "(none)"] >= 2


# --------------------------------------------------------------------------------------------------
#
# Redis and Valkey of Debian's newer suites: `make test-versions`. Half of the sessions are open
# before tracing begins. `INFO commandstats` is the referee.

COMMANDS, CLIENTS = 4000, 8


@pytest.mark.versions
@pytest.mark.parametrize("release", releases("redis", "valkey"))
@pytest.mark.parametrize("options", [(), ("--io-threads", "3")], ids=["plain", "io-threads"])
def test_every_command_counts(release: Release, options: tuple[str, ...], tmp_path: Path) -> None:
    """In plain text one thread is exact; with reading io-threads, requests are only counted."""
    with running(release, *options) as server:
        plan = planned(server)
        assert is_documented(release), release.version
        assert (plan.server.flavour, plan.server.version) == (release.server, release.version)
        assert open_executable(Path(f"/proc/{server.pid}/exe")).tables == (".dynsym",)
        assert plan.choice.attach_mode is (
            AttachMode.STATISTICAL if options else AttachMode.SOCKET
        ), plan.choice.why
        assert plan.choice.exact is not bool(options)
        clients = [server.connect(tcp=True) for _ in range(CLIENTS)]
        before = command_stats(clients[0])
        with recording(tmp_path / "t", "--pid", str(server.pid), "--ring-mb", "64"):
            for number in range(COMMANDS):
                clients[number % CLIENTS].set(f"early:{number}", 1)
            at_once = day.ask_at_once(server)
            command_options = ("user:__rand_int__:name", "x")
            day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "set", *command_options)
            day.benchmark(server, "-n", str(COMMANDS), "-P", "16", "incr", "hits:42")
            after = command_stats(clients[0])
        for client in clients:
            client.close()
    run, none = Run(tmp_path / "t"), {"calls": 0}
    assert {**run.loss, "task_rate": 0} == {"task_rate": 0}  # of other tests on this machine
    counted = run.executions()
    calls = Counter(
        {name: int(row["calls"] - before.get(name, none)["calls"]) for name, row in after.items()}
    )
    for own_command in ("INFO", "CLIENT SETINFO", "PING"):
        del counted[own_command]
        del calls[own_command.lower().replace(" ", "|")]
    assert counted.total() == calls.total()
    expected = {"SET early:?": COMMANDS, "SET user:?:name": COMMANDS, "INCR hits:?": COMMANDS}
    expected["GET x:?"] = at_once
    assert {text: counted[text] for text in expected} == expected
