# SPDX-License-Identifier: Apache-2.0
"""What could not be reported, was not read in time, or exceeds the limits.

The affected queries have no tags; all other queries keep theirs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags import application, definitions, waiting
from qjoule.tags.application import Application
from qjoule.tags.tagging import TagSource
from qjoule_drivers import channel as channel_module
from qjoule_drivers.channel import Channel
from qjoule_drivers.recorder import Definition, Recorder
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


def test_queries_without_tags_are_those_that_were_not_told(
    source: TagSource, channel: Channel
) -> None:
    """Also with a recorder that comes late: what was reported before the gap holds up to it."""
    peer, other = new_peer(0), new_peer(1)
    times = [call(channel, other, str(number % 2)) for number in range(SLOTS)]
    during = call(channel, peer, "a")
    told = records(channel)
    assert told < SLOTS
    found = ask(source, *times, of=1)
    assert found == [str(number % 2) if number < told else None for number in range(SLOTS)]
    assert ask(source, during) == [None]
    assert source.lost == SLOTS - told + 1
    # The next gap is a separate one.
    between = [call(channel, other, m) for m in "ab"]
    channel.interrupt()
    after = call(channel, peer, "b")
    assert ask(source, *between, time.monotonic_ns(), of=1) == ["a", "b", None]
    assert ask(source, after) == ["b"]


def test_tags_that_cannot_be_defined_are_one_connection_s_matter(
    source: TagSource, channel: Channel
) -> None:
    peer, other = new_peer(0), new_peer(1)
    before, kept = call(channel, peer, "a"), call(channel, other, "a")
    times = {n: call(channel, peer, f"{n} {'x' * 250}") for n in range(5000)}
    after = time.monotonic_ns()
    found = dict(zip(times, ask(source, *times.values()), strict=True))
    lost = [n for n, m in found.items() if m is None]
    assert lost and len(lost) == source.lost
    assert all(m.split()[0] == str(n) for n, m in found.items() if m is not None)
    assert ask(source, before) == ["a"]
    assert ask(source, kept, after, of=1) == ["a", "a"]
    # It is reported as soon as there is room, without another change.
    last = f"{max(lost)} {'x' * 250}"
    assert ask(source, after, call(channel, peer, last)) == [None, last]


def test_a_join_reads_more_than_one_reading_may_take(
    source: TagSource, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "READING_NS", 0)  # one message
    peer = new_peer()
    times = [call(channel, peer, str(n)) for n in range(50)]
    assert ask(source, *times) == [str(n) for n in range(50)]
    assert source.lost == 0


def test_a_join_that_lasts_keeps_nothing_from_being_read(
    source: TagSource, channel: Channel
) -> None:
    peer = new_peer()
    with source._calls._lock:
        times = [call(channel, peer, m) for m in "ab"]
        for number in range(2 * SLOTS):
            call(channel, peer, str(number % 2))
            if number % 1000 == 0:
                source._listener.poll()
    assert ask(source, *times) == ["a", "b"]
    assert source.lost == 0


def test_what_finds_no_room_stays_in_the_ring(
    source: TagSource, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_RECORDS", 100)
    peer = new_peer()
    times = [call(channel, peer, "ab"[n % 2]) for n in range(300)]
    source._listener.poll()
    times += [call(channel, peer, "ab"[n % 2]) for n in range(300)]
    for _ in range(10):
        source._listener.poll()
    assert 100 <= source._waiting._records <= 300 + 64
    assert ask(source, *times) == list("ab" * 300)
    assert (source._waiting._records, source.lost) == (0, 0)


def test_what_is_written_while_the_recorder_reads_and_the_process_ends(
    source: TagSource, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring was empty when it was read; then the process made a call and ended."""
    peer, times = new_peer(), [0]
    read = Application.read_definitions

    def after_a_call(application: Application, now_ns: int) -> bool:
        if not times[0]:
            times[0] = call(channel, peer, "a")
            channel.close()
        return read(application, now_ns)

    monkeypatch.setattr(Application, "read_definitions", after_a_call)
    source._listener.poll()
    assert ask(source, *times, time.monotonic_ns()) == ["a", None]


def test_a_process_that_defines_too_much_starts_anew(
    source: TagSource, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "MAX_DEFINITIONS", 20)
    peer = new_peer()
    for turn in range(100):
        channel.check_ns = 0  # it looks for a recorder ten times a second
        follow(source, channel)
        assert ask(source, call(channel, peer, str(turn))) == [str(turn)]
    assert source.applications == 5
    assert source.lost == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("call", "call", "call", "poll", "full", "no room", "room", "anew")),
            st.integers(0, 1),
            st.sampled_from((0, 3)),
            st.sampled_from("abcdefgh"),
        ),
        max_size=60,
    )
)
def test_no_query_has_another_s_tags_and_none_less_than_was_lost(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, str]]
) -> None:
    """With rings and sockets that are full at times, and recorders that read at any time."""
    path = tmp_path_factory.mktemp("s") / "tags.sock"
    fails: set[str] = set()
    announce, begin = Recorder.announce, Recorder.begin

    def announced(recorder: Recorder, what: str, known: Definition) -> int:
        return 0 if what in fails else announce(recorder, what, known)

    def begun(recorder: Recorder, *args: Any) -> int:
        return 0 if "ring" in fails else begin(recorder, *args)

    with (
        closing(TagSource(path, owners=Everyone())) as source,
        pytest.MonkeyPatch.context() as patch,
    ):
        channel = Channel(str(path))
        patch.setattr(channel_module, "channel", channel)
        patch.setattr(Recorder, "announce", announced)
        patch.setattr(Recorder, "begin", begun)
        follow(source, channel)
        peers = {number: new_peer(number) for number in range(2)}
        expected: list[tuple[int, int, int, str]] = []
        for step, number, stream, m in steps:
            if step == "call":
                expected.append((number, stream, call(channel, peers[number], m, stream), m))
            elif step == "poll":
                source._listener.poll()
            elif step == "full":
                fails.add("ring")
            elif step == "no room":
                fails.update(("tags", "connection"))
            elif step == "room":  # which only the recorder makes
                source._listener.poll()
                fails.clear()
            else:
                channel.tell_anew()
        missing = 0
        for number, stream, begin_ns, m in expected:
            (found,) = ask(source, begin_ns, of=number, stream=stream)
            assert found in (m, None)
            missing += found is None
        assert missing <= source.lost
        fails.clear()
        channel.close()
