# SPDX-License-Identifier: Apache-2.0
"""Many applications, some of them malicious: nobody is prevented from being heard."""

from __future__ import annotations

import json
import mmap
import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from other_user import NOBODY, other_user
from qjoule.tags import application, calls, crowd
from qjoule.tags.ends import Ends
from qjoule.tags.tagging import TagSource
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel
from tag_changes import ask, new_peer
from tag_owners import Everyone, call_in_each, honest
from tag_ring import greet, header, memfd

HELLO = b"qjoule tags 1\n"


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Limits the descriptors to the number that a shell allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _silent(path: Path, number: int) -> list[socket.socket]:
    """Opens that many connections, as far as they are accepted, from a process that sends
    nothing.
    """
    made: list[socket.socket] = []
    with suppress(OSError):
        while len(made) < number:
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            made.append(one)
            one.connect(str(path))
    return made


def test_the_limit_of_descriptors_is_raised(few_descriptors: None) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert crowd.room() == min(crowd.MAX_PROCESSES, (hard - 256) // 2)
    del few_descriptors


@pytest.mark.parametrize("hard", [16, 200, 600])
def test_descriptors_are_kept_for_the_recorder(path: Path, hard: int) -> None:
    """In a separate process, because a lowered limit stays lowered."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            most = crowd.room()
            assert most >= 1 and 2 * most <= hard - min(256, hard // 2)
            status = 0
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    del path


def test_silent_connections_of_one_process(path: Path) -> None:
    with closing(TagSource(path, owners=Everyone())) as source:
        source.poll()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        clients = _silent(path, 100)
        source.poll()
        # One descriptor for each of ours, and the recorder's end of those it keeps.
        kept = len(os.listdir("/proc/self/fd")) - before - len(clients)  # noqa: PTH208
        assert kept == crowd.MAX_OF_PROCESS
        assert source._listener.refused == 100 - kept
        for client in clients:
            client.close()


def test_who_does_not_greet_is_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "GREETING_NS", 0)
    with closing(TagSource(path, owners=Everyone())) as source:
        (client,) = _silent(path, 1)
        source.poll()
        with client:
            client.setblocking(True)
            assert client.recv(1) == b""
        assert source._listener.refused == 1


@pytest.mark.root
def test_a_user_who_takes_all_descriptors(path: Path, few_descriptors: None) -> None:
    with closing(TagSource(path)) as source:
        source.start()

        def work() -> tuple[None, object]:
            resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
            kept = []
            for _ in range(30):
                kept += _silent(path, 60)
                time.sleep(0.01)
            return None, kept

        with other_user(NOBODY, work), ExitStack() as files:
            for _ in range(100):
                files.enter_context(Path(os.devnull).open())
            honest(path, source)
    del few_descriptors


@pytest.mark.root
def test_the_biggest_user_makes_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MAX_PROCESSES", 10)

    def work() -> tuple[None, object]:
        return None, [greet(path, HELLO, [_ring()]) for _ in range(10)]

    with closing(TagSource(path)) as source, other_user(NOBODY, work):
        source.poll()
        listener = source._listener
        assert [one.uid for one in listener._crowd] == [NOBODY] * 10
        with ExitStack() as stack:
            # An equal number of each: then nobody has more than the other.
            for _ in range(7):
                stack.enter_context(greet(path, HELLO, [_ring()]))
                source.poll()
            uids = sorted(one.uid for one in listener._crowd)
            assert uids == [os.geteuid()] * 5 + [NOBODY] * 5
            # The first one to connect has stayed.
            numbers = [one.number for one in listener._crowd if one.uid == NOBODY]
            assert sorted(numbers) == [1, 2, 3, 4, 5]


@pytest.mark.root
def test_the_biggest_user_s_definitions_are_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "MAX_DEFINED", 200_000)

    def work() -> tuple[None, object]:
        kept = []
        for _ in range(6):  # each sends less than the honest one, but together they send more
            client = greet(path, HELLO, [_ring()])
            for number in range(1, 6):
                of = {f"k{n}": "x" * 250 for n in range(28)}
                client.send(json.dumps({"tags": number, "of": of}).encode())
            kept.append(client)
        return None, kept

    with closing(TagSource(path)) as source, closing(Channel(str(path))) as channel:
        peer = new_peer()
        for number in range(100):
            with tag(m=f"{number}", **{f"k{n}": "y" * 250 for n in range(3)}):
                channel.begin(peer)
        source.poll()
        with other_user(NOBODY, work):
            source.poll()
            users = {one.uid for one in source._listener._crowd}
            assert os.geteuid() in users
            defined = sum(one.definitions.bytes for one in source._listener._crowd)
            assert defined <= crowd.MAX_DEFINED
            assert source._listener.refused > 0
            assert ask(source, call_in_each(channel, "still")) == ["still"]


def test_ends_of_the_biggest_user_are_forgotten() -> None:
    ends = Ends(10)
    assert not ends
    for number in range(4):
        ends.add(1, 1, number, 5)
    for number in range(1000):
        ends.add(2, 2, number, 6)
        ends.add(2, 2, number, 7)
    assert [ends.of(1, 1, number) for number in range(4)] == [5] * 4
    assert [number for number in range(1000) if ends.of(2, 2, number)] == list(range(994, 1000))
    assert ends.of(3, 1, 1) == 0


@pytest.mark.root
@pytest.mark.parametrize("limit", ["MAX_CALLS", "MAX_TAG_CHARACTERS"])
def test_calls_of_the_biggest_user_are_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Calls and tags, as many as there is room for."""
    monkeypatch.setattr(calls, limit, 1000 if limit == "MAX_CALLS" else 20_000)
    with closing(TagSource(path)) as source, closing(Channel(str(path))) as channel:
        time_ns = call_in_each(channel, "first")
        source.poll()

        def work() -> tuple[None, object]:
            client, server = socket.socketpair()
            inode = os.fstat(client.fileno()).st_ino
            of = {"db.system.name": "x", "network.transport": "unix", "client.inode": inode}
            return None, (client, server, _busy(path, of))

        with other_user(NOBODY, work):
            source.poll()
            assert source.unverified == 0
            assert 0 < source._calls.dropped <= 2000
            assert ask(source, time_ns) == ["first"]


def _busy(path: Path, of: dict[str, Any]) -> object:
    """An application with 2,000 calls of 100 different tags: as many as a socket holds."""
    ring = memfd(header() + bytes(2048 * 64))
    memory = mmap.mmap(ring, 0)
    client = greet(path, HELLO, [ring])
    client.send(json.dumps({"connection": 1, "of": of}).encode())
    for number in range(1, 101):
        of = {"m": f"{number}".ljust(200)}
        client.send(json.dumps({"tags": number, "of": of}).encode())
    now = time.monotonic_ns()
    for number in range(1, 2001):
        at = 4096 + (number - 1) * 64 + 24
        who = 1 << 32 | number % 100 + 1
        struct.pack_into("=QQQQQ", memory, at, 0, now, who, 1, number)
    return client


def _ring() -> int:
    return memfd(header() + bytes(2048 * 64))
