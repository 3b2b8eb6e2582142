# SPDX-License-Identifier: Apache-2.0
"""Laws of comparisons: what leaves them unchanged, and what inverts them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model.arrays import F64
from qjoule.model.run_ratios import log_ratios

positive = st.floats(1e-9, 1e9)


def _figures(seed: int, runs: int) -> F64:
    rng = np.random.default_rng(seed)
    found: F64 = np.exp(rng.normal(rng.normal(0, 3), 0.1, (3, runs)))
    return found


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


@given(st.integers(0, 2**32), st.integers(2, 6), st.floats(0, 2), st.floats(0, 2))
def test_a_common_error_only_widens(seed: int, n: int, down: float, up: float) -> None:
    a, b = _figures(seed, n), _figures(seed + 1, n)
    slack = np.array([[down] * 3, [up] * 3])
    low, high = log_ratios(a, b).interval()
    wide_low, wide_high = log_ratios(a, b, slack=slack).interval()
    assert (wide_low <= low).all()
    assert (wide_high >= high).all()


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_the_order_of_runs_changes_nothing(seed: int, n: int) -> None:
    a, b = _figures(seed, n), _figures(seed + 1, n)
    turned = log_ratios(a[:, ::-1], np.roll(b, 1, axis=1))
    np.testing.assert_allclose(turned.interval(), log_ratios(a, b).interval())
