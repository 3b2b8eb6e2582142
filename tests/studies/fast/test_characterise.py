# SPDX-License-Identifier: Apache-2.0
"""Ratios of counters: their numerators and denominators, intervals, and what is comparable."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.studies.characterise import (
    METRICS,
    Event,
    MetricSums,
    metrics_of,
    missing,
    most_used,
)
from qjoule.studies.kiviat import kiviat
from qjoule.studies.principal import choose, principal, why_not

NAN = float("nan")


def event(*counts: float, share: float = 1.0) -> Event:
    """One count per segment, NaN where it did not count."""
    values = np.array(counts, np.float64)
    valid = np.isfinite(values)
    return Event(np.nan_to_num(values), valid, np.where(valid, share, 0.0))


def sums(events: dict[str, Event], lengths: list[float]) -> MetricSums:
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


def test_one_segment_of_many_has_no_interval() -> None:
    events = {"instructions": event(1000, NAN), "cycles": event(500, 900)}
    found = sums(events, [1e6, 1e6]).estimates(0)["ipc"]
    assert (found.value, found.low, found.high) == (2.0, None, None)


def test_what_never_counted_has_no_figure() -> None:
    events = {"instructions": event(NAN, NAN), "cycles": event(500, 900)}
    assert set(sums(events, [1e6, 1e6]).estimates(0)) == {"frequency_ghz"}


@pytest.mark.parametrize(("mode", "count", "share"), [("k", 250, 0.25), ("u", 250, 0.75)])
def test_the_kernels_share_follows_from_either_side(mode: str, count: float, share: float) -> None:
    events = {"instructions": event(1000), f"instructions:{mode}": event(count)}
    found = sums(events, [1e6]).estimates(0)["kernel_instruction_share"]
    assert found.value == pytest.approx(share)


def test_stalls_are_shares_of_cycles_and_mispredictions_of_branches() -> None:
    events = {
        "cycles": event(2000),
        "stalled-cycles-backend": event(500),
        "branches": event(400),
        "branch-misses": event(8),
    }
    found = sums(events, [1000.0]).estimates(0)
    assert found["stall_backend_share"].value == pytest.approx(0.25)
    assert found["branch_miss_share"].value == pytest.approx(0.02)
    assert found["frequency_ghz"].value == pytest.approx(2.0)


def test_an_event_without_a_metric_is_told_per_1000_instructions() -> None:
    events = {"instructions": event(4000), "r01c2": event(8)}
    assert sums(events, [1.0]).estimates(0)["r01c2_pki"].value == pytest.approx(2.0)


def test_without_instructions_events_are_told_per_second_of_cpu_time() -> None:
    events = {"page-faults": event(30), "branch-misses": event(6)}
    found = sums(events, [2e9]).estimates(0)
    assert {name: one.value for name, one in found.items()} == pytest.approx(
        {"page-faults_per_s": 15.0, "branch-misses_per_s": 3.0}
    )
    assert not metrics_of([])


def test_nothing_is_both_told_and_missing() -> None:
    events = ["cycles", "instructions", "L1-dcache-load-misses"]
    told = {metric.name for metric in metrics_of(events)}
    assert told == {"ipc", "frequency_ghz", "l1d_mpki"}
    assert told | set(missing(events)) == {metric.name for metric in METRICS}
    assert not told & set(missing(events))


def test_the_interval_holds_the_truth_in_about_95_of_100_cases() -> None:
    """Events take turns: each segment is counted with a probability of 0.3."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(400):
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
    assert 366 <= held <= 394, held  # binomial, 0.1 % on either side


def test_merging_groups_is_adding_their_segments() -> None:
    rng = np.random.default_rng(1)
    events = {
        "instructions": event(*rng.integers(1, 99, 50)),
        "cycles": event(*rng.integers(1, 99, 50)),
    }
    lengths, group = rng.random(50) * 1e6, rng.integers(0, 5, 50)
    total = MetricSums(metrics_of(events), 5)
    total.add(group, lengths, events)
    into = np.array([1, 0, -1, 1, 0])
    direct = MetricSums(metrics_of(events), 2)
    ours = into[group] >= 0
    some = {
        name: Event(one.count[ours], one.valid[ours], one.share[ours])
        for name, one in events.items()
    }
    direct.add(into[group][ours], lengths[ours], some)
    merged = total.merged(into, 2)
    assert merged.sums == pytest.approx(direct.sums)
    assert merged.cpu_ns == pytest.approx(direct.cpu_ns)


def test_the_most_used_come_first_and_the_idle_nowhere() -> None:
    assert most_used(np.array([1.0, 5, 0, 3, 2]), 2).tolist() == [2, 0, -1, 1, 2]


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


def test_too_little_to_compare_is_said() -> None:
    names = ["x", "y"]
    assert why_not(choose(np.ones((2, 2)), ["a", "b"], names)) == "2 rows to compare, 3 needed"
    one = choose(np.array([[1.0], [2], [3]]), ["a"], ["x", "y", "z"])
    assert why_not(one) == "1 column that differ between rows, 2 needed"
    assert why_not(choose(np.zeros((0, 2)), ["a", "b"], [])) == "0 rows to compare, 3 needed"


def test_components_of_columns_that_say_the_same() -> None:
    """Two columns are equal up to units, the third is unrelated: variances 2, 1 and 0."""
    base = np.array([1.0, -1, 1, -1])
    found = principal(np.stack([base, 3 * base + 5, [1, 1, -1, -1]], axis=1), "abc")
    assert found.variance == pytest.approx([2, 1, 0], abs=1e-12)
    assert found.loadings[:, 0] == pytest.approx([0.5**0.5, 0.5**0.5, 0], abs=1e-12)
    assert found.kept == 2


def test_a_kiviat_diagram_is_relative_to_the_greatest() -> None:
    table = np.array([[1.0, 10, 0.5, 0], [2, NAN, 0.25, 0]])
    found = kiviat(table, ["llc_mpki", "l1d_mpki", "branch_mpki", "itlb_mpki"])
    assert found is not None
    assert found.axes == ("l1d_mpki", "llc_mpki", "branch_mpki")
    assert found.greatest.tolist() == [10, 2, 0.5]
    assert found.values[0].tolist() == [1, 0.5, 1]
    assert np.isnan(found.values[1, 0])
    assert found.values[1, 1:].tolist() == [1, 0.5]
    assert kiviat(table[:, :2], ["llc_mpki", "l1d_mpki"]) is None
