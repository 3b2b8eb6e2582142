# SPDX-License-Identifier: Apache-2.0
"""Reports that are missing, read late or too many: their queries have no tags, all others do."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags import application, definitions, tagging
from qjoule.tags.application import Application
from qjoule.tags.tagging import TagSource
from qjoule_drivers import channel as channel_module
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.ring import SLOTS, Definition, Recorder
from tag_source import Everyone, ask, call, follow, new_peer, records


def test_a_full_ring_costs_exactly_the_unreported_queries_their_tags(
    source: TagSource, following: Channel
) -> None:
    """This holds also for a recorder that comes late: what was reported before the gap holds up to
    it."""
    peer, other = new_peer(0), new_peer(1)
    times = [call(following, other, str(number % 2)) for number in range(SLOTS)]
    during = call(following, peer, "a")
    written = records(following)
    assert written < SLOTS
    expected = [str(number % 2) if number < written else None for number in range(SLOTS)]
    assert ask(source, *times, connection=1) == expected
    assert ask(source, during) == [None]
    assert source.lost == SLOTS - written + 1
    # The next gap is a separate one.
    between = [call(following, other, m) for m in "ab"]
    following.interrupt()
    after = call(following, peer, "b")
    assert ask(source, *between, time.monotonic_ns(), connection=1) == ["a", "b", None]
    assert ask(source, after) == ["b"]


def test_a_join_reads_more_than_one_reading_may_take(
    source: TagSource, following: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "READING_NS", 0)  # one message
    peer = new_peer()
    times = [call(following, peer, str(n)) for n in range(50)]
    assert ask(source, *times) == [str(n) for n in range(50)]
    assert source.lost == 0


def test_a_long_join_keeps_nothing_from_being_read(source: TagSource, following: Channel) -> None:
    peer = new_peer()
    with source._calls._lock:
        times = [call(following, peer, m) for m in "ab"]
        for number in range(2 * SLOTS):
            call(following, peer, str(number % 2))
            if number % 1000 == 0:
                source._listener.poll()
    assert ask(source, *times) == ["a", "b"]
    assert source.lost == 0


def test_records_without_room_in_memory_stay_in_the_ring(
    source: TagSource, following: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagging, "MAX_RECORDS", 100)
    peer = new_peer()
    times = [call(following, peer, "ab"[n % 2]) for n in range(300)]
    source._listener.poll()
    times += [call(following, peer, "ab"[n % 2]) for n in range(300)]
    for _ in range(10):
        source._listener.poll()
    assert 100 <= source._waiting._records <= 300 + 64
    assert ask(source, *times) == list("ab" * 300)
    assert (source._waiting._records, source.lost) == (0, 0)


def test_a_call_of_a_process_that_ends_while_it_is_read_is_kept(
    source: TagSource, following: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring was empty when it was read; then the process made a call and ended."""
    peer, times = new_peer(), [0]
    read = Application.read_definitions

    def after_a_call(application: Application, now_ns: int) -> bool:
        if not times[0]:
            times[0] = call(following, peer, "a")
            following.close()
        return read(application, now_ns)

    monkeypatch.setattr(Application, "read_definitions", after_a_call)
    source._listener.poll()
    assert ask(source, *times, time.monotonic_ns()) == ["a", None]


def test_a_process_that_defines_too_much_starts_anew(
    source: TagSource, following: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "MAX_DEFINITIONS", 20)
    peer = new_peer()
    for turn in range(100):
        following.to.until_ns = 0  # it looks for a recorder ten times a second
        follow(source, following)
        assert ask(source, call(following, peer, str(turn))) == [str(turn)]
    assert (source.applications, source.lost) == (5, 0)


_STEPS = ("call",) * 4 + ("unseen", "close", "poll", "interrupt", "full", "no room", "room", "anew")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_STEPS),
            st.integers(0, 2),
            st.sampled_from((0, 3)),
            st.sampled_from("abcdefgh"),
        ),
        max_size=60,
    )
)
def test_no_query_has_the_tags_of_another_and_no_loss_is_uncounted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, str]]
) -> None:
    """Rings and sockets are full at times, the recorder reads at any time, and ports are reused by
    strangers, whose calls are unseen.
    """
    path = tmp_path_factory.mktemp("s") / "tags.sock"
    fails: set[str] = set()
    announce, begin = Recorder.announce, Recorder.begin

    def announced(recorder: Recorder, kind: str, definition: Definition) -> int:
        return 0 if kind in fails else announce(recorder, kind, definition)

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
        peers: dict[int, Peer] = {}
        expected: list[tuple[int, int, int, str | None]] = []
        may_be_unknown = False
        for step, number, stream, m in steps:
            if step == "call":
                begin_ns = call(channel, peers.setdefault(number, new_peer(number)), m, stream)
                expected.append((number, stream, begin_ns, m))
            elif step == "unseen" and number not in peers:
                expected.append((number, stream, time.monotonic_ns(), None))
            elif step == "close":
                peers.pop(number, None)
                may_be_unknown |= "ring" in fails
            elif step == "interrupt":
                channel.interrupt()
                may_be_unknown = True
            elif step == "full":
                fails.add("ring")
            elif step == "no room":
                fails.update(("tags", "connection"))
            elif step == "anew":
                channel.invalidate()
            else:
                source._listener.poll()
                if step == "room":  # which only the recorder makes
                    fails.clear()
        missing = 0
        for number, stream, begin_ns, sent in expected:
            (joined,) = ask(source, begin_ns, connection=number, stream=stream)
            assert joined in (sent, None)
            missing += joined != sent
        assert missing <= source.lost or may_be_unknown
        fails.clear()
        channel.close()
