# SPDX-License-Identifier: Apache-2.0
"""Comparisons of runs, and of a figure with its own past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.live.triggers import LEAST, expected, leaves
from qjoule.model.arrays import F64
from qjoule.model.run_ratios import log_ratios

positive = st.floats(1e-9, 1e9)


def _figures(seed: int, runs: int) -> F64:
    rng = np.random.default_rng(seed)
    figures: F64 = np.exp(rng.normal(rng.normal(0, 3), 0.1, (3, runs)))
    return figures


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 6), positive)
def test_a_factor_that_both_sides_have_cancels(seed: int, n: int, m: int, factor: float) -> None:
    a, b = _figures(seed, n), _figures(seed + 1, m)
    plain, scaled = log_ratios(a, b), log_ratios(a * factor, b * factor)
    np.testing.assert_allclose(scaled.interval(), plain.interval(), rtol=1e-6)


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 6))
def test_the_other_way_round_is_the_inverse(seed: int, n: int, m: int) -> None:
    a, b = _figures(seed, n), _figures(seed + 1, m)
    (low, high), (low2, high2) = log_ratios(a, b).interval(), log_ratios(b, a).interval()
    np.testing.assert_allclose(low * high2, 1.0)
    np.testing.assert_allclose(high * low2, 1.0)


def test_a_figures_past_holds_the_next_one_in_nineteen_of_twenty_cases() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(2000):
        *past, now = np.exp(rng.normal(3, 0.4, LEAST + 1)).tolist()
        low, high = expected(past) or (np.inf, 0.0)
        held += low <= now <= high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_figure_leaves_its_past_only_if_the_intervals_do_not_meet() -> None:
    past = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98]
    low, high = expected(past) or (0.0, 0.0)
    assert leaves((high * 1.01, high * 2), past) == (low, high)
    assert leaves((low / 2, low * 0.99), past) == (low, high)
    assert leaves((high * 0.99, high * 2), past) is None
    assert leaves((low / 2, high * 2), past) is None
    assert leaves((100.0, 200.0), past[: LEAST - 1]) is None
    assert expected([*past[: LEAST - 1], 0.0, float("inf")]) is None
