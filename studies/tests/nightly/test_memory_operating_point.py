# SPDX-License-Identifier: Apache-2.0
"""A machine's memory, and the operating point that today's windows have."""

from __future__ import annotations

import numpy as np
from studies.bench.bench_memory import Score, results

CLOCKS = ("rest and load at today's clock", "rest and load at another clock")


def with_memory(scene: str) -> list[Score]:
    return [pair[1] for pair in results(scene, 3, 0.5)]


def test_intervals_are_wider_where_the_clock_was_never_seen_and_hold() -> None:
    same, other = (with_memory(scene) for scene in CLOCKS)
    median_width = [
        np.median([width for score in scores for width in score.widths]) for scores in (same, other)
    ]
    assert median_width[1] > median_width[0]
    for scores in (same, other):
        assert np.mean([hit for score in scores for hit in score.inside]) >= 0.9
        assert max(score.error for score in scores) < 0.05
