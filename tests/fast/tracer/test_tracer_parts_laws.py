# SPDX-License-Identifier: Apache-2.0
"""Laws of what the BPF programs compute in the kernel: scaled counters, busy clocks."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qjoule.contract import WHOLE
from tracer_parts.parts import busy_at, busy_between, busy_set, counted, scaled

HOUR_NS = 3600 * 10**9
SHORT_NS = 1 << 32  #: slices below this are computed without rounding times
times = st.integers(1, SHORT_NS - 1)
LEAST_NS = 10_000  #: less counted time than this, and than half of the slice, is a sliver
Reading = tuple[int, int, int]  #: counter, enabled_ns, running_ns
starts = st.tuples(*[st.integers(0, 1 << 62)] * 3)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Compiled before the first example, because each example has a time limit."""
    scaled(1, 1, 1)


def _least_ns(enabled: int) -> int:
    """Time of a slice that must be counted, written independently of the programs."""
    one_per_cent = -(-enabled * (WHOLE // 100) // WHOLE)
    return max(one_per_cent, min(LEAST_NS, -(-enabled // 2)))


def _after(start: Reading, count: int, enabled: int, running: int) -> tuple[int, int, int]:
    return start[0] + count, start[1] + enabled, start[2] + running


@given(starts, st.integers(0, 1 << 50), times)
def test_an_event_that_ran_all_the_time_is_exact(start: Reading, count: int, enabled: int) -> None:
    now = _after(start, count, enabled, enabled)
    assert counted(start, now) == (WHOLE, count)


@given(starts, st.integers(0, 1 << 44), st.integers(2, SHORT_NS - 1), st.data())
@example((0, 0, 0), 3 * 10**9, SHORT_NS - 1, None)
def test_an_event_that_ran_for_a_part_is_scaled(
    start: Reading, count: int, enabled: int, data: st.DataObject | None
) -> None:
    running = data.draw(st.integers(_least_ns(enabled), enabled - 1)) if data else enabled - 1
    share, increment = counted(start, _after(start, count, enabled, running))
    assert share == running * WHOLE // enabled
    assert share < WHOLE
    assert increment == count * enabled // running


@given(starts, st.integers(0, 1 << 44), times, st.data())
@example((0, 0, 0), 10**6, 12_000_000, None)
def test_an_event_that_ran_for_a_sliver_did_not_count(
    start: Reading, count: int, enabled: int, data: st.DataObject | None
) -> None:
    most = _least_ns(enabled) - 1
    running = data.draw(st.integers(0, most)) if data else enabled * 12 // 10_000
    assert counted(start, _after(start, count, enabled, running)) == (0, 0)


@pytest.mark.parametrize(
    ("enabled", "running", "counts"),
    [
        (12_000_000, 119_000, False),
        (12_000_000, 121_000, True),
        (100_000, 9_999, False),
        (100_000, 10_000, True),
        (8_000, 3_999, False),
        (8_000, 4_000, True),
        (3, 1, False),
        (1, 1, True),
    ],
)
def test_how_much_of_a_stretch_must_be_counted(enabled: int, running: int, counts: bool) -> None:
    share, _ = counted((0, 0, 0), (1000, enabled, running))
    assert (share > 0) is counts


@given(st.integers(0, 1 << 46), st.integers(SHORT_NS, 78 * HOUR_NS), st.data())
def test_so_is_a_long_stretch_but_for_what_65_us_are_of_it(
    count: int, enabled: int, data: st.DataObject
) -> None:
    running = data.draw(st.integers(enabled // 99, enabled - 1))
    share, increment = counted((0, 0, 0), (count, enabled, running))
    assert abs(share - running * WHOLE / enabled) <= 2 + 65_536 * WHOLE / enabled
    exact = count * enabled // running
    assert abs(increment - exact) <= 1 + exact * (1 << 17) / running


@given(starts, starts)
def test_hostile_readings_give_nothing_or_a_share(before: Reading, now: Reading) -> None:
    share, increment = counted(before, now)
    assert 0 <= share <= WHOLE
    backwards = any(n < b for b, n in zip(before, now, strict=True))
    if backwards or now[1] == before[1] or now[2] == before[2]:
        assert (share, increment) == (0, 0)


@given(st.integers(0, 1 << 50), st.lists(st.integers(0, 10**7), min_size=1, max_size=3))
def test_parts_of_a_stretch_are_its_sum_but_for_rounding(value: int, parts: list[int]) -> None:
    whole = sum(parts)
    sum_of_parts = sum(scaled(value, part, whole) for part in parts)
    assert sum_of_parts <= value if whole else sum_of_parts == 0
    assert not whole or value - sum_of_parts < len(parts)


@given(
    st.integers(0, 1 << 60),
    st.lists(st.tuples(st.booleans(), st.integers(0, HOUR_NS)), max_size=30),
)
def test_a_busy_clock_shows_the_time_it_was_busy(
    begin_ns: int, spans: list[tuple[bool, int]]
) -> None:
    clock, now, busy_ns = 0, begin_ns, 0
    for busy, span_ns in spans:
        clock = busy_set(clock, busy, now)
        half = now + span_ns // 2
        assert busy_at(clock, half) == busy_ns + (span_ns // 2 if busy else 0)
        now += span_ns
        busy_ns += span_ns if busy else 0
        assert busy_at(clock, now) == busy_ns
        assert busy_at(clock, now + 5) == busy_ns + (5 if busy else 0)


@given(st.integers(0, 1 << 60), st.integers(0, 1000))
def test_a_clock_read_before_it_was_set_is_early_by_as_much(now_ns: int, early_ns: int) -> None:
    clock = busy_set(0, True, now_ns + early_ns)
    assert busy_between(busy_at(clock, now_ns), busy_at(clock, now_ns + early_ns)) == early_ns
    assert busy_between(0, busy_at(clock, now_ns)) == -early_ns
