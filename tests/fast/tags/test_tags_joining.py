# SPDX-License-Identifier: Apache-2.0
"""A query has the tags of its call, or those that its connection reported last, and no others."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags.calls import PLAUSIBLE_NS
from qjoule.tags.joins import distinct_pairs
from qjoule.tags.listener import POLL_S, Listener
from qjoule.tags.listening import listen_at
from qjoule.tags.tagging import LOOK_NS, TagSource
from qjoule_drivers import set_trace, tag
from qjoule_drivers.channel import RETRY_NS, Channel, Peer
from qjoule_drivers.ring import OK, SLOTS
from tag_source import NAMES, Everyone, HandMade, ask, call, new_peer, records, tcp_peer
from waiting import until

MINUTE_NS = 60_000_000_000
UNIX = {"db.system.name": "redis", "network.transport": "unix", "client.inode": 77}


def _tags_of(source: TagSource, name: str | None, begins_ns: list[int]) -> list[Any]:
    codes = np.full(len(begins_ns), -1 if name is None else 0, np.int64)
    streams, begins = np.zeros(len(begins_ns), np.int64), np.array(begins_ns, np.int64)
    joined = source.tags_of([name], codes, streams, begins).to_pylist()
    return [None if tags is None else dict(tags) for tags in joined]


# ---- a recorder that asks for each call -------------------------------------------------------


def test_a_query_has_the_tags_of_its_call(source: TagSource, channel: Channel) -> None:
    tcp, unix = tcp_peer(40000, 3306, "::ffff:127.0.0.1"), Peer(UNIX)
    times = [time.monotonic_ns()]
    for name, peer in (("a", tcp), ("b", unix), ("c", tcp)):
        with tag(m=name):
            begun = channel.begin(peer)
        times.append(time.monotonic_ns())
        channel.end(peer, begun, OK)
    after = time.monotonic_ns()
    channel.begin(tcp)
    untagged = time.monotonic_ns()
    assert ask(source, *times, after, untagged) == [None, "a", None, "c", None, "none"]
    assert _tags_of(source, "unix 77", times) == [None, None, {"m": "b"}, None]
    assert _tags_of(source, None, times[:1]) == [None]
    assert _tags_of(source, "unix 78", times) == [None] * 4
    assert ask(source) == []
    assert (source.applications, source.lost) == (1, 0)


def test_an_application_that_looked_before_is_heard_at_once(
    tmp_path: Path, channel: Channel
) -> None:
    peer = new_peer()
    assert channel.begin(peer) == 0  # nobody listens yet, and it does not check again for a while
    with closing(TagSource(tmp_path / "tags.sock")) as source:
        source.start()
        assert ask(source, call(channel, peer, "first")) == ["first"]
    assert RETRY_NS <= LOOK_NS


def test_the_trace_is_a_tag(source: TagSource, channel: Channel) -> None:
    set_trace((bytes(15) + b"\1", bytes(7) + b"\2"))
    try:
        began_ns = call(channel, new_peer(), "x")
    finally:
        set_trace(None)
    expected = {"m": "x", "span": f"{2:016x}", "trace": f"{1:032x}"}
    assert _tags_of(source, NAMES[0], [began_ns]) == [expected]


def test_calls_and_ends_outlive_their_slots_and_their_process(
    source: TagSource, channel: Channel
) -> None:
    long, peer = Peer(UNIX), new_peer()
    with tag(m="long"):
        long_call = channel.begin(long)
    inside = time.monotonic_ns()
    source.poll()
    channel.end(long, long_call, OK)
    after = time.monotonic_ns()
    times = []
    for number in range(2 * SLOTS):
        with tag(m=str(number % 100)):
            begun = channel.begin(peer)
        times.append(time.monotonic_ns())
        channel.end(peer, begun, OK)
        if number % 1000 == 0:
            source.poll()
    source.poll()
    channel.close()
    source.poll()
    source.poll()
    assert _tags_of(source, "unix 77", [inside, after]) == [{"m": "long"}, None]
    assert ask(source, *times) == [str(number % 100) for number in range(2 * SLOTS)]
    assert ask(source, time.monotonic_ns()) == [None]
    assert source.lost == 0


def test_records_that_name_nothing_are_not_believed(source: TagSource, tmp_path: Path) -> None:
    client = HandMade(tmp_path / "tags.sock")
    client.define("connection", 1, dict(new_peer().of))
    now = time.monotonic_ns()
    client.record(1, now, 9, 0)
    client.record(2, (now - 2 * PLAUSIBLE_NS) % (1 << 64), 1, 0)
    client.record(3, now + (1 << 62), 1, 0)
    client.record(4, (1 << 64) - 1, 1, 0)
    client.record(5, now, 1, 9)
    # The connection of the last record is known, but neither its tags nor its earlier calls are.
    assert ask(source, time.monotonic_ns()) == [None]
    assert source.lost == 5
    client.socket.close()


# ---- a recorder that asks for changes ---------------------------------------------------------


def test_one_record_covers_all_calls_that_follow(source: TagSource, following: Channel) -> None:
    peer = new_peer()
    before = time.monotonic_ns()
    times = [call(following, peer, m) for m in "aaabba"]
    assert records(following) == 3
    assert ask(source, before, *times) == [None, *"aaabba"]
    assert ask(source, times[-1] + MINUTE_NS) == ["a"]  # until something else is reported
    assert ask(source, times[-1], connection=1) == [None]
    following.begin(peer)
    assert ask(source, time.monotonic_ns()) == ["none"]
    for span in (1, 1, 2):
        set_trace((bytes(15) + b"\1", bytes(7) + bytes([span])))
        following.begin(peer)
    set_trace(None)
    assert (records(following), source.lost) == (6, 0)


def test_a_closed_connection_leaves_nothing_to_the_next_on_its_port(
    source: TagSource, following: Channel
) -> None:
    peer = new_peer()
    plain, stream = call(following, peer, "a"), call(following, peer, "a", stream=7)
    del peer
    after = time.monotonic_ns()
    assert ask(source, plain, after) == ["a", None]
    assert ask(source, stream, after, stream=7) == ["a", None]
    next_one = new_peer()
    again = call(following, next_one, "b")
    assert ask(source, plain, after, again) == ["a", None, "b"]
    later = time.monotonic_ns() + MINUTE_NS  # when even the record of its end is forgotten
    for begin in (later, later + 1, later + 2):
        assert ask(source, begin, stream=7) == [None]
        assert ask(source, begin) == ["b"]
    assert [len(rows) for rows in (source._calls._calls, source._calls._new)] == [1, 0]
    following.close()  # as the kernel does at the process's end
    source.poll()
    source.poll()
    assert ask(source, later + 3) == [None]


def test_the_end_of_a_connection_of_many_streams_is_one_record(
    source: TagSource, following: Channel
) -> None:
    """Reporting it repeatedly must not keep the recorder busy."""
    peer = new_peer()
    for stream in range(200):
        began_ns = call(following, peer, "a", stream)
    source.poll()
    held = source._calls._call_count
    for _ in range(100):
        following.over(peer)
    source.poll()
    assert source._calls._call_count <= held + 100
    assert ask(source, began_ns, time.monotonic_ns(), stream=199) == ["a", None]


@given(
    st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 3) | st.integers(0, 65535)), max_size=40)
)
def test_distinct_pairs_keep_their_places(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    distinct = distinct_pairs(a, b)
    assert [pair for _, pair in distinct] == sorted(set(pairs))
    for where, pair in distinct:
        assert where.tolist() == [at for at, other in enumerate(pairs) if other == pair]


# ---- the listener's threads -------------------------------------------------------------------


def test_the_thread_takes_turns_only_for_applications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn would cost the traced machine some time, fifty times a second."""
    turns: list[str] = []
    turn = Listener._take_turn

    def counted(self: Listener, *arguments: Any, **options: Any) -> Any:
        turns.append(threading.current_thread().name)
        return turn(self, *arguments, **options)

    monkeypatch.setattr(Listener, "_take_turn", counted)
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone())) as source:
        source._listener._accept()  # nobody is there
        source.start()
        time.sleep(5 * POLL_S)
        assert not turns
        channel, peer = Channel(str(tmp_path / "tags.sock")), new_peer()
        call(channel, peer, "1")
        source._listener._accept()  # in this thread
        until(lambda: turns.count("qjoule-tags") > 3 and source.applications == 1)
        channel.close()
        until(lambda: not source._listener._applications)


def test_threads_that_poll_at_once_take_each_record_once(tmp_path: Path) -> None:
    taken: list[int] = []

    class Taker:
        def has_room(self, _application: Any) -> bool:
            return True

        def take(self, _application: Any, batch: Any, _now_ns: int) -> None:
            taken.extend(batch["number"].tolist())

        def wants_calls(self, _application: Any) -> bool:
            return False

        def disconnected(self, _application: Any, _now_ns: int) -> None:
            pass

    with Listener(listen_at(tmp_path / "tags.sock"), Taker(), Everyone()) as listener:
        listener.start()
        channel, peer = Channel(str(tmp_path / "tags.sock")), new_peer()
        others = [threading.Thread(target=listener.poll) for _ in range(4)]
        for thread in others:
            thread.start()
        for number in range(5000):
            call(channel, peer, str(number % 2))
        for thread in others:
            thread.join()
        listener.poll()
        assert taken == list(range(1, 5001))
        channel.close()
