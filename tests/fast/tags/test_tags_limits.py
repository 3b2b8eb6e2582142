# SPDX-License-Identifier: Apache-2.0
"""Many applications, some of them malicious: nobody is prevented from being heard."""

from __future__ import annotations

import mmap
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import numpy as np
import pytest

from other_user import NOBODY, SOMEBODY, other_user
from qjoule.tags import application, calls, connection_limiter
from qjoule.tags.joins import Ends
from qjoule.tags.tagging import TagSource
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel
from tag_source import (
    HELLO,
    Everyone,
    HandMade,
    ask,
    call,
    empty_ring,
    greet,
    header,
    honest,
    memfd,
    new_peer,
)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def _silent(path: Path, number: int) -> list[socket.socket]:
    """Opens that many connections, as far as they are accepted, and sends nothing."""
    connections: list[socket.socket] = []
    with suppress(OSError):
        while len(connections) < number:
            connections.append(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            )
            connections[-1].connect(str(path))
    return connections


# ---- descriptors ------------------------------------------------------------------------------


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Limits the descriptors to the number that a shell allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_the_limit_of_descriptors_is_raised() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert connection_limiter.limit() == min(connection_limiter.MAX_PROCESSES, (hard - 256) // 2)


@pytest.mark.parametrize("hard", [16, 200, 600])
def test_descriptors_are_kept_for_the_recorder(hard: int) -> None:
    """In a separate process, because a lowered limit stays lowered."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            most = connection_limiter.limit()
            assert most >= 1 and 2 * most <= hard - min(256, hard // 2)
            status = 0
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_silent_connections_of_one_process_are_bounded(path: Path) -> None:
    with closing(TagSource(path, owners=Everyone())) as source:
        source.poll()
        before = _descriptors()
        clients = _silent(path, 100)
        source.poll()
        # One descriptor for each of ours, and the recorder's end of those it keeps.
        connections_kept = _descriptors() - before - len(clients)
        assert connections_kept == connection_limiter.MAX_OF_PROCESS
        assert source._listener.refused == 100 - connections_kept
        for client in clients:
            client.close()


def test_a_connection_that_does_not_greet_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "GREETING_NS", 0)
    with closing(TagSource(path, owners=Everyone())) as source:
        (client,) = _silent(path, 1)
        source.poll()
        with client:
            client.setblocking(True)
            assert client.recv(1) == b""
        assert source._listener.refused == 1


# ---- arbitrary content ------------------------------------------------------------------------


def test_hostile_greetings_are_refused_and_leave_no_descriptor(path: Path) -> None:
    with closing(TagSource(path, owners=Everyone())) as source:
        before = _descriptors()
        clients = [
            greet(path, HELLO, []),
            greet(path, b"GET / HTTP/1.1", []),
            greet(path, HELLO, [memfd(b"")]),
            greet(path, HELLO, [memfd(b"short")]),
            greet(path, HELLO, [memfd(header()[:4095])]),
            greet(path, HELLO, [empty_ring() for _ in range(3)]),
            greet(path, HELLO, [os.open("/dev/null", os.O_RDONLY) for _ in range(30)]),
            greet(path, b"x" * 4000, [memfd(b"")]),
        ]
        (silent,) = _silent(path, 1)
        for _ in range(3):
            honest(path, source)
        assert source._listener.refused == len(clients)
        for client in [*clients, silent]:
            client.close()
        source.poll()
        source.poll()
        assert _descriptors() <= before


def test_records_of_any_content_end_nothing(path: Path) -> None:
    """Nobody else's tags are lost because of them."""
    random = np.random.default_rng(7)
    numbers = np.array([0, 1, 2, 3, 5, 6, 7, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1], "u8")
    of = {"db.system.name": "x", "network.transport": "unix", "client.inode": 9}
    with closing(TagSource(path, owners=Everyone())) as source:
        for _ in range(30):
            slots = random.choice(numbers, (2048, 8))
            slots[:, 6] = random.choice(numbers[:7], 2048)
            slots[:, 7] = np.arange(1, 2049)
            if random.random() < 0.5:
                slots[random.integers(2048), 7] = random.choice(numbers)
            client = HandMade(path)
            client.memory[4096:] = slots.tobytes()
            client.memory[64:256] = random.choice(numbers, 24).tobytes()
            with client.socket:
                for number in range(1, 8):
                    client.define("connection", number, of)
                client.define("tags", 3, {"m": "x"})
                source.poll()
                source.reported({}, everything=True)
        honest(path, source)


def test_processes_that_come_and_go_leave_nothing(path: Path) -> None:
    """With or without a call that is accepted."""
    with closing(TagSource(path, owners=Everyone())) as source:
        for turn in range(200):
            if turn % 2:
                with greet(path, HELLO, [empty_ring()]):
                    source.poll()
            else:
                with closing(Channel(str(path))) as channel:
                    call(channel, new_peer(), "x")
                source.poll()
        # As for a query that began long after all of them.
        one_query = np.zeros(1, np.int64)
        later_ns = one_query + time.monotonic_ns() + 60_000_000_000
        for _ in range(2):
            source.tags_of([None], one_query, one_query, later_ns)
        claims = source._calls
        assert max(len(claims._users), len(claims._parted), len(claims._applications)) <= 2
        assert len(source._listener._by_descriptor) == 0


# ---- users with more than the others ----------------------------------------------------------


@pytest.mark.root
def test_the_biggest_user_makes_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "MAX_PROCESSES", 10)

    def work() -> tuple[None, object]:
        return None, [greet(path, HELLO, [empty_ring()]) for _ in range(10)]

    with closing(TagSource(path)) as source, other_user(NOBODY, work):
        source.poll()
        listener = source._listener
        assert [client.uid for client in listener._applications] == [NOBODY] * 10
        with ExitStack() as stack:
            # An equal number of each: then nobody has more than the other.
            for _ in range(7):
                stack.enter_context(greet(path, HELLO, [empty_ring()]))
                source.poll()
            uids = sorted(client.uid for client in listener._applications)
            assert uids == [os.geteuid()] * 5 + [NOBODY] * 5
            # The first ones to connect have stayed.
            numbers = [client.number for client in listener._applications if client.uid == NOBODY]
            assert sorted(numbers) == [1, 2, 3, 4, 5]


@pytest.mark.root
def test_the_biggest_user_s_definitions_are_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limiter, "MAX_DEFINED", 200_000)

    def work() -> tuple[None, object]:
        # Each process sends less than the honest one, but together they send more.
        clients = [HandMade(path) for _ in range(6)]
        for client in clients:
            for number in range(1, 6):
                client.define("tags", number, {f"k{n}": "x" * 250 for n in range(28)})
        return None, clients

    with closing(TagSource(path)) as source, closing(Channel(str(path))) as channel:
        peer = new_peer()
        for number in range(100):
            with tag(m=f"{number}", **{f"k{n}": "y" * 250 for n in range(3)}):
                channel.begin(peer)
        source.poll()
        with other_user(NOBODY, work):
            source.poll()
            connected = list(source._listener._applications)
            assert os.geteuid() in {listed.uid for listed in connected}
            assert (
                sum(listed.definitions.bytes for listed in connected)
                <= connection_limiter.MAX_DEFINED
            )
            assert source._listener.refused > 0
            assert ask(source, call(channel, new_peer(), "still")) == ["still"]


@pytest.mark.root
@pytest.mark.parametrize(("limit", "most"), [("MAX_CALLS", 1000), ("MAX_TAG_CHARACTERS", 20_000)])
def test_the_biggest_user_s_calls_are_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """2,000 calls with 100 different tags: as many as a socket holds."""
    monkeypatch.setattr(calls, limit, most)
    with closing(TagSource(path)) as source, closing(Channel(str(path))) as channel:
        time_ns = call(channel, new_peer(), "first")
        source.poll()

        def work() -> tuple[None, object]:
            pair = socket.socketpair()
            inode = os.fstat(pair[0].fileno()).st_ino
            client = HandMade(path)
            of = {"db.system.name": "x", "network.transport": "unix", "client.inode": inode}
            client.define("connection", 1, of)
            for number in range(1, 101):
                client.define("tags", number, {"m": f"{number}".ljust(200)})
            now_ns = time.monotonic_ns()
            for number in range(1, 2001):
                client.record(number, now_ns, 1, number % 100 + 1)
            return None, (pair, client)

        with other_user(NOBODY, work):
            source.poll()
            assert source.unverified == 0
            assert 0 < source._calls.dropped <= 2000
            assert ask(source, time_ns) == ["first"]


def test_the_biggest_user_s_ends_are_forgotten() -> None:
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


def _with_full_rings(path: Path) -> Callable[[], tuple[None, object]]:
    def work() -> tuple[None, object]:
        clients = []
        for _ in range(connection_limiter.MAX_OF_PROCESS):
            ring = empty_ring(65536)
            memory = mmap.mmap(ring, 0)
            slots = np.frombuffer(memory, "u8", offset=4096).reshape(65536, 8)
            slots[:, 7] = np.arange(1, 65537)
            slots[:, 6] = 1
            clients.append((memory, greet(path, HELLO, [ring])))
        return None, clients

    return work


@pytest.mark.root
def test_a_user_whose_rings_are_always_full_gets_a_share_of_the_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that wrote more than can be read in it is dropped."""
    monkeypatch.setattr("qjoule.tags.listener.WHOLE_TURN_NS", 0)
    with (
        closing(TagSource(path)) as source,
        other_user(NOBODY, _with_full_rings(path)),
        other_user(SOMEBODY, lambda: (None, greet(path, HELLO, [empty_ring()]))),
    ):
        source.poll()
        by_user = [client.uid for client in source._listener._applications]
        assert by_user.count(NOBODY) == 1 and by_user.count(SOMEBODY) == 1
        honest(path, source)
