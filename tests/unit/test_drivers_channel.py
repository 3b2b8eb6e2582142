"""The ring and the channel: what arrives, and what happens when nobody listens, or too slowly."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjoule_drivers import channel as channel_module
from qjoule_drivers import set_trace, tag
from qjoule_drivers.channel import CHECK_CALLS, Channel, Peer
from qjoule_drivers.ring import MARGIN, OK, SLOTS, Ring
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


def test_a_recorder_that_starts_later_is_met(tmp_path: Path) -> None:
    channel, peer = Channel(str(tmp_path / "tags.sock")), _peer()
    assert channel.begin(peer) == 0
    with listening(tmp_path / "tags.sock") as listener:
        channel._next_try_ns = 0
        assert channel.begin(peer)
        assert len(listener.only().begins) == 1


def test_a_full_ring_drops_and_counts(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    written = [channel.begin(peer) for _ in range(SLOTS + 100)]
    assert sum(1 for number in written if number) == SLOTS - MARGIN
    process = listener.only()
    assert process.dropped == 100 + MARGIN
    assert len(process.begins) == SLOTS - MARGIN
    assert channel.begin(peer)
    assert len(listener.only().begins) == SLOTS - MARGIN + 1


def test_a_killed_recorder_is_noticed_and_a_new_one_met(tmp_path: Path) -> None:
    channel, peer = Channel(str(tmp_path / "tags.sock")), _peer()
    with listening(tmp_path / "tags.sock") as listener:
        assert channel.begin(peer)
        listener.only()
    for _ in range(CHECK_CALLS + 1):
        channel.begin(peer)
    assert channel._ring is None
    with listening(tmp_path / "tags.sock") as listener:
        channel._next_try_ns = 0
        with tag(after="1"):
            assert channel.begin(peer)
        (begin,) = listener.only().begins
        assert (begin.tags, begin.connection) == ({"after": "1"}, {"db.system.name": "x"})


def test_a_recorder_that_closes_the_ring(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    channel.begin(peer)
    listener.only().close_ring()
    for _ in range(CHECK_CALLS):
        channel.begin(peer)
    assert channel._ring is None


def test_a_socket_that_is_full_drops_definitions(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    channel.begin(peer)
    for number in range(5000):
        with tag(id=str(number), padding="x" * 200):
            channel.begin(peer)
    process = listener.only()
    assert process.dropped > 0
    tagged = [begin for begin in process.begins if begin.tags]
    assert len(tagged) + process.dropped == 5000
    assert len(process.begins) == 5001


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


def test_threads_whose_first_calls_come_at_once(listener: Listener) -> None:
    for turn in range(20):
        channel = Channel(str(listener.path))
        start = threading.Barrier(16)
        calls: list[int] = []

        def work(channel: Channel, start: threading.Barrier, calls: list[int], name: str) -> None:
            peer = _peer(name)
            start.wait()
            calls.append(channel.begin(peer))

        threads = [
            threading.Thread(target=work, args=(channel, start, calls, f"{turn}.{n}"))
            for n in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(calls) == list(range(1, 17))
        channel.close()


def test_a_signal_handler_that_queries(listener: Listener) -> None:
    channel, peer, other = Channel(str(listener.path)), _peer("main"), _peer("handler")
    channel.begin(peer)
    count = 0

    def handler(*_: object) -> None:
        nonlocal count
        count += bool(channel.begin(other))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        written = sum(1 for _ in range(4000) if channel.begin(peer))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    process = listener.only()
    names = [begin.connection["db.system.name"] for begin in process.begins]
    assert (names.count("main"), names.count("handler")) == (written + 1, count)


def test_a_child_of_fork_meets_the_recorder_itself(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    monkeypatch.setattr(channel_module, "channel", channel)
    with tag(who="parent"):
        channel.begin(peer)
    child = os.fork()
    if not child:
        with tag(who="child"):
            channel.begin(peer)
        os._exit(0)
    os.waitpid(child, 0)
    with tag(who="parent"):
        channel.begin(peer)
    parent, forked = listener.wait_for(2)
    listener.wait_until_gone(forked)
    assert (parent.pid, forked.pid) == (os.getpid(), child)
    assert [begin.tags["who"] for begin in parent.begins] == ["parent", "parent"]
    assert [begin.tags["who"] for begin in forked.begins] == ["child"]
    assert not parent.ended


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


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=300))
def test_any_order_of_calls_and_readings(steps: list[int]) -> None:
    """Begin, end, read: nothing is lost, doubled or out of order in a ring of the least size."""
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
