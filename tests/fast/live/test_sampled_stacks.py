# SPDX-License-Identifier: Apache-2.0
"""Sampled stacks of a live stream: they come to the rows that their queries are summed in, and
their memory is bounded.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fake_tracer
from fake_attribution import attribution, query_row
from fake_tracer import BEGIN_NS, MS, block, end, energy, flush, head, text
from qjoule.contract import CALLS, Block, Mode, OwnerKind, StackFlag
from qjoule.engine import stacks as stacks_module
from qjoule.engine.stacks import (
    BEYOND,
    CUT,
    KERNEL,
    OTHER,
    Frames,
    NotYetNamed,
    RecentStacks,
    RowStacks,
    Stack,
)
from qjoule.live import sampled_stacks
from qjoule.live.grouping import REMEMBERED, SPARE
from qjoule.live.options import LiveOptions
from qjoule.live.recent_stacks import HALF_S, MOST_ROWS, LastMinute, StackOptions
from qjoule.live.sampled_stacks import NO_ROW, GroupStacks, SampledStacks, StackCounts
from qjoule.live.sources import StreamSource
from qjoule.model.arrays import Renumbering
from qjoule.model.labels import GroupLabel, Identity
from qjoule.servers import registry
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta, Server

WINDOW = 100 * MS
META = Meta(host="db1", servers=(Server(1, "mariadb", attach_mode="symbol"),))
WHOLE = StackFlag.WHOLE
TAGS = registry.dialect("tags")
#: main calls sort and scan; frame: caller, offset
TREE = {1: (0, 10), 2: (1, 20), 3: (1, 30)}
NAMES = {10: "main", 20: "sort", 30: "scan"}
SORT, SCAN = ("main", "sort"), ("main", "scan")
CALLED = block(
    Block.CALL,
    *({"frame": f, "caller": c, "module": 1, "offset": o} for f, (c, o) in TREE.items()),
)


def name(module: int, offset: int) -> str:
    return NAMES.get(offset, f"{module}+{offset:#x}")


def sampled(number: int, frame: int, flags: int = WHOLE, **owner: Any) -> dict[str, Any]:
    """A STACK record in the middle of a window."""
    t_ns = BEGIN_NS + number * WINDOW + WINDOW // 2
    segment = np.zeros((), fake_tracer.DTYPES[Block.STACK]["segment"])
    segment["t0_ns"] = segment["t1_ns"] = t_ns
    segment["server"], segment["owner_kind"] = 1, owner.get("owner_kind", OwnerKind.QUERY)
    segment["pid"] = segment["tgid"] = owner.get("pid", 77)
    more: dict[str, Any] = {key: owner[key] for key in ("shape", "tags", "naming") if key in owner}
    return {"segment": segment, "frame": frame, "flags": flags, **more}


def window(number: int, sums: list[dict[str, Any]], *samples: dict[str, Any]) -> bytes:
    """A window as the tracer writes it: the reading that ends it, its sums, new frames, and
    samples."""
    t0_ns = BEGIN_NS + number * WINDOW
    rows = [{"t0_ns": t0_ns, "t1_ns": t0_ns + WINDOW, "server": 1, **sum_} for sum_ in sums]
    stacks = block(Block.STACK, *samples) if samples else b""
    reading = energy(t0_ns + WINDOW, (number + 2) * 1000, 0)
    return reading + block(Block.AGGREGATE, *rows) + stacks + flush(t0_ns + WINDOW)


def query(shape: int, cpu_ms: int = 40) -> dict[str, Any]:
    return {"owner_kind": OwnerKind.QUERY, "shape": shape, "cpu_ns": cpu_ms * MS, "calls": 1}


def snapshots(
    *windows: bytes,
    controls: Controls | None = None,
    client_tags: bool = False,
    stacks: StackOptions | None = None,
) -> Iterator[Snapshot]:
    stream = head(mode=Mode.LIVE) + text(1, b"SELECT 1") + energy(BEGIN_NS, 1000, 0) + CALLED
    stream += b"".join(windows) + end(BEGIN_NS + len(windows) * WINDOW)
    stacks = stacks or StackOptions(name, lambda: ("mysql has none",))
    options = LiveOptions(stacks=stacks)
    context = fake_tracer.context(META, client_tags=client_tags)
    source = StreamSource(Stream(io.BytesIO(stream)), context, options)
    return source.snapshots(controls or Controls(0.5))


def by_shape(snapshot: Snapshot) -> dict[str, Counter[Stack]]:
    assert snapshot.stacks is not None
    return {
        row_stacks.row.shape: row_stacks.samples for row_stacks in snapshot.stacks.rows.values()
    }


def test_samples_come_to_the_rows_of_their_queries() -> None:
    thread = {"owner_kind": OwnerKind.SERVER, "pid": 7, "tgid": 7, "cpu_ns": 9 * MS}
    samples = [
        *(sampled(n, frame, shape=1) for n in range(5) for frame in (2, 2, 3)),
        sampled(5, 2, shape=2, flags=WHOLE | StackFlag.KERNEL),
        sampled(6, 3, shape=2, flags=0),
        sampled(6, 0, shape=2, flags=0),
        sampled(6, 2, owner_kind=OwnerKind.SERVER, pid=7),
        sampled(6, 2, shape=99),  # of which no time is known
    ]
    at = [int(sample["segment"]["t0_ns"] - BEGIN_NS) // WINDOW for sample in samples]
    windows = [
        window(
            n,
            [query(1), query(2, 10), thread],
            *(sample for sample, when in zip(samples, at, strict=True) if when == n),
        )
        for n in range(20)
    ]
    results = list(snapshots(windows[0] + text(2, b"DELETE"), *windows[1:]))
    last = results[-1]
    assert by_shape(last) == {
        "SELECT ?": Counter({SORT: 10, SCAN: 5}),
        "DELETE": Counter({(*SORT, KERNEL): 1, (CUT, *SCAN): 1, (CUT,): 1}),
    }
    assert last.stacks is not None
    assert last.stacks.missing == ("mysql has none",)
    assert last.stacks.unknown == 1
    total = {row.shape: row for row in last.total.rows}
    for row_stacks in last.stacks.rows.values():
        assert row_stacks.row.energy_nj == total[row_stacks.row.shape].energy_nj, (
            "of all intervals so far"
        )
    assert last.stacks.seconds == pytest.approx(2.0)


def test_the_view_goes_on_while_names_are_late() -> None:
    """Until names come, each snapshot has a note; samples taken meanwhile come with the next
    one."""
    late = ["main"]

    def sometime(module: int, offset: int) -> str:
        if name(module, offset) in late:
            raise NotYetNamed
        return name(module, offset)

    windows = [window(n, [query(1)], sampled(n, 2, shape=1)) for n in range(20)]
    options = StackOptions(sometime, lambda: ("late",) if late else ())
    results = []
    for snapshot in snapshots(*windows, stacks=options):
        assert snapshot.stacks is not None
        assert snapshot.interval.rows[0].calls, "an interval like any other"
        results.append((sum(by_shape(snapshot).values(), Counter()), snapshot.stacks.missing))
        if len(results) == 2:
            late.clear()
    assert results[:2] == [(Counter(), ("late",))] * 2
    assert results[2] == (Counter({SORT: 12}), ()), "of all windows that are complete by then"
    assert results[-1] == (Counter({SORT: 20}), ())


def test_samples_that_wait_for_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_stacks, "MOST_WAITING", 30)

    def never(_module: int, _offset: int) -> str:
        raise NotYetNamed

    stacks = SampledStacks(never)
    for call in Stream(io.BytesIO(head(mode=Mode.LIVE) + CALLED)):
        if call.kind is Block.CALL:
            stacks.add_calls(call.records)
    for number in range(20):
        records = np.array([], fake_tracer.DTYPES[Block.STACK])
        records = np.resize(records, 3)
        records["frame"], records["segment"]["t0_ns"] = 2, number
        stacks.add(records)
    assert stacks.take_dropped() == 30
    assert not stacks.take(1 << 60).stacks
    assert not stacks.crowded, "complete windows would not help"


def test_without_the_option_there_are_none() -> None:
    stream = head() + energy(BEGIN_NS, 1000, 0) + CALLED
    stream += b"".join(window(n, [query(1)], sampled(n, 2, shape=1)) for n in range(20))
    source = StreamSource(
        Stream(io.BytesIO(stream + end(BEGIN_NS + 20 * WINDOW))), fake_tracer.context(META)
    )
    assert all(snapshot.stacks is None for snapshot in source.snapshots(Controls(0.5)))


def test_another_grouping_and_a_reset_begin_anew() -> None:
    controls, results = Controls(0.5), []
    windows = [window(n, [query(1)], sampled(n, 2, shape=1)) for n in range(40)]
    for snapshot in snapshots(*windows, controls=controls):
        results.append(snapshot.stacks)
        if len(results) == 2:
            controls.set(group="server")
        if len(results) == 4:
            controls.reset()
    timed = [(round(recent.seconds, 1), recent) for recent in results if recent is not None]
    assert [seconds for seconds, _ in timed[:6]] == [0.4, 0.8, 0.4, 0.8, 0.4, 0.8]
    identities = [set(recent.rows) for _, recent in timed]
    assert identities[2] == {("queries", (("server", "mariadb"),), "")}
    assert [next(iter(recent.rows.values())).count for _, recent in timed[:6]] == [4, 8] * 3


def test_by_a_tag_samples_come_to_the_rows_of_their_values() -> None:
    tagged = {number: b"endpoint='%s'" % value for number, value in ((5, b"cart"), (6, b"pay"))}
    tags = b"".join(text(number, comment, dialect=TAGS) for number, comment in tagged.items())
    rows = [query(1) | {"tags": number} for number in (5, 6, 0)]
    windows = [
        window(n, rows, *(sampled(n, f, shape=1, tags=t) for f, t in ((2, 5), (2, 5), (3, 6))))
        for n in range(10)
    ]
    controls = Controls(0.5, "tag:endpoint")
    *_, last = snapshots(tags + windows[0], *windows[1:], controls=controls, client_tags=True)
    assert last.stacks is not None
    by_value = {
        row_stacks.row.keys["tag:endpoint"]: row_stacks.samples
        for row_stacks in last.stacks.rows.values()
    }
    assert by_value == {"cart": Counter({SORT: 20}), "pay": Counter({SCAN: 10})}


def test_a_text_that_comes_late_takes_its_samples_along() -> None:
    windows = [window(n, [query(1), query(3)], sampled(n, 3, shape=3)) for n in range(10)]
    windows[3] += text(3, b"SELECT 2")  # the same statement as 1
    first = next(iter(snapshots(*windows)))
    assert by_shape(first)["SELECT ?"] == Counter({SCAN: 4})


def test_rows_that_are_forgotten_have_a_common_row_of_samples() -> None:
    shapes = range(2, 2 + REMEMBERED + SPARE + 10)
    names = b"".join(text(shape, b"SELECT " + b"x" * shape) for shape in shapes)
    rows = [query(shape, 1) for shape in shapes]
    samples = [sampled(0, 2, shape=shape) for shape in shapes]
    last = list(snapshots(names + window(0, rows, *samples[:1999]), *([window(1, [query(1)])] * 3)))
    assert last[-1].stacks is not None
    counts = [row_stacks.count for row_stacks in last[-1].stacks.rows.values()]
    assert sum(counts) == 1999
    assert max(counts) > 1


def tracer_sends(stacks: list[int], remembered: dict[int, int], places: int) -> list[int]:
    """The frames that `send_frame()` of tracer/stacks.c sends for stacks of TREE-like frames, in
    which each frame's caller is half of its number."""
    sent = []
    for innermost in stacks:
        chain = [innermost >> n for n in range(innermost.bit_length())]
        for frame in reversed(chain):
            if remembered.get(frame % places) != frame:
                remembered[frame % places] = frame
                sent.append(frame)
    return sent


@given(st.lists(st.lists(st.integers(1, 200), min_size=1, max_size=8), max_size=30))
def test_frames_are_remembered_as_the_tracer_does(blocks: list[list[int]]) -> None:
    """With so few places for frames, most are sent again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled_stacks, "CALLS", 7)
        stacks_sampled = SampledStacks(lambda _module, offset: str(offset))
        remembered: dict[int, int] = {}
        for stacks in blocks:
            calls = [
                {"frame": f, "caller": f >> 1, "module": 1, "offset": f}
                for f in tracer_sends(stacks, remembered, 7)
            ]
            if calls:
                stacks_sampled.add_calls(fake_tracer.records(Block.CALL, calls))
            stacks_sampled.add(fake_tracer.records(Block.STACK, [sampled(0, f) for f in stacks]))
            assert len(stacks_sampled._frames._frames) <= 7
    taken = stacks_sampled.take(BEGIN_NS + WINDOW).stacks
    expected = [frame for stacks in blocks for frame in stacks]
    assert [stack[-1] for stack in taken] == [str(frame) for frame in expected]
    assert [len(stack) for stack in taken] == [frame.bit_length() for frame in expected]
    assert CALLS == 1 << 16, "as the tracer is compiled"


def test_samples_are_bounded_and_those_left_out_are_counted() -> None:
    sampled_ = SampledStacks(name)
    many = fake_tracer.records(Block.STACK, [sampled(0, 2, shape=n) for n in range(4_999)])
    sampled_.add(many)
    assert len(sampled_.take(BEGIN_NS + WINDOW).stacks) == 1_667, "each third one"
    assert sampled_.take_dropped() == 4_999 - 1_667
    for _ in range(40):
        sampled_.add(many)
    assert len(sampled_.take(BEGIN_NS + WINDOW).stacks) == sampled_stacks.MOST_WAITING
    assert sampled_.take_dropped() == 40 * 4_999 - sampled_stacks.MOST_WAITING
    assert sampled_.take_dropped() == 0


def test_long_intervals_lose_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_stacks, "MOST_WAITING", 100)
    samples = [[sampled(n, 2, shape=1)] * 10 for n in range(60)]
    windows = [window(n, [query(1)], *some) for n, some in enumerate(samples)]
    *_, last = snapshots(*windows, controls=Controls(30.0))
    assert by_shape(last) == {"SELECT ?": Counter({SORT: 600})}
    assert last.stacks is not None
    assert last.stacks.lost == 0


def test_different_stacks_are_bounded_and_the_rest_is_one() -> None:
    counts: StackCounts[int] = StackCounts()
    for row in range(30):
        for n in range(sampled_stacks.MOST_OF_ROW + 5):
            counts.add(row, (str(n),))
    assert len(counts.rows[0]) == sampled_stacks.MOST_OF_ROW + 1
    assert counts.rows[0][(OTHER,)] == 5
    assert counts.rows[29] == Counter({(OTHER,): sampled_stacks.MOST_OF_ROW + 5})
    assert sum(map(len, counts.rows.values())) <= sampled_stacks.MOST + 30


def test_frames_without_stacks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_stacks, "CALLS", 8)
    monkeypatch.setattr(sampled_stacks, "MOST_NEW", 16)
    sampled_ = SampledStacks(name)
    for first in range(1, 1000, 3):
        calls = [{"frame": first + n, "module": 1, "offset": first} for n in range(3)]
        sampled_.add_calls(fake_tracer.records(Block.CALL, calls))
        assert len(sampled_._frames._frames) <= 8 + 16 + 3
        assert len(sampled_._new) <= 16
    sampled_.add(fake_tracer.records(Block.STACK, [sampled(0, frame) for frame in (5, 999)]))
    assert sampled_.take(BEGIN_NS + WINDOW).stacks == [(CUT,), ("1+0x3e5",)], "one is forgotten"


def test_named_stacks_are_kept_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks_module, "_MOST_STACKS", 10)
    named_offsets: list[int] = []

    def named(_module: int, offset: int) -> str:
        named_offsets.append(offset)
        return f"{offset}"

    frames = Frames(named)
    assert frames.stack(1, whole=True) == (CUT,), "its frame is not known yet"
    for number in range(1, 50):
        frames.add(number, 0, 1, number)
        for _ in range(3):
            assert frames.stack(number, whole=True) == (f"{number}",)
            frames.forget(())
        assert len(frames._stacks) <= 10
    assert named_offsets == [*range(1, 50)]


def test_of_a_deep_stack_the_innermost_frames_are_kept() -> None:
    sampled_ = SampledStacks(name)
    depth = sampled_stacks.MOST_FRAMES + 1
    calls = [{"frame": n, "caller": n - 1, "module": 1, "offset": n} for n in range(1, depth + 1)]
    sampled_.add_calls(fake_tracer.records(Block.CALL, calls))
    stacks = [sampled(0, depth - 1), sampled(0, depth), sampled(0, depth, flags=0)]
    sampled_.add(fake_tracer.records(Block.STACK, stacks))
    complete, deeper, cut = sampled_.take(BEGIN_NS + WINDOW).stacks
    assert (len(complete), complete[0]) == (depth - 1, "1+0x1")
    assert deeper[:2] == (BEYOND, "1+0x2")
    assert cut == (CUT, *deeper)


def test_moved_samples_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_stacks, "MOST", 10)
    stacks = [(str(n),) for n in range(8)]
    counts = GroupStacks()
    counts.add([0] * 8, stacks)
    for group in range(5):
        counts.move(group, group + 1)
    assert counts._counts.rows == {5: Counter(stacks)}
    counts.add([5] * 3, [("8",), ("9",), ("10",)])
    assert counts._counts.rows[5] == Counter([*stacks, ("8",), ("9",), (OTHER,)])
    counts.move(5, 6)
    counts.add([6], [("11",)])
    assert counts._counts.rows[6][(OTHER,)] == 2


def test_samples_of_no_known_row_survive_a_renumbering() -> None:
    counts = GroupStacks()
    counts.add([-1, 0, -1], [("a",), ("b",), ("c",)])
    counts.renumber(Renumbering(np.array([0]), 1))
    label = GroupLabel("queries", (("fingerprint", "0"),), "select ?")
    taken = counts.take([label])
    assert taken[NO_ROW].total() == 2
    assert [counts_of_row.total() for counts_of_row in taken.values()] == [2, 1]


def added(minute: LastMinute, seconds: float, count: int, rows: int = 1) -> RecentStacks:
    table = attribution(
        tuple(query_row(10**9, f"q{n}", keys={"fingerprint": f"{n}"}) for n in range(rows)),
        {},
        duration_s=seconds,
        loss={"stack": 1},
    )
    stacks: Mapping[Identity, Counter[Stack]] = {
        row.identity: Counter({("f",): count}) for row in table.rows
    }
    return minute.add("fingerprint", table, stacks)


@given(st.lists(st.sampled_from([0.5, 2.0, 5.0, 10.0, 25.0, 30.0, 60.0]), min_size=1, max_size=200))
def test_the_last_minute_is_longer_than_half_of_one_and_bounded(lengths: list[float]) -> None:
    minute = LastMinute()
    for number, seconds in enumerate(lengths, 1):
        last_minute = added(minute, seconds, 3)
        recent, before = 0.0, number
        while before and recent < last_minute.seconds:
            before -= 1
            recent += lengths[before]
        assert recent == last_minute.seconds, "the last intervals, whole ones"
        taken = number - before
        (row,) = last_minute.rows.values()
        assert (row.count, row.row.energy_nj, last_minute.lost) == (3 * taken, taken * 10**9, taken)
        low, high = row.row.energy_nj_ci95
        assert (low, high) == pytest.approx((taken * 0.97e9, taken * 1.03e9))
        assert last_minute.seconds <= HALF_S + max(HALF_S, *lengths)
        assert last_minute.seconds >= min(HALF_S, sum(lengths[:number]))
        assert taken == 1 or seconds < HALF_S


def test_rows_of_the_last_minute_are_bounded() -> None:
    minute = LastMinute()
    added(minute, 1.0, 1, rows=3)
    last_minute = added(minute, 1.0, 1, rows=MOST_ROWS + 50)
    assert len(last_minute.rows) == MOST_ROWS
    assert all(isinstance(row_stacks, RowStacks) for row_stacks in last_minute.rows.values())
    assert last_minute.rows["queries", (("fingerprint", "0"),), ""].count == 2
