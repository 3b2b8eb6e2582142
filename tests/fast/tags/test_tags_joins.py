# SPDX-License-Identifier: Apache-2.0
"""Lookups among calls."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags.joins import distinct_pairs


@given(
    st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 3) | st.integers(0, 65535)), max_size=40)
)
def test_every_pair_stands_where_it_stood(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    found = distinct_pairs(a, b)
    assert [pair for _, pair in found] == sorted(set(pairs))
    for where, pair in found:
        assert where.tolist() == [at for at, other in enumerate(pairs) if other == pair]
