# SPDX-License-Identifier: Apache-2.0
"""The loops over rows in C: the same as Python, row by row, and no access out of range."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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
