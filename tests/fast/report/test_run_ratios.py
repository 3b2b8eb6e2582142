# SPDX-License-Identifier: Apache-2.0
"""Intervals of ratios over runs: against scipy's tests, simulated truth, and missing data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from qjoule.model.gate import Gate, exit_code, judge
from qjoule.model.run_ratios import log_ratios, simultaneous
from simulated_runs import Workload, compared, mispricing, says_different

REPETITIONS = 100


def test_intervals_are_those_of_welchs_test() -> None:
    rng = np.random.default_rng(7)
    a, b = np.exp(rng.normal(0, 0.05, (1, 6))), np.exp(rng.normal(0.1, 0.02, (1, 4)))
    ratios = log_ratios(a, b)
    referee = stats.ttest_ind(np.log(b[0]), np.log(a[0]), equal_var=False)
    assert ratios.df[0] == pytest.approx(referee.df)
    for level in (0.95, 0.999):
        ends = referee.confidence_interval(level)
        low, high = ratios.interval(level)
        assert (low[0], high[0]) == pytest.approx((np.exp(ends.low), np.exp(ends.high)))


def test_runs_of_both_sides_at_once_are_paired() -> None:
    rng = np.random.default_rng(8)
    run = np.exp(rng.normal(0, 0.3, 8))
    a = (run * np.exp(rng.normal(0, 0.01, 8)))[None, :]
    b = (1.1 * run * np.exp(rng.normal(0, 0.01, 8)))[None, :]
    ratios = log_ratios(a, b, paired=True)
    ends = stats.ttest_rel(np.log(b[0]), np.log(a[0])).confidence_interval(0.95)
    low, high = ratios.interval()
    assert (low[0], high[0]) == pytest.approx((np.exp(ends.low), np.exp(ends.high)))
    assert high[0] - low[0] < 0.05 < float(np.ptp(log_ratios(a, b).interval()))


def test_a_statement_that_a_run_lacks_is_compared_by_the_other_runs() -> None:
    whole = log_ratios(np.array([[1.0, 1.1, 1.2]]), np.array([[2.0, 2.2, 2.1]]))
    holes = log_ratios(np.array([[1.0, np.nan, 1.1, 1.2]]), np.array([[2.0, 2.2, 2.1, 0.0]]))
    assert holes.estimate[0] == pytest.approx(whole.estimate[0])
    assert holes.se[0] == pytest.approx(whole.se[0])
    assert holes.runs[0] == 3


def test_one_run_has_no_spread_and_says_so() -> None:
    ratios = log_ratios(np.array([[1.0], [np.nan]]), np.array([[2.0, 2.1], [1.0, 1.0]]))
    assert np.exp(ratios.estimate[0]) == pytest.approx(np.sqrt(2.0 * 2.1))
    assert np.isnan(ratios.estimate[1])
    assert np.isnan(ratios.interval()).all()
    assert np.isnan(ratios.more_runs()).all()
    assert np.isnan(ratios.detectable()).all()


def test_equal_runs_have_an_interval_of_no_width() -> None:
    ratios = log_ratios(np.full((2, 3), 0.1), np.array([[0.1] * 3, [0.2] * 3]))
    low, high = ratios.interval()
    assert (low[0], high[0]) == pytest.approx((1.0, 1.0))
    assert (low[1], high[1]) == pytest.approx((2.0, 2.0))
    assert ratios.more_runs()[0] == np.inf, "no number of runs separates what is equal"


def test_a_common_error_widens_the_interval_and_is_not_averaged_away() -> None:
    rng = np.random.default_rng(9)
    a, b = np.exp(rng.normal(0, 0.01, (2, 1, 400)))
    slack = np.log([[1.2], [1.1]])
    low, high = log_ratios(a, b, slack=slack).interval()
    assert 0.82 < low[0] < 1 / 1.2
    assert 1.1 < high[0] < 1.12
    assert np.isinf(log_ratios(a, 1.05 * b, slack=slack).more_runs()[0])


@pytest.mark.parametrize("ratio", [1.03, 0.98])
def test_the_runs_advised_settle_it_in_four_of_five_cases(ratio: float) -> None:
    rng = np.random.default_rng(10)
    spread = 0.04
    seen = np.log(np.array([[1.0, 1.0]])) + spread * np.array([[-1.0, 1.0]]) / np.sqrt(2)
    ratios = log_ratios(np.exp(seen), ratio * np.exp(seen))
    runs = 2 + int(ratios.more_runs()[0])
    shape = (2000, runs)
    again = log_ratios(
        np.exp(rng.normal(0, spread, shape)), ratio * np.exp(rng.normal(0, spread, shape))
    )
    low, high = again.interval()
    assert 0.76 < float(((low > 1) | (high < 1)).mean()) < 0.86
    assert again.detectable().mean() == pytest.approx(max(ratio, 1 / ratio), rel=0.01)


@pytest.mark.filterwarnings("error")
def test_an_end_without_bound_is_infinite() -> None:
    ratios = log_ratios(np.array([[1.0, 3.0]]), np.array([[1.0, 9.0]]))
    low, high = ratios.interval(simultaneous(0.95, 10**7))
    assert (low[0], high[0]) == (0.0, np.inf)
    assert ratios.detectable(simultaneous(0.95, 10**7))[0] == np.inf


def test_the_level_at_which_all_intervals_hold_together() -> None:
    assert simultaneous(0.95, 1) == pytest.approx(0.95)
    assert simultaneous(0.95, 0) == pytest.approx(0.95)
    assert simultaneous(0.95, 10) == pytest.approx(0.995)


def test_equal_workloads_are_hardly_ever_called_different() -> None:
    rng = np.random.default_rng(20260101)
    workload = Workload(spread=0.05, tail="skewed")
    different = regressed = 0
    for _ in range(REPETITIONS):
        wrong = mispricing(rng)
        a = workload.runs(rng, 3, mispriced=wrong)
        sides = compared(a, workload.runs(rng, 3, mispriced=wrong, side="b"))
        different += says_different(sides)
        regressed += exit_code(judge([Gate("J/call", 1.0)], sides)) == 1
    assert different <= 0.05 * REPETITIONS
    assert regressed <= 0.05 * REPETITIONS


def test_the_interval_contains_the_true_ratio_in_95_percent_of_cases() -> None:
    """Although the model misprices all joules."""
    rng = np.random.default_rng(20260103)
    workload = Workload(spread=0.04)
    inside: list[bool] = []
    for _ in range(REPETITIONS):
        wrong = mispricing(rng)
        a = workload.runs(rng, 5, mispriced=wrong)
        sides = compared(a, workload.runs(rng, 5, mispriced=wrong, factor=1.3, side="b"))
        for row in (*sides.rows, sides.total):
            low, high = row.greenup_ci95 or (0.0, 0.0)
            inside.append(low <= 1 / 1.3 <= high)
    assert 0.92 < np.mean(inside) < 0.98
