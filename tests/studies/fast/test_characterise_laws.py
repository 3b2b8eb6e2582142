# SPDX-License-Identifier: Apache-2.0
"""Laws of ratios of counters, whatever the counts are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.studies.characterise import Event, MetricSums, metrics_of

EVENTS = ("cycles", "instructions", "branch-misses", "instructions:u", "r01c2")
GROUPS = 3


@st.composite
def segments(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, dict[str, Event]]:
    """Group and length of up to 20 segments, and what was counted in them."""
    count = draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    events = {}
    for name in EVENTS:
        valid = rng.random(count) < draw(st.sampled_from([0, 0.5, 1]))
        share = np.where(valid, rng.choice([1.0, 0.3], count), 0.0)
        events[name] = Event(rng.integers(0, 10**6, count).astype(float), valid, share)
    return rng.integers(0, GROUPS, count), rng.integers(1, 10**7, count).astype(float), events


def _part(event: Event, rows: np.ndarray) -> Event:
    return Event(event.count[rows], event.valid[rows], event.share[rows])


@given(segments(), st.integers(0, 20))
def test_how_segments_are_cut_into_batches_does_not_matter(
    case: tuple[np.ndarray, np.ndarray, dict[str, Event]], cut: int
) -> None:
    group, lengths, events = case
    whole, parts = (MetricSums(metrics_of(EVENTS), GROUPS) for _ in range(2))
    whole.add(group, lengths, events)
    rows = np.arange(len(group))
    for some in (rows[:cut], rows[cut:]):
        chosen = {name: _part(event, some) for name, event in events.items()}
        parts.add(group[some], lengths[some], chosen)
    assert parts.sums == pytest.approx(whole.sums)
    assert parts.cpu_ns == pytest.approx(whole.cpu_ns)


@given(segments())
def test_a_figure_lies_within_its_interval_and_between_its_segments(
    case: tuple[np.ndarray, np.ndarray, dict[str, Event]],
) -> None:
    group, lengths, events = case
    sums = MetricSums(metrics_of(EVENTS), GROUPS)
    sums.add(group, lengths, events)
    for number in range(GROUPS):
        for estimate in sums.estimates(number).values():
            assert 0 <= estimate.counted <= 1
            assert np.isfinite(estimate.value)
            if estimate.low is not None and estimate.high is not None:
                assert estimate.low <= estimate.value <= estimate.high
        ipc = sums.estimates(number).get("ipc")
        both = events["cycles"].valid & events["instructions"].valid & (group == number)
        if ipc is not None and (events["cycles"].count[both] > 0).all():
            each = events["instructions"].count[both] / events["cycles"].count[both]
            assert each.min() * (1 - 1e-9) <= ipc.value <= each.max() * (1 + 1e-9)


@given(segments(), st.permutations(range(GROUPS)))
def test_merging_every_group_into_one_is_counting_without_groups(
    case: tuple[np.ndarray, np.ndarray, dict[str, Event]], order: list[int]
) -> None:
    group, lengths, events = case
    sums, single = MetricSums(metrics_of(EVENTS), GROUPS), MetricSums(metrics_of(EVENTS), 1)
    sums.add(np.array(order)[group], lengths, events)
    single.add(np.zeros(len(group), np.int64), lengths, events)
    assert sums.merged(np.zeros(GROUPS, np.int64), 1).sums == pytest.approx(single.sums)
