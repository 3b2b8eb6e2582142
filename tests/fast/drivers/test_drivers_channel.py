# SPDX-License-Identifier: Apache-2.0
"""The ring and the channel: what arrives, and what happens if the reader is absent or too slow."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule_drivers import set_trace, tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.recorder import Recorder
from qjoule_drivers.ring import MARGIN, OK, SLOTS, Ring
from qjoule_drivers.shims.peer import meet
from tag_listener import Listener, listening


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with listening(tmp_path / "tags.sock") as found:
        yield found


def _peer(name: str = "x") -> Peer:
    return Peer({"db.system.name": name})


def test_calls_arrive_with_their_tags(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    with tag(endpoint="checkout"):
        first = channel.begin(peer)
        channel.end(peer, first, OK)
    second = channel.begin(peer, stream=8)
    process = listener.only()
    assert process.pid == os.getpid()
    assert [begin.tags for begin in process.begins] == [{"endpoint": "checkout"}, {}]
    assert [begin.stream for begin in process.begins] == [0, 8]
    assert all(begin.connection == {"db.system.name": "x"} for begin in process.begins)
    assert process.ends.keys() == {first}
    assert process.ends[first][0] >= process.begins[0].t_ns
    assert process.begins[1].number == second


def test_a_connection_keeps_nothing_of_the_application_alive(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)

    class Tenant:
        pass

    channel, peer, tenant = Channel(str(listener.path)), _peer(), Tenant()
    with tag(tenant=tenant):
        channel.begin(peer)
        listener.only().want_changes()
        channel.check_ns = 0
        channel.begin(peer)
    seen = weakref.ref(tenant)
    del tenant
    assert peer.frame is not None
    assert seen() is None


def test_what_a_stream_carries_is_told_when_it_changes(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    channel.begin(None)
    listener.only().want_changes()
    channel.check_ns = 0
    for endpoint in ("a", "a", "b"):
        for stream in (1, 2, 1, 2):
            with tag(endpoint=endpoint):
                assert channel.begin(peer, stream) == 0
    channel.interrupt()
    with tag(endpoint="b"):
        channel.begin(peer, 1)
        channel.begin(peer, 1)
    told = [(begin.stream, begin.tags["endpoint"]) for begin in listener.only().begins]
    assert told == [(1, "a"), (2, "a"), (1, "b"), (2, "b"), (1, "b")]


def test_a_definition_is_sent_once(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    for _ in range(10):
        with tag(endpoint="same"):
            channel.begin(peer)
    process = listener.only()
    assert list(process.tags.values()) == [{"endpoint": "same"}]
    assert len(process.connections) == 1


def test_the_trace_of_the_request(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    set_trace((bytes(range(16)), bytes(range(8))))
    try:
        channel.begin(peer)
    finally:
        set_trace(None)
    channel.begin(peer)
    first, second = listener.only().begins
    assert (first.trace, first.span) == (bytes(range(16)).hex(), bytes(range(8)).hex())
    assert (second.trace, second.span) == (None, None)


def test_a_long_call_ends_in_a_record_of_its_own(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    long = channel.begin(peer)
    for _ in range(SLOTS // 4 + 10):
        channel.begin(peer)
    channel.end(peer, long, OK)
    process = listener.only()
    assert long in process.ends
    assert len(process.begins) == SLOTS // 4 + 11


def test_nobody_listens(tmp_path: Path) -> None:
    channel, peer = Channel(str(tmp_path / "none.sock")), _peer()
    assert channel.begin(peer) == 0
    channel.end(peer, 5, OK)
    assert not list(tmp_path.iterdir())


def test_a_full_ring_drops_and_counts(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    written = [channel.begin(peer) for _ in range(SLOTS + 100)]
    assert sum(1 for number in written if number) == SLOTS - MARGIN
    process = listener.only()
    assert process.dropped == 100 + MARGIN
    assert len(process.begins) == SLOTS - MARGIN
    assert channel.begin(peer)
    assert len(listener.only().begins) == SLOTS - MARGIN + 1


def test_an_exception_is_kept_from_the_application_and_counted(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    call = channel.begin(peer)
    assert call

    def broken(*_: object) -> int:
        raise RuntimeError

    monkeypatch.setattr(Recorder, "begin", broken)
    monkeypatch.setattr(Recorder, "end", broken)
    assert channel.begin(peer) == 0
    channel.end(peer, call, OK)
    process = listener.only()
    assert (process.errors, process.dropped) == (2, 1)
    # And a connection that cannot be described.
    assert meet(object(), lambda _: _peer()) is None
    assert channel.begin(None) == 0


def test_counts_of_many_threads_at_once(listener: Listener) -> None:
    channel = Channel(str(listener.path))
    channel.begin(_peer())

    def work() -> None:
        for _ in range(500):
            channel.failed()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert listener.only().errors == 8 * 500


def test_a_socket_that_is_full_drops_definitions(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    channel.begin(peer)
    for number in range(5000):
        with tag(id=str(number), padding="x" * 200):
            channel.begin(peer)
    process = listener.only()
    assert process.dropped > 0
    # Each of the others reports that it could not: the connection's earlier tags no longer apply.
    assert [begin.is_defined for begin in process.begins].count(False) == process.dropped
    assert len([begin for begin in process.begins if begin.tags]) + process.dropped == 5000
    assert process.gap_ns == 0


def test_many_threads_at_once(listener: Listener) -> None:
    channel = Channel(str(listener.path))
    channel.begin(_peer())

    def work(name: str) -> None:
        peer = _peer(name)
        with tag(thread=name):
            for _ in range(150):
                channel.end(peer, channel.begin(peer), OK)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    process = listener.only()
    begins = process.begins[1:]
    assert len(begins) == 32 * 150
    assert all(begin.connection["db.system.name"] == begin.tags["thread"] for begin in begins)
    assert process.dropped == process.errors == 0


def test_a_signal_handler_that_queries(listener: Listener) -> None:
    channel, peer, other = Channel(str(listener.path)), _peer("main"), _peer("handler")
    channel.begin(peer)
    told: list[int] = []

    def handler(*_: object) -> None:
        told.append(channel.begin(other))  # one step: handlers interrupt each other

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        written = sum(1 for _ in range(4000) if channel.begin(peer))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    process = listener.only()
    names = [begin.connection["db.system.name"] for begin in process.begins]
    assert (names.count("main"), names.count("handler")) == (written + 1, sum(map(bool, told)))


def test_no_thread_and_no_descriptor_is_left(listener: Listener) -> None:
    threads = threading.active_count()
    channel = Channel(str(listener.path))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    channel.begin(_peer())
    assert threading.active_count() == threads
    listener.accept()
    channel.close()
    listener.processes.pop().connected.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1


@given(st.lists(st.integers(0, 3), max_size=300))
def test_any_order_of_calls_and_readings(steps: list[int]) -> None:
    """Begin, end, read: nothing is lost, doubled or out of order in a ring of minimum size."""
    ring = Ring(2048)
    open_calls: list[int] = []
    ended = 0
    try:
        for t_ns, step in enumerate(steps, 1):
            if step < 2:
                open_calls.append(ring.begin(t_ns, 1, 2, 3, None))
            elif open_calls:
                ring.end(t_ns, open_calls.pop(0), OK)
                ended += 1
    finally:
        memory = ring._memory
        ring.handed_over()
    begins = sum(1 for step in steps if step < 2)
    found = [
        int.from_bytes(memory[4096 + n * 64 + 56 : 4096 + n * 64 + 64], "little")
        for n in range(begins + 1)
    ]
    assert found == [*range(1, begins + 1), 0]
    ends = [
        int.from_bytes(memory[4096 + n * 64 + 24 : 4096 + n * 64 + 32], "little")
        for n in range(begins)
    ]
    assert sum(1 for end in ends if end) == ended
