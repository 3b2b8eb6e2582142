# SPDX-License-Identifier: Apache-2.0
"""The run of all loads keeps to its time: simulated, with pairs that take as long as assumed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench import bench_overhead
from bench.overhead.budget import LEAST_PAIRS, Budget, Step
from bench.overhead.loads import LOADS
from bench.overhead.rounds import Samples


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def simulated(planned: list[Step], minutes: float, *, width: float) -> tuple[float, list[int]]:
    """Minutes that a run takes, and the pairs of each series. `width`: of the figures' spread."""
    clock = Clock()
    budget, pairs = Budget(60 * minutes, planned, clock), []
    for step in planned:
        clock.now_s += step.needs_s
        over = budget.until(budget.begin(step.load, step.part))
        samples = {str(number): Samples() for number in range(step.series)}
        while samples and not over(samples):
            for series in samples.values():
                clock.now_s += bench_overhead.PAIR_S
                off = width * (-1) ** len(series.rate)
                series.rate.append(1.0)
                series.cpu_lost.append(0.02 + off)
                series.places.untraced["machine"].append(100.0)
                series.places.added["machine"].append(2.0 + 100 * off)
        pairs += [len(series.rate) for series in samples.values()]
    return (clock.now_s - Clock.now_s) / 60, pairs


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    monkeypatch.setattr(sys, "argv", ["bench_overhead"])
    return list(bench_overhead.steps(bench_overhead.arguments(), LOADS))


def test_every_load_fits_into_half_an_hour(planned: list[Step]) -> None:
    assert {step.load for step in planned} == {load.name for load in LOADS}
    assert bench_overhead.least_minutes(planned) < bench_overhead.MINUTES
    took, pairs = simulated(planned, bench_overhead.MINUTES, width=0.1)
    round_s = bench_overhead.PAIR_S * max(step.series for step in planned)
    assert min(pairs) == LEAST_PAIRS and took <= bench_overhead.MINUTES + round_s / 60


def test_more_time_gives_more_pairs_to_wide_intervals_alone(planned: list[Step]) -> None:
    took, pairs = simulated(planned, 60, width=0.1)
    assert min(pairs) > LEAST_PAIRS and 55 < took < 62
    took, pairs = simulated(planned, 60, width=0.001)
    assert set(pairs) == {LEAST_PAIRS}
    assert took == pytest.approx(bench_overhead.least_minutes(planned))


def test_what_is_left_out_leaves_its_time_to_others() -> None:
    clock = Clock()
    budget = Budget(100, [Step("a", "fixed", 1), Step("b", "fixed", 1, 20.0)], clock)
    assert budget.begin("b", "fixed") == pytest.approx(1100.0)
