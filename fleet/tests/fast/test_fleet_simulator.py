# SPDX-License-Identifier: Apache-2.0
"""Intervals of a simulated fleet hold the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fleet.bench.simulator import coverage
from fleet.bench.simulator.population import Plan


def test_printed_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """Sums of energies with all kinds of error but those of unknown sign, which only widen."""
    plan = Plan(hosts=3, shapes=6, seed=100, calls_per_s=3.0, churn_per_day=0.0)
    plan = replace(plan, estimated=0.3, one_sided=False)
    truth = coverage.write(tmp_path, 300, plan)
    printed = coverage.printed(tmp_path, plan)
    assert printed.keys() == truth.keys()
    held = coverage.held(printed, truth)
    assert held.count > 700 and 0.93 <= held.share <= 0.97, held
    half = {
        group: (low + (high - low) / 4, high - (high - low) / 4)
        for group, (low, high) in printed.items()
    }
    assert coverage.held(half, truth).share < 0.75, "half as wide, they would hold it in 67 %"
