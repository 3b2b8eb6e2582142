# SPDX-License-Identifier: Apache-2.0
"""Sums over time stay exact when groups are folded, and when energy is moved among them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model.result import PARTS
from qjoule.report.buckets import Buckets, Cells, table_of

GROUPS, BUCKETS = 12, 7
added = st.lists(
    st.tuples(st.integers(0, GROUPS - 1), st.integers(0, BUCKETS - 1), st.integers(0, 2**50)),
    min_size=1,
    max_size=60,
)


@given(st.lists(added, min_size=1, max_size=6), st.integers(1, 200))
def test_folding_loses_nothing(chunks: list[list[tuple[int, int, int]]], most: int) -> None:
    kind = np.arange(GROUPS) % len(PARTS)
    cells = Cells(kind, most)
    expected = np.zeros((GROUPS, BUCKETS), np.int64)
    for chunk in chunks:
        group, bucket, energy = (np.array(column, np.int64) for column in zip(*chunk, strict=True))
        cells.add(group, bucket, energy)
        np.add.at(expected, (group, bucket), energy)
    by_kind = np.zeros((len(PARTS), BUCKETS), np.int64)
    np.add.at(by_kind, kind, expected)
    assert cells.of_kinds(BUCKETS).tolist() == by_kind.tolist()
    for kept in np.flatnonzero(~cells.folded).tolist():
        assert cells.of_groups([kept], BUCKETS).tolist() == expected[kept].tolist()


@given(st.data())
def test_moving_keeps_every_bucket(data: st.DataObject) -> None:
    cells = Cells(np.zeros(4, np.int64))
    before = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 10**12), min_size=BUCKETS, max_size=BUCKETS),
                           min_size=2, max_size=2))
    )  # fmt: skip
    for group, energy in enumerate(before):
        cells.add(np.full(BUCKETS, group), np.arange(BUCKETS), energy)
    taken = np.array([data.draw(st.integers(0, int(one.sum()))) for one in before])
    first = data.draw(st.integers(0, int(taken.sum())))
    given_ = np.array([0, 0, first, int(taken.sum()) - first])
    cells.move(np.array([*taken, 0, 0]), given_, BUCKETS)
    after = np.array([cells.of_groups([group], BUCKETS) for group in range(4)])
    assert after.sum(axis=0).tolist() == before.sum(axis=0).tolist()
    assert after.sum(axis=1).tolist() == [*(before.sum(axis=1) - taken), *given_[2:]]
    assert (after >= 0).all()


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=8),
    st.lists(st.integers(0, 10**15), min_size=1, max_size=8),
)
def test_a_table_has_its_sums(rows: list[int], columns: list[int]) -> None:
    missing = sum(rows) - sum(columns)
    (columns if missing > 0 else rows).append(abs(missing))
    found = table_of(np.array(rows), np.array(columns))
    assert (found >= 0).all()
    assert found.sum(axis=1).tolist() == rows
    assert found.sum(axis=0).tolist() == columns


@given(st.integers(0, 5000), st.integers(1, 700))
def test_buckets_are_whole_windows(windows: int, most: int) -> None:
    buckets = Buckets(np.arange(windows + 1, dtype=np.int64) * 20, most)
    assert buckets.count == min(windows, most)
    found = buckets.of_windows(np.arange(windows))
    assert sorted(set(found.tolist())) == list(range(buckets.count))
    assert buckets.edges_ns[[0, -1]].tolist() == [0, windows * 20]
