# SPDX-License-Identifier: Apache-2.0
"""Ratios of counters: their laws, their intervals, and which rows and columns are comparable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.studies.characterise import (
    Event,
    MetricSums,
    metrics_of,
)
from qjoule.studies.principal import choose, why_not

NAN = float("nan")


def event(*counts: float, share: float = 1.0) -> Event:
    """One count per segment, NaN where it did not count."""
    values = np.array(counts, np.float64)
    valid = np.isfinite(values)
    return Event(np.nan_to_num(values), valid, np.where(valid, share, 0.0))


def sums(events: dict[str, Event], lengths: list[float] | np.ndarray) -> MetricSums:
    total = MetricSums(metrics_of(events), 1)
    total.add(np.zeros(len(lengths), np.int64), np.array(lengths, np.float64), events)
    return total


def test_a_ratio_is_of_the_segments_in_which_both_events_counted() -> None:
    """The last segment's misses would distort the ratio: its instructions were not counted."""
    events = {
        "instructions": event(1000, 3000, NAN),
        "branch-misses": event(10, 20, 999),
    }
    found = sums(events, [1e6, 1e6, 2e6]).estimates(0)["branch_mpki"]
    assert found.value == pytest.approx(1000 * 30 / 4000)
    assert found.counted == pytest.approx(0.5)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high


def test_what_was_counted_seldom_has_no_interval_and_what_never_was_no_figure() -> None:
    events = {"instructions": event(1000, NAN), "cycles": event(500, 900)}
    found = sums(events, [1e6, 1e6]).estimates(0)["ipc"]
    assert (found.value, found.low, found.high) == (2.0, None, None)
    events["instructions"] = event(NAN, NAN)
    assert set(sums(events, [1e6, 1e6]).estimates(0)) == {"frequency_ghz"}


def test_the_interval_is_that_of_a_ratio_in_a_sample_of_a_finite_population() -> None:
    """Cochran, equation 6.13: two of four segments were counted, so 1 - f is one half."""
    events = {"instructions": event(1000, 3000, NAN, NAN), "branch-misses": event(10, 20, 1, 1)}
    found = sums(events, [1e6] * 4).estimates(0)["branch_mpki"]
    residuals = np.array([10.0, 20]) - 0.0075 * np.array([1000, 3000])
    half = 12.706204736 * math.sqrt(0.5 * 2 * (residuals**2).sum()) / 4000
    assert (found.low, found.high) == pytest.approx((0, 7.5 + 1000 * half))


@pytest.mark.parametrize(("mode", "count", "share"), [("k", 250, 0.25), ("u", 250, 0.75)])
def test_the_kernels_share_follows_from_either_side(mode: str, count: float, share: float) -> None:
    events = {"instructions": event(1000), f"instructions:{mode}": event(count)}
    found = sums(events, [1e6]).estimates(0)["kernel_instruction_share"]
    assert found.value == pytest.approx(share)


def test_events_without_a_metric_are_told_per_1000_instructions_or_per_second() -> None:
    events = {"instructions": event(4000), "r01c2": event(8)}
    assert sums(events, [1.0]).estimates(0)["r01c2_pki"].value == pytest.approx(2.0)
    events = {"page-faults": event(30), "branch-misses": event(6)}
    found = sums(events, [2e9]).estimates(0)
    assert {name: one.value for name, one in found.items()} == pytest.approx(
        {"page-faults_per_s": 15.0, "branch-misses_per_s": 3.0}
    )
    assert not metrics_of([])


def test_the_interval_holds_the_truth_in_about_95_of_100_cases() -> None:
    """Events take turns: each segment is counted with a probability of 0.3."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        instructions = rng.gamma(4, 1e5, 300)
        misses = rng.poisson(instructions * rng.uniform(0.005, 0.015, 300)).astype(float)
        lengths = instructions / 2
        seen = rng.random(300) < 0.3
        events = {
            "instructions": Event(instructions, seen, seen.astype(float)),
            "branch-misses": Event(misses, seen, seen.astype(float)),
        }
        found = sums(events, lengths.tolist()).estimates(0)["branch_mpki"]
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1000 * misses.sum() / instructions.sum() <= found.high
    assert 179 <= held <= 198, held  # binomial, 0.1 % on either side


def test_what_cannot_be_compared_is_left_out_and_said() -> None:
    table = np.array(
        [
            [1, 5, 7, NAN, 1],
            [2, 5, 7, NAN, 4],
            [3, 5, NAN, NAN, 2],
            [4, 5, 8, 1, 3],
        ]
    )
    chosen = choose(table, ["a", "same", "some", "rare", "b"], ["w", "x", "y", "z"])
    assert chosen.columns == ("a", "some", "b")
    assert chosen.rows == (0, 1, 3)
    assert chosen.left_out == (
        "rare: counted in 1 of 4 rows",
        "y: lacks some",
        "same: the same in all rows",
    )
    assert not why_not(chosen)
    names = ["x", "y"]
    assert why_not(choose(np.ones((2, 2)), ["a", "b"], names)) == "2 rows to compare, 3 needed"
    one = choose(np.array([[1.0], [2], [3]]), ["a"], ["x", "y", "z"])
    assert why_not(one) == "1 column that differ between rows, 2 needed"


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
