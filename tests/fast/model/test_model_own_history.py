# SPDX-License-Identifier: Apache-2.0
"""The interval of a figure's own past."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.model.own_history import LEAST, expected, leaves


def test_too_few_figures_have_no_interval() -> None:
    assert expected([1.0] * (LEAST - 1)) is None
    assert expected([1.0] * (LEAST - 1) + [0.0, float("inf")]) is None
    assert leaves((100.0, 200.0), [1.0] * (LEAST - 1)) is None


@pytest.mark.parametrize("n", [8, 30])
def test_the_next_figure_lies_within_nineteen_times_of_twenty(n: int) -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(2000):
        *past, now = np.exp(rng.normal(3, 0.4, n + 1)).tolist()
        ends = expected(past)
        assert ends is not None
        held += ends[0] <= now <= ends[1]
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_it_leaves_only_if_the_intervals_have_nothing_in_common() -> None:
    past = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98]
    low, high = expected(past) or (0.0, 0.0)
    assert 0.7 < low < 0.95
    assert 1.05 < high < 1.4
    assert leaves((high * 1.01, high * 2), past) == (low, high)
    assert leaves((low / 2, low * 0.99), past) == (low, high)
    assert leaves((high * 0.99, high * 2), past) is None
    assert leaves((low / 2, high * 2), past) is None
