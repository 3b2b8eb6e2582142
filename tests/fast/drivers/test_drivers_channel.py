# SPDX-License-Identifier: Apache-2.0
"""The ring and the channel: what arrives, and what happens if the reader is absent or too slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule_drivers import channel as channel_module
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.ring import MARGIN, OK, SLOTS, Recorder, Ring
from qjoule_drivers.shims.shim import find_peer
from tag_listener import Listener, listening, settle


def _peer(name: str = "x") -> Peer:
    return Peer({"db.system.name": name})


def _in_threads(
    count: int, work: Callable[[int], None], meanwhile: Callable[[], None] = lambda: None
) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join()


# ---- calls ------------------------------------------------------------------------------------


def test_calls_arrive_with_their_tags(listener: Listener, channel: Channel) -> None:
    peer = _peer()
    for _ in range(2):
        with tag(endpoint="checkout"):
            first = channel.begin(peer)
            channel.end(peer, first, OK)
    second = channel.begin(peer, stream=8)
    process = listener.only()
    assert process.pid == os.getpid()
    checkout = {"endpoint": "checkout"}
    assert [begin.tags for begin in process.begins] == [checkout, checkout, {}]
    assert [begin.stream for begin in process.begins] == [0, 0, 8]
    assert all(begin.connection == {"db.system.name": "x"} for begin in process.begins)
    assert process.ends.keys() == {first - 1, first}
    assert process.ends[first][0] >= process.begins[1].t_ns
    assert process.begins[2].number == second
    assert (len(process.tags), len(process.connections)) == (1, 1)  # each is defined once


def test_a_connection_keeps_nothing_of_the_application_alive(
    listener: Listener, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)

    class Tenant:
        pass

    peer, tenant = _peer(), Tenant()
    settle(listener, channel)
    with tag(tenant=tenant):
        channel.begin(peer)
    tenant_ref = weakref.ref(tenant)
    del tenant
    assert peer.frame is not None
    assert tenant_ref() is None


def test_a_long_call_ends_in_a_record_of_its_own(listener: Listener, channel: Channel) -> None:
    peer = _peer()
    long = channel.begin(peer)
    for _ in range(SLOTS // 4 + 10):
        channel.begin(peer)
    channel.end(peer, long, OK)
    process = listener.only()
    assert long in process.ends
    assert len(process.begins) == SLOTS // 4 + 11


def test_no_thread_and_no_descriptor_is_left(listener: Listener, channel: Channel) -> None:
    threads = threading.active_count()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    channel.begin(_peer())
    assert threading.active_count() == threads
    listener.accept()
    channel.close()
    listener.processes.pop().connected.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1


@given(st.lists(st.integers(0, 3), max_size=300))
def test_begins_and_ends_in_any_order_are_each_in_the_ring(steps: list[int]) -> None:
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
    slots = [memory[4096 + n * 64 : 4160 + n * 64] for n in range(begins + 1)]
    numbers = [int.from_bytes(slot[56:64], "little") for slot in slots]
    assert numbers == [*range(1, begins + 1), 0]
    assert sum(1 for slot in slots[:-1] if any(slot[24:32])) == ended


# ---- losses -----------------------------------------------------------------------------------


def test_a_full_ring_drops_and_counts(listener: Listener, channel: Channel) -> None:
    peer = _peer()
    written = [channel.begin(peer) for _ in range(SLOTS + 100)]
    assert sum(1 for number in written if number) == SLOTS - MARGIN
    process = listener.only()
    assert process.dropped == 100 + MARGIN
    assert len(process.begins) == SLOTS - MARGIN
    assert channel.begin(peer)
    assert len(listener.only().begins) == SLOTS - MARGIN + 1


def test_a_full_socket_drops_definitions(listener: Listener, channel: Channel) -> None:
    peer = _peer()
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


def test_an_exception_is_kept_from_the_application_and_counted(
    listener: Listener, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = _peer()
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
    assert find_peer(object(), lambda _: _peer()) is None
    assert channel.begin(None) == 0


# ---- recorders that come and go ---------------------------------------------------------------


def test_each_recorder_that_comes_after_a_killed_one_is_told_everything(
    tmp_path: Path, channel: Channel
) -> None:
    peer = _peer()
    assert channel.begin(peer) == 0
    channel.end(peer, 5, OK)
    assert not list(tmp_path.iterdir())
    for turn in range(3):
        with listening(tmp_path / "tags.sock") as listener:
            channel.to.until_ns = 0
            with tag(turn=str(turn)):
                channel.begin(_peer("another"))
            with tag(shared="1"):
                assert channel.begin(peer)
            begins = listener.only().begins
            assert [begin.tags for begin in begins] == [{"turn": str(turn)}, {"shared": "1"}]
            assert begins[1].connection == {"db.system.name": "x"}
        channel.to.until_ns = 0
        assert not channel.begin(peer)
        assert channel._recorder is None


def test_a_recorder_that_closes_the_ring_is_left(listener: Listener, channel: Channel) -> None:
    channel.begin(_peer())
    listener.only().close_ring()
    listener.server.close()
    channel.to.until_ns = 0
    assert not channel.begin(_peer())
    assert channel._recorder is None


def test_a_call_in_a_signal_handler_while_a_recorder_is_met_is_counted(
    listener: Listener, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_between: list[int] = []

    def interrupted(path: str) -> Recorder:
        in_between.append(channel.begin(_peer("handler")))
        return Recorder(path)

    monkeypatch.setattr(channel_module, "Recorder", interrupted)
    assert channel.begin(_peer())
    assert in_between == [0]
    process = listener.only()
    assert (len(process.begins), process.dropped) == (1, 1)


# ---- threads, signals and processes -----------------------------------------------------------


def test_first_calls_of_threads_come_at_once(listener: Listener) -> None:
    for _ in range(20):
        channel, start, calls = Channel(str(listener.path)), threading.Barrier(16), list[int]()

        def work(
            number: int,
            channel: Channel = channel,
            start: threading.Barrier = start,
            calls: list[int] = calls,
        ) -> None:
            peer = _peer(str(number))
            start.wait()
            calls.append(channel.begin(peer))

        _in_threads(16, work)
        assert sorted(calls) == list(range(1, 17))
        channel.close()


def test_a_signal_handler_that_queries(listener: Listener, channel: Channel) -> None:
    peer, other = _peer("main"), _peer("handler")
    channel.begin(peer)
    from_handler: list[int] = []

    def handler(*_: object) -> None:
        from_handler.append(channel.begin(other))  # one step: handlers interrupt each other

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        written = sum(1 for _ in range(4000) if channel.begin(peer))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    names = [begin.connection["db.system.name"] for begin in listener.only().begins]
    assert names.count("main") == written + 1
    assert names.count("handler") == sum(map(bool, from_handler))


def test_a_fork_in_the_middle_of_many_threads_calls(
    listener: Listener, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "channel", channel)
    channel.begin(_peer())
    halfway, shared = threading.Barrier(65), _peer("shared")
    children: list[int] = []

    def work(number: int) -> None:
        peer = _peer(f"t{number}")
        for turn in range(40):
            if turn == 20:
                halfway.wait()  # all of them continue while the process forks
            with tag(thread=f"t{number}"):
                channel.end(peer, channel.begin(peer), OK)
                channel.failed()

    def fork() -> None:
        halfway.wait()
        child = os.fork()
        if not child:
            with tag(thread="child"):
                os._exit(0 if channel.begin(shared) else 1)
        assert os.waitpid(child, 0)[1] == 0
        children.append(child)

    _in_threads(64, work, fork)
    parent, forked = listener.wait_for(2)
    listener.wait_until_gone(forked)
    assert [parent.pid, forked.pid] == [os.getpid(), *children]
    assert [begin.tags["thread"] for begin in forked.begins] == ["child"]
    assert forked.begins[0].connection == {"db.system.name": "shared"}
    begins = parent.begins[1:]
    assert len(begins) == parent.errors == 64 * 40
    assert all(begin.connection["db.system.name"] == begin.tags["thread"] for begin in begins)
    assert (parent.dropped, forked.dropped, forked.errors) == (0, 0, 0)
    assert not parent.ended


def test_an_interpreter_may_shut_down_between_calls(listener: Listener) -> None:
    """Calls of threads that outlive the main one, of exit handlers and of finalizers."""
    code = f"""
        import atexit, threading
        from qjoule_drivers import tag
        from qjoule_drivers.channel import Peer, channel
        channel._path = {str(listener.path)!r}

        class Pool:
            def __init__(self):
                self.peer, self.begin = Peer({{"db.system.name": "late"}}), channel.begin
            def __del__(self):
                self.begin(self.peer)

        def work(started, peer):
            while True:
                channel.begin(peer)
                started.set()

        started = threading.Event()
        for n in range(4):
            peer = Peer({{"db.system.name": f"{{n}}"}})
            threading.Thread(target=work, args=(started, peer), daemon=True).start()
        started.wait()
        pool = Pool()
        atexit.register(channel.begin, Peer({{"db.system.name": "exit"}}))
        """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    (process,) = listener.wait_for(1)
    listener.wait_until_gone(process)
    assert process.errors == 0
    assert process.begins
