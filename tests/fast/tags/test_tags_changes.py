# SPDX-License-Identifier: Apache-2.0
"""A reported state is joined to queries until another is reported, and no longer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags.tagging import TagSource
from qjoule_drivers import channel as channel_module
from qjoule_drivers import set_trace
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.ring import SLOTS
from tag_changes import ask, call, follow, new_peer, records
from tag_owners import Everyone


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone())) as found:
        yield found


@pytest.fixture
def channel(
    tmp_path: Path, source: TagSource, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Channel]:
    found = Channel(str(tmp_path / "tags.sock"))
    monkeypatch.setattr(channel_module, "channel", found)
    follow(source, found)
    yield found
    found.close()


def test_one_record_says_it_of_all_calls_that_follow(source: TagSource, channel: Channel) -> None:
    peer = new_peer()
    before = time.monotonic_ns()
    times = [call(channel, peer, m) for m in "aaabba"]
    assert records(channel) == 3
    assert ask(source, before, *times) == [None, *"aaabba"]
    assert ask(source, times[-1] + 60_000_000_000) == ["a"]  # until something else is reported
    assert ask(source, times[-1], of=1) == [None]
    assert source.lost == 0


def test_a_call_without_tags_and_another_trace_are_changes(
    source: TagSource, channel: Channel
) -> None:
    peer = new_peer()
    times = [call(channel, peer, "a")]
    channel.begin(peer)
    times.append(time.monotonic_ns())
    assert ask(source, *times) == ["a", "none"]
    for span in (1, 1, 2):
        set_trace((bytes(15) + b"\1", bytes(7) + bytes([span])))
        channel.begin(peer)
    set_trace(None)
    assert records(channel) == 4


def test_each_stream_of_a_connection_is_told_when_it_changes(
    source: TagSource, channel: Channel
) -> None:
    peer = new_peer()
    calls = (("a", 1), ("b", 2), ("a", 1), ("b", 1))
    times = [call(channel, peer, m, stream) for m, stream in calls]
    assert records(channel) == 3
    assert ask(source, *times, stream=1) == ["a", "a", "a", "b"]
    assert ask(source, *times, stream=2) == [None, "b", "b", "b"]


def test_a_connection_that_is_closed_leaves_nothing_to_the_next_on_its_port(
    source: TagSource, channel: Channel
) -> None:
    peer = new_peer()
    plain = call(channel, peer, "a")
    stream = call(channel, peer, "a", stream=7)
    del peer
    after = time.monotonic_ns()
    assert ask(source, plain, after) == ["a", None]
    assert ask(source, stream, after, stream=7) == ["a", None]
    next_one = new_peer()
    again = call(channel, next_one, "b")
    assert ask(source, plain, after, again) == ["a", None, "b"]


def test_a_process_that_is_gone_leaves_nothing(source: TagSource, channel: Channel) -> None:
    peer = new_peer()
    during = call(channel, peer, "a")
    channel.close()  # as the kernel does at its end
    source.poll()
    source.poll()
    assert ask(source, during, time.monotonic_ns()) == ["a", None]


def test_where_a_change_could_not_be_told_nothing_holds(
    source: TagSource, channel: Channel
) -> None:
    peer, other = new_peer(0), new_peer(1)
    before = call(channel, peer, "a")
    source.poll()  # from then on something may be missing
    for number in range(SLOTS):
        call(channel, other, str(number % 2))
    lost = call(channel, peer, "b")
    assert ask(source, before, lost) == ["a", None]
    assert source.lost > 0
    assert ask(source, call(channel, peer, "b")) == ["b"]
    assert ask(source, call(channel, other, "c"), of=1) == ["c"]
    # The same tags as before the gap are reported again.
    assert ask(source, before, lost, call(channel, peer, "b")) == ["a", None, "b"]


def test_calls_that_the_shims_do_not_see_any_more(source: TagSource, channel: Channel) -> None:
    peer = new_peer()
    told = call(channel, peer, "a")
    source.poll()
    channel.interrupt()
    unseen = time.monotonic_ns()
    assert ask(source, told, unseen) == ["a", None]
    assert ask(source, call(channel, peer, "a")) == ["a"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("call", "call", "call", "unseen", "close", "poll", "interrupt")),
            st.integers(0, 3),
            st.sampled_from("ab"),
        ),
        max_size=60,
    )
)
def test_no_query_has_the_tags_of_another(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str]]
) -> None:
    """With calls, strangers on reused ports, and recorders that read at any time."""
    path = tmp_path_factory.mktemp("s") / "tags.sock"
    with (
        closing(TagSource(path, owners=Everyone())) as source,
        pytest.MonkeyPatch.context() as patch,
    ):
        channel = Channel(str(path))
        patch.setattr(channel_module, "channel", channel)
        follow(source, channel)
        peers: dict[int, Peer] = {}
        expected: list[tuple[int, int, str | None]] = []
        for step, number, m in steps:
            if step == "call":
                begin = call(channel, peers.setdefault(number, new_peer(number)), m)
                expected.append((number, begin, m))
            elif step == "close" or (step == "unseen" and number in peers):
                peers.pop(number, None)
            elif step == "unseen":
                expected.append((number, time.monotonic_ns(), None))
            elif step == "interrupt":
                channel.interrupt()
            else:
                source.poll()
        may_be_unknown = any(step == "interrupt" for step, *_ in steps)
        for number, begin, m_ in expected:
            (found,) = ask(source, begin, of=number)
            assert found == m_ or (found is None and may_be_unknown)
        channel.close()


def test_the_end_of_a_connection_of_many_requests_is_one_record(
    source: TagSource, channel: Channel
) -> None:
    """Whatever their number: reporting it repeatedly must not keep the recorder busy."""
    peer = new_peer()
    for stream in range(200):
        told = call(channel, peer, "a", stream)
    source.poll()
    held = source._calls._held
    for _ in range(100):
        channel.over(peer)
    source.poll()
    assert source._calls._held <= held + 100
    assert ask(source, told, time.monotonic_ns(), stream=199) == ["a", None]


def test_what_is_over_stays_so_when_its_end_is_forgotten(
    source: TagSource, channel: Channel
) -> None:
    peer, other = new_peer(0), new_peer(1)
    told = call(channel, peer, "a", stream=3)
    kept = call(channel, other, "b")
    channel.over(peer)
    later = time.monotonic_ns() + 60_000_000_000
    for begin in (told, later, later + 1, later + 2):
        assert ask(source, begin, stream=3) == ["a" if begin == told else None]
        assert ask(source, max(begin, kept), of=1) == ["b"]
    assert [len(rows) for rows in (source._calls._calls, source._calls._new)] == [1, 0]
