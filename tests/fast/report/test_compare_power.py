# SPDX-License-Identifier: Apache-2.0
"""How often a comparison finds a difference between equal workloads, and how often a real one."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.model.gate import Gate, exit_code, judge
from simulated_runs import Workload, compared, mispricing, says_different

REPETITIONS = 200


@pytest.mark.parametrize(
    ("runs", "workload"),
    [
        (3, Workload(spread=0.05)),
        (30, Workload(spread=0.05, tail="skewed")),
    ],
)
def test_equal_workloads_are_hardly_ever_called_different(runs: int, workload: Workload) -> None:
    rng = np.random.default_rng(20260101)
    different = regressed = 0
    for _ in range(REPETITIONS):
        wrong = mispricing(rng)
        a = workload.runs(rng, runs, mispriced=wrong)
        sides = compared(a, workload.runs(rng, runs, mispriced=wrong, side="b"))
        different += says_different(sides)
        regressed += exit_code(judge([Gate("J/call", 1.0)], sides)) == 1
    assert different <= 0.05 * REPETITIONS
    assert regressed <= 0.05 * REPETITIONS


def test_ten_percent_more_is_found_with_thirty_runs() -> None:
    rng = np.random.default_rng(20260102)
    workload = Workload(spread=0.05)
    found = regressed = 0
    for _ in range(REPETITIONS):
        wrong = mispricing(rng)
        a = workload.runs(rng, 30, mispriced=wrong)
        sides = compared(a, workload.runs(rng, 30, mispriced=wrong, factor=1.1, side="b"))
        found += all(row.category.startswith("red") for row in sides.rows)
        regressed += exit_code(judge([Gate("J/call", 1.05)], sides)) == 1
    assert found >= 0.9 * REPETITIONS
    assert regressed >= 0.9 * REPETITIONS


def test_the_interval_has_the_true_ratio() -> None:
    """The interval contains a known true ratio in 95 % of cases, although all joules are
    mispriced.
    """
    rng = np.random.default_rng(20260103)
    workload = Workload(spread=0.04)
    inside = seen = 0
    for _ in range(REPETITIONS):
        wrong = mispricing(rng)
        a = workload.runs(rng, 5, mispriced=wrong)
        sides = compared(a, workload.runs(rng, 5, mispriced=wrong, factor=1.3, side="b"))
        for row in (*sides.rows, sides.total):
            low, high = row.greenup_ci95 or (0.0, 0.0)
            inside += low <= 1 / 1.3 <= high
            seen += 1
    assert 0.92 < inside / seen < 0.98
