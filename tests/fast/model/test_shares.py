# SPDX-License-Identifier: Apache-2.0
"""Shares of the owners' energy and their intervals: laws that hold for any recording."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from model_cases import Case, cases
from qjoule.model import assemble, latency
from qjoule.model.arrays import F64, Renumbering
from qjoule.model.coefficients import Coefficients
from qjoule.model.combine_results import combine_results
from qjoule.model.energy import I64
from qjoule.model.group_errors import GroupErrors
from qjoule.model.interval import EnergyErrors
from qjoule.model.labels import GroupLabel, process
from qjoule.model.ledger import Ledger
from qjoule.model.power_model import PowerModel
from qjoule.model.provenance import Provenance
from qjoule.model.result import OWNERS, Attribution, TraceInfo, TracePart
from qjoule.model.sensitivity import Sensitivity
from qjoule.model.shares import Shares, shares_of

GROUPS = 6
LABELS = [GroupLabel("queries", (("fingerprint", f"{g}"),), server="db") for g in range(5)]
LABELS.append(process("bash"))


def shares(ledger: Ledger, record_loss: float = 0.0) -> Shares | None:
    """The shares of all groups of a ledger."""
    errors = ledger.share_errors(record_loss=record_loss, estimated=False)
    return shares_of(ledger.domains[ledger.main].energy_nj, errors, ledger.ci95())


def result(case: Case, *, refit: bool = False, grade: str = "simulated") -> Attribution:
    ledger = model_cases.run(case, refit=refit).ledger
    info = TraceInfo("db1", "6.1", "cpu", "", 1.0, True, {})
    about = Provenance(info, "replay", grade, record_loss=0.01)
    stats = latency.CallStats.none(len(LABELS))
    stats.calls[:] = 1
    return assemble.attribution(ledger, LABELS, stats, about)


@given(cases(), st.booleans(), st.sampled_from(["simulated", "estimated"]))
def test_shares_add_up_to_one_and_lie_within_their_intervals(
    case: Case, refit: bool, grade: str
) -> None:
    attributed = result(case, refit=refit, grade=grade)
    rows = [row for row in (*attributed.rows, *attributed.fixed) if row.kind in OWNERS]
    unowned = [row for row in (*attributed.rows, *attributed.fixed) if row.kind not in OWNERS]
    assert all(row.share is None and row.share_ci95 is None for row in unowned)
    if not attributed.main.owned_nj:
        assert all(row.share is None for row in rows)
        return
    assert sum(row.share or 0.0 for row in rows) == pytest.approx(1.0)
    assert sum(row.energy_nj for row in rows) == attributed.main.owned_nj
    highs, lows = sum(r.energy_nj_ci95[1] for r in rows), sum(r.energy_nj_ci95[0] for r in rows)
    for row in rows:
        assert row.share_ci95 is not None
        assert 0.0 <= row.share_ci95[0] <= (row.share or 0.0) <= row.share_ci95[1] <= 1.0
        # Never less certain than joules are, if everybody else's err the other way.
        low, high = row.energy_nj_ci95
        if row.energy_nj:
            share = row.share or 0.0
            assert row.share_ci95[0] >= min(low / max(low + highs - high, 1e-9), share) - 1e-9
            assert row.share_ci95[1] <= max(high / (high + lows - low), share) + 1e-9
    with_energy = [row for row in rows if row.energy_nj]
    others = [row.energy_nj_ci95[1] for row in rows if not row.energy_nj]
    if len(with_energy) == 1 and not any(others):
        assert with_energy[0].share_ci95 == (1.0, 1.0)


def test_who_alone_may_have_drawn_anything_has_all_of_it() -> None:
    """Even if the energy that it drew is not known from nothing."""
    energy_nj, high = np.array([1, 0]), np.array([9.0, 0.0])
    errors = EnergyErrors(*np.zeros((8, 2)))
    unknown = replace(errors, model_nj=high)
    values = shares_of(energy_nj, unknown, (np.zeros(2), high))
    assert values == ([1.0, 0.0], [1.0, 0.0], [1.0, 0.0])


@given(cases(), st.permutations(range(GROUPS)))
def test_the_order_of_groups_does_not_matter(case: Case, order: list[int]) -> None:
    group = np.array(order)
    has_group = case.segments.group < GROUPS
    renamed = replace(
        case.segments, group=np.where(has_group, group[case.segments.group % GROUPS], 9)
    )
    plain = replace(case.segments, group=np.where(has_group, case.segments.group, 9))
    plain_ledger = model_cases.run(replace(case, segments=plain)).ledger
    renamed_ledger = model_cases.run(replace(case, segments=renamed)).ledger
    for ledger in (plain_ledger, renamed_ledger):
        ledger.grow(10)
    first, second = shares(plain_ledger), shares(renamed_ledger)
    if first is None or second is None:
        assert first == second
        return
    total_nj = max(int(plain_ledger.domains[plain_ledger.main].energy_nj.sum()), 1)
    for mine, theirs in zip(first, second, strict=True):
        # Equal remainders of a nJ go to the first group, so energies may differ by some nJ.
        assert np.array(mine)[:GROUPS] == pytest.approx(
            np.array(theirs)[group], abs=200 / total_nj + 1e-6
        )


def model(covariance: F64) -> PowerModel:
    """Without any classes, of one package."""
    uncorrelated = PowerModel.of(Coefficients(), "package", [0], counters=True)
    return replace(uncorrelated, covariance=covariance)


@given(st.lists(st.floats(1.0, 1e9), min_size=1, max_size=5), st.integers(0, 10))
def test_what_moves_all_rows_alike_moves_no_share(energies: list[float], parameter: int) -> None:
    size = len(PowerModel.of(Coefficients(), "package", [0], counters=True).covariance)
    energy = np.array(energies)
    slopes = np.zeros((len(energy), size))
    slopes[:, parameter] = 0.3 * energy
    covariance = np.zeros((size, size))
    covariance[parameter, parameter] = 1.0
    sums = Sensitivity(slopes, np.zeros(len(energy)), energy)
    assert sums.sigma_nj(model(covariance)) == pytest.approx(0.3 * energy)
    of_shares = sums.of_shares(model(covariance))
    assert of_shares.sigma_nj == pytest.approx(np.zeros(len(energy)), abs=1e-6 * energy.sum())
    assert of_shares.total_nj == pytest.approx(0.3 * energy.sum())


def test_what_one_row_gains_from_another_moves_both_shares() -> None:
    size = len(PowerModel.of(Coefficients(), "package", [0], counters=True).covariance)
    slopes = np.zeros((2, size))
    slopes[:, 2] = 5.0, -5.0
    covariance = np.eye(size)
    sums = Sensitivity(slopes, np.zeros(2), np.array([30.0, 70.0]))
    of_shares = sums.of_shares(model(covariance))
    assert of_shares.sigma_nj == pytest.approx([5.0, 5.0])
    assert of_shares.total_nj == 0.0


def by_hand(window: I64, group: I64, x: F64) -> F64:
    """Variance of E - s T by the edges, from every edge of every window."""
    edges = np.zeros((GROUPS, int(window.max()) + 2))
    # Each window adds the error of its end and takes that of its begin.
    np.add.at(edges, (group, window + 1), x)
    np.add.at(edges, (group, window), -x)
    share = np.arange(1.0, GROUPS + 1) / np.arange(1.0, GROUPS + 1).sum()
    moved = edges - share[:, None] * edges.sum(axis=0)
    return np.asarray((moved**2).sum(axis=1))


@given(st.data(), st.integers(1, 12))
def test_edges_of_shares_are_those_of_every_window_at_any_cuts(
    data: st.DataObject, windows: int
) -> None:
    ran = [
        data.draw(st.lists(st.booleans(), min_size=GROUPS, max_size=GROUPS)) for _ in range(windows)
    ]
    window, group = np.nonzero(np.array(ran))
    if not len(window):
        return
    x = np.array(data.draw(st.lists(st.floats(0, 100), min_size=len(window), max_size=len(window))))
    sums = GroupErrors()
    sums.grow(GROUPS)
    cuts = sorted(data.draw(st.lists(st.integers(0, windows), max_size=3)))
    for begin, end in zip([0, *cuts], [*cuts, windows], strict=True):
        block = GroupErrors()
        block.grow(GROUPS)
        middle = data.draw(st.integers(begin, end))
        for low, high in ((begin, middle), (middle, end)):
            now = (window >= low) & (window < high)
            block.add_random(0, window[now], group[now], x[now])
        sums.merge(block)
    energy = np.arange(1, GROUPS + 1) * 1000
    expected = by_hand(window, group, x)
    random_nj2 = sums.of_shares(energy).random_nj2
    assert random_nj2 == pytest.approx(expected, rel=1e-6, abs=1e-6 * (x**2).sum() + 1e-9)


def test_a_row_that_ran_in_one_of_two_blocks_has_the_error_of_their_totals() -> None:
    size = len(PowerModel.of(Coefficients(), "package", [0], counters=True).covariance)
    covariance = np.zeros((size, size))
    covariance[0, 0] = 1.0
    sums = GroupErrors()
    sums.grow(2)
    for mine in (0, 1):
        slopes = np.zeros((2, size))
        slopes[mine, 0] = -10.0  # power at rest moves all that ran
        block = Sensitivity(slopes, np.zeros(2), np.array([100.0 * (mine == g) for g in (0, 1)]))
        of_shares = block.of_shares(model(covariance))
        sums.add_model(np.arange(2), block.sigma_nj(model(covariance)), of_shares)
    # Half of all each, and ten nJ more or less in either block: five nJ of each, at most.
    assert sums.of_shares(np.array([100, 100])).model_nj == pytest.approx([10.0, 10.0])


def test_joined_groups_are_never_more_certain_than_fully_correlated() -> None:
    sums = GroupErrors()
    sums.grow(3)
    window, group = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    of_block = np.array([0.5, 0.3, 0.2])
    sums.add_random(0, window, group, np.full(12, 3.0))
    for name, value in (("share_model_nj", 1.0), ("common_nj", 6 * of_block)):
        sums.add(name, np.arange(3), np.ones(3) * value)
    sums.add("common_nj2", np.arange(3), 6 * of_block**2)
    sums.total.model_nj = 6.0
    energy = np.array([10, 20, 30])
    apart = sums.of_shares(energy)
    sums.renumber(Renumbering(np.array([0, 0, 1]), 2))
    joined = sums.of_shares(np.array([30, 30]))
    assert joined.model_nj[0] <= apart.model_nj[0] + apart.model_nj[1] + 1e-9


@given(cases(tidy=True), cases(tidy=True))
def test_shares_of_several_traces_add_up_and_keep_their_intervals(
    first: Case, second: Case
) -> None:
    parts = [
        TracePart(name, result(replace(case, idle="separate")))
        for name, case in (("a", first), ("b", second))
    ]
    combined = combine_results(parts)
    rows = [row for row in (*combined.rows, *combined.fixed) if row.kind in OWNERS]
    if not combined.domains or not combined.main.owned_nj:
        return
    assert sum(row.share or 0.0 for row in rows) == pytest.approx(1.0)
    for row in rows:
        if row.share_ci95:
            assert 0.0 <= row.share_ci95[0] <= (row.share or 0.0) <= row.share_ci95[1] <= 1.0


@given(cases(tidy=True))
def test_a_trace_twice_has_the_shares_of_one(case: Case) -> None:
    part = result(case)
    combined = combine_results([TracePart("a", part), TracePart("b", part)])
    for row, same in zip((*combined.rows, *combined.fixed), (*part.rows, *part.fixed), strict=True):
        if row.kind not in OWNERS or not part.main.owned_nj:
            continue
        assert row.share == pytest.approx(same.share)
        assert row.share_ci95 is not None
        assert same.share_ci95 is not None
        # Errors of edges are independent in two recordings; all others are common.
        assert row.share_ci95[1] <= same.share_ci95[1] + 1e-6
        assert row.share_ci95[0] >= same.share_ci95[0] - 1e-6


@pytest.mark.parametrize(("windows", "unresolved"), [(1, True), (24, True), (25, False)])
def test_what_ran_for_less_than_a_window_is_resolved_by_many_windows(
    windows: int, unresolved: bool
) -> None:
    length_ns = 20_000_000
    ran_ns = length_ns // 2 // windows
    rows = [(n * length_ns, n * length_ns + ran_ns, 0, 0) for n in range(windows)]
    energies = model_cases.energy(
        [n * length_ns for n in range(51)], {(0, "package"): [30 * length_ns] * 50}
    )
    segments = model_cases.segments(rows)
    case = Case(model_cases.machine(0), energies, segments, (), Coefficients(), "separate")
    (row,) = [row for row in result(case).rows if row.cpu_ns]
    assert ("below_resolution" in row.flags) == unresolved
