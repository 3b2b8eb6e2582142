# SPDX-License-Identifier: Apache-2.0
"""Medians, their intervals, and verdicts on targets (bench/overhead/stats.py)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.overhead.stats import Estimate, median_interval, ratio_of_medians, verdict


def test_interval_is_of_order_statistics() -> None:
    # Tables of the sign test: n=6 the extremes, n=9 the second from each end, n=20 the sixth.
    six = median_interval([3, 1, 2, 6, 5, 4])
    assert (six.low, six.high, six.median) == (1, 6, 3.5)
    assert six.coverage == pytest.approx(1 - 2 / 64)
    nine = median_interval(list(range(9)))
    assert (nine.low, nine.high) == (1, 7)
    assert nine.coverage == pytest.approx(1 - 20 / 512)
    twenty = median_interval(list(range(20)))
    assert (twenty.low, twenty.high) == (5, 14)
    assert twenty.coverage >= 0.95


def test_few_values_say_how_little_they_cover() -> None:
    assert median_interval([1.0]) == Estimate(1.0, 1.0, 1.0, 0.0, 1)
    assert median_interval([1.0, 2.0]).coverage == 0.5
    assert median_interval([1.0, 2.0, 3.0, 4.0]).coverage == 0.875
    with pytest.raises(ValueError, match="nothing"):
        median_interval([])


@pytest.mark.parametrize("n", [6, 7, 12])
def test_interval_holds_the_median_as_often_as_it_says(n: int) -> None:
    random = np.random.default_rng(n)
    draws = random.exponential(1.0, (4000, n))
    estimates = [median_interval(list(row)) for row in draws]
    held = np.mean([one.low <= math.log(2.0) <= one.high for one in estimates])
    assert held == pytest.approx(estimates[0].coverage, abs=0.02)


def test_ratio_keeps_rounds_together() -> None:
    under = [0.01, 0.02, 0.03, 0.04, 0.05]
    same = ratio_of_medians([2 * one for one in under], under)
    assert same.median == same.low == same.high == pytest.approx(2.0)


def test_ratio_to_nothing_has_no_upper_end() -> None:
    ratio = ratio_of_medians([0.02, 0.03, 0.02], [0.01, -0.01, -0.02])
    assert ratio.high == math.inf
    with pytest.raises(ValueError, match="same rounds"):
        ratio_of_medians([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.0, 0.01, "met"), (0.005, 0.02, "within noise"), (0.011, 0.02, "missed")],
)
def test_verdict(low: float, high: float, word: str) -> None:
    assert verdict(Estimate((low + high) / 2, low, high, 0.95, 9), 0.01) == word


def test_too_few_rounds_say_nothing_of_a_target() -> None:
    assert verdict(median_interval([0.0, 0.0, 0.0]), 0.01) == "too few rounds"
    assert verdict(median_interval([0.0, 0.0, 0.0, 0.0]), 0.01) == "met"
