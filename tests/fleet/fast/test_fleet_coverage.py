# SPDX-License-Identifier: Apache-2.0
"""The 95 % intervals that `qjoule fleet top` prints have the truth inside as often as they say."""

from __future__ import annotations

from pathlib import Path

from bench.fleet import coverage
from bench.fleet.population import Plan

#: Errors of unknown sign only widen intervals; they are left out here.
PLAN = Plan(
    hosts=3, shapes=6, seed=100, calls_per_s=3.0, churn_per_day=0.0, estimated=0.3, one_sided=False
)


def test_intervals_of_sums_over_hosts_and_statements_hold_the_truth(tmp_path: Path) -> None:
    """Sums of energies with all kinds of error, of measured and of estimated hosts."""
    truth = coverage.write(tmp_path, 300, PLAN)
    printed = coverage.printed(tmp_path, PLAN)
    assert printed.keys() == truth.keys()
    found = coverage.held(printed, truth)
    assert found.count > 700
    assert 0.93 <= found.share <= 0.97, found
    # Half as wide, they would have held the truth in 67 %; the test would notice.
    half = {group: _narrower(ends) for group, ends in printed.items()}
    assert coverage.held(half, truth).share < 0.75


def _narrower(ends: tuple[float, float]) -> tuple[float, float]:
    middle, width = sum(ends) / 2, (ends[1] - ends[0]) / 2
    return middle - width / 2, middle + width / 2
