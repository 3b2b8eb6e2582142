# SPDX-License-Identifier: Apache-2.0
"""Weights and splits: hardware counters, idle and shared power, several packages. Also: the loops
over rows in C.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import model_cases
from model_cases import Case
from power_cases import SHARED_W, Known, calibrated, known
from qjoule.model.arrays import Segments
from qjoule.model.charge import GroupsById, Ids, charge
from qjoule.model.coefficients import IDLE_POLICIES, Coefficients, IdlePolicy, PowerInterval
from qjoule.model.energy import Cause
from qjoule.model.split import Split, apportion

MS = 1_000_000


def case(**changed: Any) -> Case:
    """Two CPUs of one package, one window of 10 ms and 1 J; groups 0 and 1 run 5 ms each."""
    usual = Case(
        model_cases.machine(0, 0),
        model_cases.energy([0, 10 * MS], {(0, "package"): [10**9]}),
        model_cases.segments([(0, 5 * MS, 0, 0), (0, 5 * MS, 1, 1)]),
        (),
        Coefficients(),
        "separate",
    )
    return dataclasses.replace(usual, **changed)


def counted(valid: list[list[bool]], *counts: list[int]) -> Segments:
    plain = case().segments
    return dataclasses.replace(plain, counters=np.array(counts, np.uint64), valid=np.array(valid))


def energies(of_case: Case, domain: str = "package") -> list[int]:
    energy: list[int] = model_cases.run(of_case).ledger.domains[domain].energy_nj.tolist()
    return energy


ALL, NONE = [True, True, True], [False, False, False]


def test_shared_power_goes_by_time_and_only_while_somebody_runs() -> None:
    busy = case(
        segments=counted([ALL, ALL], [3000, 1, 1], [1000, 1, 1]),
        coefficients=Coefficients(shared_w={(0, "package"): 40.0}),
    )
    # Both run in the same 5 ms: 40 W are 0.2 J, split in halves; the other 0.8 J are split 3:1.
    assert energies(busy) == [700_000_000, 300_000_000]
    asleep = case(segments=model_cases.segments([]), coefficients=busy.coefficients)
    assert model_cases.run(asleep).ledger.domains["package"].idle_nj == 10**9


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62) | st.sampled_from([2**53 + 1, 2**60 + 1]),
            st.lists(st.floats(0, 1e300) | st.integers(0, 5).map(float), min_size=1, max_size=9),
        ),
        min_size=1,
        max_size=4,
    )
)
@example([(2**53 + 1, [0.0, 1.0])])
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
        assert not mine[np.array(weights) == 0].any(), "without weight there is no share"
        quota = np.array(weights) / max(weights) if max(weights) > 0 else np.zeros(len(weights))
        quota = energy * quota / max(quota.sum(), 1e-300)
        assert (np.abs(mine - quota) <= 1 + 1e-12 * energy).all()
    energy_nj = total // 8  # so that their sum is an int64
    assert (apportion(energy_nj.sum(keepdims=True), 0 * energy_nj, energy_nj) == energy_nj).all()


@pytest.mark.parametrize(
    ("valid", "counts", "coefficients", "joules"),
    [
        ([NONE, NONE], ([0, 0, 0], [0, 0, 0]), {}, [0.5, 0.5]),
        ([ALL, ALL], ([3000, 1, 1], [1000, 1, 1]), {}, [0.75, 0.25]),
        ([ALL, ALL], ([0, 1000, 0], [0, 0, 10]), {"a": 0, "b": 1, "c": 300}, [0.25, 0.75]),
        ([ALL, NONE], ([3000, 1, 1], [0, 0, 0]), {}, [0.5, 0.5]),  # taken at the window's rate
    ],
)
def test_energy_is_divided_by_weighted_counts_and_without_them_by_time(
    valid: list[list[bool]],
    counts: tuple[list[int], ...],
    coefficients: dict[str, Any],
    joules: list[float],
) -> None:
    counted_case = case(segments=counted(valid, *counts), coefficients=Coefficients(**coefficients))
    assert energies(counted_case) == [round(1e9 * value_j) for value_j in joules]


def test_bounds_of_what_is_divided() -> None:
    """Idle power is at most the energy; energy without CPUs is residual; unknown is nobody's."""
    key, bounds = (0, "package"), [0, 10 * MS]
    power = PowerInterval(1000.0, 0.0, 2000.0)
    idle = model_cases.run(case(coefficients=Coefficients(idle_w={key: power}))).ledger
    assert idle.domains["package"].idle_nj == 10**9
    nowhere = model_cases.energy(bounds, {(7, "package"): [10**9]})
    sums = model_cases.run(case(energy=nowhere)).ledger.domains["package"]
    assert (sums.residual_nj, sums.idle_nj) == (10**9, 0)
    unknown = model_cases.energy(bounds, {key: [10**9]}, {key: [Cause.GAP]})
    ledger = model_cases.run(case(energy=unknown)).ledger
    sums = ledger.domains["package"]
    assert (sums.energy_nj.tolist(), sums.measured_nj, ledger.unattributed) == ([0, 0], 0, 1)


# ---- what a package draws once, from the split to every reporter ---------------------------------

FACTORS = (1.2, 0.9, 1.0)


@pytest.fixture(scope="module")
def shared() -> Known:
    return known(3, FACTORS, windows=400)


@pytest.mark.parametrize("idle", IDLE_POLICIES)
def test_shared_energy_is_what_splits_call_shared_and_follows_time(
    shared: Known, idle: IdlePolicy
) -> None:
    """Errors of readings leave a few windows with less energy than the package draws once."""
    splits: list[Split] = []
    account = model_cases.account(
        *(shared.series, (0,), calibrated()),
        refit=False,
        idle=idle,
        closed=lambda _batch, _ledger, closed: splits.extend(closed),
    )
    account.add(shared.batch)
    sums = account.finish().domains["package"]
    assert sums.shared_nj.sum() == sum(int(split.entry_shared_nj.sum()) for split in splits) > 0
    assert (sums.shared_nj <= sums.energy_nj).all()
    entries = shared.batch.entries
    spent_ns = np.bincount(entries.group, entries.shared_ns, len(FACTORS))
    assert sums.shared_nj == pytest.approx(SHARED_W * spent_ns, rel=2e-3)


# --------------------------------------------------------------------------------------------------
#
# The loops over rows in C: the same as Python, row by row, and no access out of range.

SOME_IDS = st.one_of(st.integers(0, 12), st.integers(2**64 - 3, 2**64 - 1))
MARKED = st.lists(st.tuples(st.integers(-1, 5), st.booleans()), max_size=9)


@st.composite
def ids(draw: st.DrawFn, count: int) -> tuple[Ids, list[int]]:
    """Ids as Arrow may have them, and as a list, 0 for those that are not there."""
    values = draw(st.lists(SOME_IDS, min_size=count, max_size=count))
    array = np.array(values, np.uint64)
    if draw(st.booleans()):
        return Ids(array), values
    present = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    offset = draw(st.integers(0, 17))
    bits = np.packbits([*[True] * offset, *present, True], bitorder="little")
    return Ids(array, bits, offset), [v * t for v, t in zip(values, present, strict=True)]


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
    present = [number for number in plain if number]
    assert query.span == ((min(present), max(present)) if present else (0, 0))
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
        in_range = number > 0 and 0 <= at < len(queries.group)
        mine = min(who, len(owners.group) - 1)
        in_query = in_range and queries.group[at] >= 0
        assert charged.group[i] == (queries.group[at] if in_query else owners.group[mine])
        server_ns += 2**i * bool(in_query or owners.marked[mine])
        named_ns += 2**i * bool(in_range and queries.marked[at])
    assert (charged.server_ns, charged.named_ns) == (server_ns, named_ns)
