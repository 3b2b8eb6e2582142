# SPDX-License-Identifier: Apache-2.0
"""Medians, their intervals, and verdicts on targets: bench/overhead/stats.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.overhead.stats import Estimate, median_interval, ratio_of_medians, verdict


@pytest.mark.parametrize(
    ("runs", "low", "high", "coverage"),
    [(1, 0, 0, 0.0), (2, 0, 1, 0.5), (6, 0, 5, 1 - 2 / 64), (9, 1, 7, 1 - 20 / 512)],
)
def test_intervals_are_those_of_the_sign_tests_tables(
    runs: int, low: int, high: int, coverage: float
) -> None:
    found = median_interval([float(value) for value in reversed(range(runs))])
    assert found == Estimate((runs - 1) / 2, low, high, pytest.approx(coverage), runs)


@pytest.mark.parametrize("runs", [6, 12])
def test_an_interval_holds_the_median_as_often_as_it_says(runs: int) -> None:
    draws = np.random.default_rng(runs).exponential(1.0, (1000, runs))
    estimates = [median_interval(list(row)) for row in draws]
    held = np.mean([one.low <= math.log(2.0) <= one.high for one in estimates])
    assert held == pytest.approx(estimates[0].coverage, abs=0.03)


def test_a_ratio_keeps_rounds_together() -> None:
    under = [0.01, 0.02, 0.03, 0.04, 0.05]
    same = ratio_of_medians([2 * value for value in under], under)
    assert same.median == same.low == same.high == pytest.approx(2.0)
    assert ratio_of_medians([0.02, 0.03, 0.02], [0.01, -0.01, -0.02]).high == math.inf


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.0, 0.01, "met"), (0.005, 0.02, "within noise"), (0.011, 0.02, "missed")],
)
def test_a_verdict_follows_from_the_interval(low: float, high: float, word: str) -> None:
    assert verdict(Estimate((low + high) / 2, low, high, 0.95, 9), 0.01) == word


def test_too_few_rounds_or_none_decide_nothing() -> None:
    assert verdict(median_interval([0.0, 0.0, 0.0]), 0.01) == "too few rounds"
    assert verdict(median_interval([0.0, 0.0, 0.0, 0.0]), 0.01) == "met"
    with pytest.raises(ValueError, match="nothing"):
        median_interval([])
    with pytest.raises(ValueError, match="same rounds"):
        ratio_of_medians([1.0], [1.0, 2.0])
