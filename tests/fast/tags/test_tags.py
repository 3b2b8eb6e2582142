# SPDX-License-Identifier: Apache-2.0
"""The recorder's side of the shims: rings, definitions, joins; and hostile applications."""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kept_too import tags_either_way
from qjoule.errors import QjouleError
from qjoule.tags.calls import PLAUSIBLE_NS
from qjoule.tags.listener import POLL_S, Listener
from qjoule.tags.listening import listen_at
from qjoule.tags.tagging import LOOK_NS, TagSource
from qjoule_drivers import set_trace, tag
from qjoule_drivers.channel import RETRY_NS, Channel, Peer
from qjoule_drivers.ring import OK, SLOTS
from tag_owners import Everyone
from tag_ring import greet, header, memfd

TCP = {
    "db.system.name": "mysql",
    "network.transport": "tcp",
    "network.local.address": "127.0.0.1",
    "network.local.port": 51234,
    "server.address": "::ffff:127.0.0.1",
    "server.port": 3306,
}
TCP_NAME = "127.0.0.1 51234 > 127.0.0.1 3306"
UNIX = {"db.system.name": "redis", "network.transport": "unix", "client.inode": 77}
UNIX_NAME = "unix 77"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone())) as found:
        yield found


def _ask(
    source: TagSource, name: str | None, begins_ns: list[int], streams: list[int] | None = None
) -> list[Any]:
    codes = np.full(len(begins_ns), -1 if name is None else 0, np.int64)
    whose = codes, np.array(streams or [0] * len(begins_ns)), np.array(begins_ns, np.int64)
    found = tags_either_way(source, [name], *whose)
    return [None if tags is None else dict(tags) for tags in found]


def test_a_query_has_the_tags_of_its_call(source: TagSource, channel: Channel) -> None:
    tcp, unix = Peer(TCP), Peer(UNIX)
    times = [time.monotonic_ns()]
    for name, peer in (("a", tcp), ("b", unix), ("c", tcp)):
        with tag(m=name):
            call = channel.begin(peer)
        times.append(time.monotonic_ns())
        channel.end(peer, call, OK)
    after = time.monotonic_ns()
    assert _ask(source, TCP_NAME, times) == [None, {"m": "a"}, None, {"m": "c"}]
    assert _ask(source, UNIX_NAME, times) == [None, None, {"m": "b"}, None]
    assert _ask(source, TCP_NAME, [after]) == [None]  # by then it had ended
    assert _ask(source, None, times[:1]) == [None]
    assert _ask(source, "unix 78", times) == [None] * 4
    assert _ask(source, TCP_NAME, []) == []
    assert (source.applications, source.lost) == (1, 0)


def test_a_call_without_tags_is_known_all_the_same(source: TagSource, channel: Channel) -> None:
    channel.begin(Peer(TCP))
    assert _ask(source, TCP_NAME, [time.monotonic_ns()]) == [{}]


def test_who_looked_for_a_recorder_before_it_started_is_heard_at_once(
    tmp_path: Path, channel: Channel
) -> None:
    peer = Peer(TCP)
    assert channel.begin(peer) == 0  # nobody listens yet, and it does not check again for a while
    with closing(TagSource(tmp_path / "tags.sock")) as source:
        source.start()
        with tag(m="first"):
            channel.begin(peer)
        assert _ask(source, TCP_NAME, [time.monotonic_ns()]) == [{"m": "first"}]
    assert RETRY_NS <= LOOK_NS


def test_the_trace_is_a_tag(source: TagSource, channel: Channel) -> None:
    set_trace((bytes(15) + b"\1", bytes(7) + b"\2"))
    try:
        with tag(m="x"):
            channel.begin(Peer(TCP))
    finally:
        set_trace(None)
    (tags,) = _ask(source, TCP_NAME, [time.monotonic_ns()])
    assert tags == {"m": "x", "span": f"{2:016x}", "trace": f"{1:032x}"}


def test_streams_of_one_connection(source: TagSource, channel: Channel) -> None:
    peer = Peer(TCP)
    for stream in (1, 2, 3):
        with tag(m=str(stream)):
            channel.begin(peer, stream)
    now = time.monotonic_ns()
    found = _ask(source, TCP_NAME, [now] * 4, [3, 1, 2, 4])
    assert found == [{"m": "3"}, {"m": "1"}, {"m": "2"}, None]


def test_the_last_call_of_a_connection_is_kept_for_long(
    source: TagSource, channel: Channel
) -> None:
    with tag(m="long"):
        channel.begin(Peer(UNIX))
    for _ in range(3):
        assert _ask(source, UNIX_NAME, [time.monotonic_ns() + 60_000_000_000]) == [{"m": "long"}]


def test_more_calls_than_a_ring_holds(source: TagSource, channel: Channel) -> None:
    peer = Peer(TCP)
    times = []
    for number in range(2 * SLOTS):
        with tag(m=str(number % 100)):
            call = channel.begin(peer)
        times.append(time.monotonic_ns())
        channel.end(peer, call, OK)
        if number % 1000 == 0:
            source.poll()
    found = _ask(source, TCP_NAME, times)
    assert [tags["m"] for tags in found] == [str(number % 100) for number in range(2 * SLOTS)]


def _calls(source: TagSource, channel: Channel, peer: Peer, count: int) -> None:
    for number in range(count):
        channel.end(peer, channel.begin(peer), OK)
        if number % 1000 == 0:
            source.poll()
    source.poll()


def test_ends_are_known_after_their_slots_were_written_again(
    source: TagSource, channel: Channel
) -> None:
    peer, other = Peer(TCP), Peer(UNIX)
    with tag(m="x"):
        call = channel.begin(peer)
    inside = time.monotonic_ns()
    source.poll()
    channel.end(peer, call, OK)
    after = time.monotonic_ns()
    _calls(source, channel, other, 2 * SLOTS)
    assert source.lost == 0
    assert _ask(source, TCP_NAME, [inside, after]) == [{"m": "x"}, None]


def test_ends_are_known_after_the_process_has_gone(source: TagSource, channel: Channel) -> None:
    peer = Peer(TCP)
    with tag(m="x"):
        call = channel.begin(peer)
    inside = time.monotonic_ns()
    channel.end(peer, call, OK)
    channel.close()
    source.poll()
    source.poll()
    assert _ask(source, TCP_NAME, [inside, time.monotonic_ns()]) == [{"m": "x"}, None]


def test_another_recorder_is_left_alone(tmp_path: Path, source: TagSource) -> None:
    with pytest.raises(QjouleError, match="another recorder takes the tags"):
        TagSource(tmp_path / "tags.sock", owners=Everyone())
    source.close()
    TagSource(tmp_path / "tags.sock", owners=Everyone()).close()
    assert not (tmp_path / "tags.sock").exists()


def test_a_dead_recorder_s_socket_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "tags.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(path))
    TagSource(path, owners=Everyone()).close()
    path.write_text("mine")
    with pytest.raises(QjouleError, match="is not a socket"):
        TagSource(path, owners=Everyone())
    assert path.read_text() == "mine"
    with pytest.raises(QjouleError, match="cannot listen for tags"):
        TagSource(tmp_path / "none" / "of" / "these")


def test_every_user_may_connect_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    before = os.umask(0o077)
    try:
        with closing(TagSource(folder / "tags.sock")):
            modes = [oct(path.stat().st_mode & 0o777) for path in (folder, folder / "tags.sock")]
        assert modes == ["0o755", "0o666"]
        folder.chmod(0o711)
        TagSource(folder / "tags.sock").close()
        assert oct(folder.stat().st_mode & 0o777) == "0o711"  # a user chose that
    finally:
        os.umask(before)


# ---- applications that mean no good -------------------------------------------------------------


def test_hostile_greetings(source: TagSource, channel: Channel, tmp_path: Path) -> None:
    path = tmp_path / "tags.sock"
    hello = b"qjoule tags 1\n"
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    clients = [
        greet(path, hello, []),
        greet(path, b"GET / HTTP/1.1", []),
        greet(path, hello, [memfd(b"")]),
        greet(path, hello, [memfd(b"short")]),
        greet(path, hello, [memfd(header()[:4095])]),
        greet(path, hello, [memfd(header() + bytes(2048 * 64)) for _ in range(3)]),
        greet(path, hello, [os.open("/dev/null", os.O_RDONLY) for _ in range(30)]),
        greet(path, b"x" * 4000, [memfd(b"")]),
    ]
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent.connect(str(path))
    with tag(m="honest"):
        channel.begin(Peer(TCP))
    for _ in range(3):
        assert _ask(source, TCP_NAME, [time.monotonic_ns()]) == [{"m": "honest"}]
    assert source._listener.refused == len(clients)
    for client in [*clients, silent]:
        client.close()
    channel.close()
    _ask(source, None, [1])
    _ask(source, None, [1])
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_records_that_name_nothing_are_not_believed(source: TagSource, tmp_path: Path) -> None:
    fd = memfd(header() + bytes(2048 * 64))
    memory = mmap.mmap(fd, 0)
    client = greet(tmp_path / "tags.sock", b"qjoule tags 1\n", [fd])
    client.send(json.dumps({"connection": 1, "of": TCP}).encode())
    now = time.monotonic_ns()
    long_ago = (now - 2 * PLAUSIBLE_NS) % (1 << 64)
    records = [
        (now, 9, 0),
        (long_ago, 1, 0),
        (now + (1 << 62), 1, 0),
        ((1 << 64) - 1, 1, 0),
        (now, 1, 9),
    ]
    for number, (t_ns, connection, tags) in enumerate(records, 1):
        at = 4096 + (number - 1) * 64 + 24
        struct.pack_into("=QQQQQ", memory, at, 0, t_ns, connection << 32 | tags, 1, number)
    # The last process's connection is known, but its tags and its earlier calls are not.
    assert _ask(source, TCP_NAME, [time.monotonic_ns()]) == [None]
    assert source.lost == 5
    client.close()


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_turns_without_applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn would cost the traced machine some time, fifty times a second."""
    turns = []
    turn = Listener._turn

    def counted(self: Listener, *words: Any, **more: Any) -> Any:
        turns.append(threading.current_thread().name)
        return turn(self, *words, **more)

    monkeypatch.setattr(Listener, "_turn", counted)
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone())) as source:
        source.start()
        time.sleep(5 * POLL_S)
        assert not turns
        channel, peer = Channel(str(tmp_path / "tags.sock")), Peer(TCP)
        with tag(m="1"):
            channel.begin(peer)
        _wait_until(lambda: len(turns) > 3)  # it takes turns from now on
        channel.close()
        _wait_until(lambda: not source._listener._crowd)
    assert set(turns) == {"qjoule-tags"}


def test_one_that_another_thread_accepts_gets_turns_too(tmp_path: Path) -> None:
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone())) as source:
        source._listener._accept()  # nobody is there
        source.start()
        channel, peer = Channel(str(tmp_path / "tags.sock")), Peer(TCP)
        with tag(m="1"):
            channel.begin(peer)
        source.poll()
        _wait_until(lambda: source.applications == 1)


def test_polled_by_two_threads_at_once(tmp_path: Path) -> None:
    taken: list[int] = []

    class Taker:
        def has_room(self, _application: Any) -> bool:
            return True

        def take(self, _application: Any, records: Any, _now_ns: int) -> None:
            taken.extend(records["number"].tolist())

        def wants_calls(self, _application: Any) -> bool:
            return False

        def part(self, _application: Any, _now_ns: int) -> None:
            pass

    with Listener(listen_at(tmp_path / "tags.sock"), Taker(), Everyone()) as listener:
        listener.start()
        channel, peer = Channel(str(tmp_path / "tags.sock")), Peer(TCP)
        others = [threading.Thread(target=listener.poll) for _ in range(4)]
        for thread in others:
            thread.start()
        for number in range(5000):
            with tag(m=str(number % 2)):
                channel.begin(peer)
        for thread in others:
            thread.join()
        listener.poll()
        assert taken == list(range(1, 5001))
        channel.close()
