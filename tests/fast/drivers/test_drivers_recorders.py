# SPDX-License-Identifier: Apache-2.0
"""Recorders that come, go, are killed, and are found by many threads at once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule_drivers import channel as channel_module
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.recorder import Recorder
from tag_listener import Listener, listening


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with listening(tmp_path / "tags.sock") as found:
        yield found


def _peer(name: str = "x") -> Peer:
    return Peer({"db.system.name": name})


def test_a_recorder_that_starts_later_is_met(tmp_path: Path) -> None:
    channel, peer = Channel(str(tmp_path / "tags.sock")), _peer()
    assert channel.begin(peer) == 0
    with listening(tmp_path / "tags.sock") as listener:
        channel.check_ns = 0
        assert channel.begin(peer)
        assert len(listener.only().begins) == 1


def test_a_killed_recorder_is_noticed_and_a_new_one_met(tmp_path: Path) -> None:
    channel, peer = Channel(str(tmp_path / "tags.sock")), _peer()
    with listening(tmp_path / "tags.sock") as listener:
        assert channel.begin(peer)
        listener.only()
    channel.check_ns = 0
    assert not channel.begin(peer)
    assert channel._recorder is None
    with listening(tmp_path / "tags.sock") as listener:
        channel.check_ns = 0
        with tag(after="1"):
            assert channel.begin(peer)
        (begin,) = listener.only().begins
        assert (begin.tags, begin.connection) == ({"after": "1"}, {"db.system.name": "x"})


def test_what_was_announced_to_one_recorder_is_not_taken_for_another_s(tmp_path: Path) -> None:
    """Threads that share a connection and tags, while recorders come and go."""
    channel, peer = Channel(str(tmp_path / "tags.sock")), _peer()
    for turn in range(3):
        with listening(tmp_path / "tags.sock") as listener:
            channel.check_ns = 0
            with tag(turn=str(turn)):
                channel.begin(_peer("another"))
            with tag(shared="1"):
                assert channel.begin(peer)
            begins = listener.only().begins
            assert [begin.tags for begin in begins] == [{"turn": str(turn)}, {"shared": "1"}]
            assert begins[1].connection == {"db.system.name": "x"}


def test_a_call_in_a_signal_handler_that_interrupts_the_meeting_is_counted(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Channel(str(listener.path))
    in_between: list[int] = []

    def interrupted(path: str) -> Recorder:
        in_between.append(channel.begin(_peer("handler")))
        return Recorder(path)

    monkeypatch.setattr(channel_module, "Recorder", interrupted)
    assert channel.begin(_peer())
    assert in_between == [0]
    process = listener.only()
    assert (len(process.begins), process.dropped) == (1, 1)


def test_a_recorder_that_closes_the_ring(listener: Listener) -> None:
    channel, peer = Channel(str(listener.path)), _peer()
    channel.begin(peer)
    listener.only().close_ring()
    listener.server.close()
    channel.check_ns = 0
    assert not channel.begin(peer)
    assert channel._recorder is None


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


def test_a_fork_in_the_middle_of_many_threads_calls(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Channel(str(listener.path))
    monkeypatch.setattr(channel_module, "channel", channel)
    channel.begin(_peer())
    halfway, shared = threading.Barrier(65), _peer("shared")

    def work(name: str) -> None:
        peer = _peer(name)
        for turn in range(40):
            if turn == 20:
                halfway.wait()  # all of them continue while the process forks
            with tag(thread=name):
                channel.begin(peer)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(64)]
    for thread in threads:
        thread.start()
    halfway.wait()
    child = os.fork()
    if not child:
        with tag(thread="child"):
            os._exit(0 if channel.begin(shared) else 1)
    assert os.waitpid(child, 0)[1] == 0
    for thread in threads:
        thread.join()
    parent, forked = listener.wait_for(2)
    listener.wait_until_gone(forked)
    assert [begin.tags["thread"] for begin in forked.begins] == ["child"]
    assert forked.begins[0].connection == {"db.system.name": "shared"}
    begins = listener.processes[0].begins[1:]
    assert len(begins) == 64 * 40
    assert all(begin.connection["db.system.name"] == begin.tags["thread"] for begin in begins)
    assert (parent.dropped, parent.errors, forked.dropped, forked.errors) == (0, 0, 0, 0)


def test_an_interpreter_that_shuts_down_while_it_tells(listener: Listener) -> None:
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
