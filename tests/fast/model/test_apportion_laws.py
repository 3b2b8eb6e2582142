# SPDX-License-Identifier: Apache-2.0
"""Shares of an integer: exact in sum, and as close to their quota as whole units allow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model.split import apportion


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.lists(
                st.floats(0, 1e300, allow_nan=False) | st.integers(0, 5).map(float),
                min_size=1,
                max_size=9,
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_apportioning_is_exact_and_within_one_of_the_quota(
    parts: list[tuple[int, list[float]]],
) -> None:
    total = np.array([energy for energy, _ in parts], np.int64)
    window = np.repeat(np.arange(len(parts)), [len(w) for _, w in parts])
    weight = np.concatenate([np.array(w) for _, w in parts])
    share = apportion(total, window, weight)
    for k, (energy, weights) in enumerate(parts):
        mine = share[window == k]
        assert int(sum(mine.tolist())) == (energy if max(weights) > 0 else 0)
        assert (mine >= 0).all()
        quota = np.array(weights) / max(weights) if max(weights) > 0 else np.zeros(len(weights))
        quota = energy * quota / max(quota.sum(), 1e-300)
        assert (np.abs(mine - quota) <= 1 + 1e-12 * energy).all()


def test_equal_remainders_go_to_the_first() -> None:
    share = apportion(np.array([5]), np.zeros(4, np.int64), np.ones(4))
    assert share.tolist() == [2, 1, 1, 1]
