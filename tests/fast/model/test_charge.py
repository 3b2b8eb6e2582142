# SPDX-License-Identifier: Apache-2.0
"""The loops over rows in C: the same as Python, row by row, and no access out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model import _sweep
from qjoule.model.arrays import real_sums
from qjoule.model.charge import GroupsById, Ids, charge

SOME_IDS = st.one_of(st.integers(0, 12), st.integers(2**64 - 3, 2**64 - 1))
MARKED = st.lists(st.tuples(st.integers(-1, 5), st.booleans()), max_size=9)


@st.composite
def ids(draw: st.DrawFn, count: int) -> tuple[Ids, list[int]]:
    """Ids as Arrow may have them, and as a list, 0 for those that are not there."""
    values = draw(st.lists(SOME_IDS, min_size=count, max_size=count))
    array = np.array(values, np.uint64)
    if draw(st.booleans()):
        return Ids(array), values
    there = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    offset = draw(st.integers(0, 17))
    bits = np.packbits([*[True] * offset, *there, True], bitorder="little")
    return Ids(array, bits, offset), [v * t for v, t in zip(values, there, strict=True)]


@st.composite
def groups(draw: st.DrawFn, *, of_owners: bool) -> GroupsById:
    rows = draw(MARKED) + [(3, True)] * of_owners
    first = 0 if of_owners else draw(st.one_of(st.integers(1, 10), st.just(2**64 - 2)))
    rows = rows[: 2**64 - first]
    group = np.array([abs(g) if of_owners else g for g, _ in rows], np.int64)
    return GroupsById(first, group, np.array([marked for _, marked in rows], bool))


@given(st.data(), st.integers(0, 20))
def test_each_segment_is_charged_to_its_query_or_else_to_its_owner(
    data: st.DataObject, count: int
) -> None:
    query, plain = data.draw(ids(count))
    there = [number for number in plain if number]
    assert query.span == ((min(there), max(there)) if there else (0, 0))
    assert query.filled.tolist() == plain
    owners, queries = data.draw(groups(of_owners=True)), data.draw(groups(of_owners=False))
    numbers = st.integers(0, 2**32 - 1) | st.integers(0, 9)
    owner = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), np.uint32)
    t0_ns = np.arange(count) * 100
    t1_ns = t0_ns + 2 ** np.arange(count)  # so that each sum shows its summands
    charged = charge((t0_ns, t1_ns), owner, owners, query, queries)
    server_ns = named_ns = 0
    for i, (number, who) in enumerate(zip(plain, owner.tolist(), strict=True)):
        at = number - queries.first
        known = number > 0 and 0 <= at < len(queries.group)
        mine = min(who, len(owners.group) - 1)
        in_query = known and queries.group[at] >= 0
        assert charged.group[i] == (queries.group[at] if in_query else owners.group[mine])
        server_ns += 2**i * bool(in_query or owners.marked[mine])
        named_ns += 2**i * bool(known and queries.marked[at])
    assert (charged.server_ns, charged.named_ns) == (server_ns, named_ns)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(0, 3), st.integers(0, 4)), max_size=30))
def test_products_and_sums_are_added_in_order(rows: list[tuple[float, int, int]]) -> None:
    values = np.random.default_rng(1).normal(size=(5, 3))
    sums, expected = np.ones((4, 3)), np.ones((4, 3))
    share = np.array([share for share, _, _ in rows], float)
    row, window = (np.array([one[i] for one in rows], np.int64) for i in (1, 2))
    _sweep.add_products(sums, share, row, window, values, 3)
    for factor, r, w in rows:
        expected[r] += factor * values[w]
    assert sums.tolist() == expected.tolist()
    assert real_sums(row, share, 5).tolist() == np.bincount(row, share, 5).tolist()


ONE, ID, YES = np.zeros(1, np.int64), np.ones(1, np.uint64), np.ones(1, bool)
OWNER = np.zeros(1, np.uint32)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (0, np.zeros(2, np.int64)),
        (4, np.zeros(0, np.uint8)),
        (6, ONE[:0]),
        (10, YES[:0]),
        (11, np.zeros(2, np.int64)),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(place: int, wrong: Any) -> None:
    arguments: list[Any] = [ONE, ONE, OWNER, ID, None, 0, ONE, YES, 1, ONE, YES, ONE.copy()]
    _sweep.charge(*arguments)
    arguments[place] = wrong
    with pytest.raises(ValueError):
        _sweep.charge(*arguments)


@pytest.mark.parametrize("offset", [8, -1])
def test_bits_out_of_range_are_refused(offset: int) -> None:
    bits, rest = np.zeros(1, np.uint8), (ONE, YES, 1, ONE, YES, ONE.copy())
    with pytest.raises(ValueError):
        _sweep.charge(ONE, ONE, OWNER, ID, bits, offset, *rest)


@pytest.mark.parametrize("index", [-1, 1, 2**62])
def test_rows_out_of_range_are_refused(index: int) -> None:
    one, zero, wrong = np.ones(1), np.array([0]), np.array([index])
    with pytest.raises(IndexError):
        real_sums(wrong, one, 1)
    for row, window in ((wrong, zero), (zero, wrong)):
        with pytest.raises(IndexError):
            _sweep.add_products(one.copy(), one, row, window, one, 1)
    with pytest.raises(ValueError):
        _sweep.add_products(one.copy(), one, zero, np.array([0, 0]), one, 1)
