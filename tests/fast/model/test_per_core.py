# SPDX-License-Identifier: Apache-2.0
"""Counters of single cores tell classes apart that a package's power cannot, and are not used where
they disagree with the package.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_cases import Simulated, evidence_of, ledger_of, simulated, with_cores
from qjoule.model.arrays import F64
from qjoule.model.energy import Cause
from qjoule.model.ledger import Ledger

APART = (1.3, 0.75, 1.0, 1.05)  #: groups 0 and 1 run at the same times


def errors(case: Simulated, ledger: Ledger) -> F64:
    """(4,) relative errors of the groups' energy."""
    energy_nj = ledger.domains["package"].energy_nj[:4]
    return np.abs(energy_nj / case.energy_nj - 1.0)


def widths(ledger: Ledger) -> F64:
    low, high = ledger.ci95()
    return np.asarray(high - low)[:4]


def test_cores_tell_apart_what_the_package_cannot() -> None:
    for seed in range(3):
        case = simulated(seed, APART)
        blind, seeing = ledger_of(case, cores=False), ledger_of(case)
        assert errors(case, seeing)[:2].max() < errors(case, blind)[:2].max() / 2
        assert widths(seeing)[:2].max() < widths(blind)[:2].max()
        assert (blind.core_blocks, seeing.core_blocks) == (0, 2)


def test_every_joule_has_an_owner_and_the_ledger_none_of_the_cores() -> None:
    case = simulated(3, APART)
    ledger = ledger_of(case)
    assert list(ledger.domains) == ["package"]
    sums = ledger.domains["package"]
    assert sums.measured_nj == int(case.package.energy_nj.sum())
    assert int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj == sums.measured_nj


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    random, inside = np.random.default_rng(5), []
    for seed in range(20):
        factors = tuple(np.clip(random.normal(1.0, 0.15, 4), 0.6, 1.5))
        case = simulated(100 + seed, factors)
        low, high = ledger_of(case).ci95()
        inside += ((low[:4] <= case.energy_nj) & (case.energy_nj <= high[:4])).tolist()
    assert np.mean(inside) > 0.88


def test_pieces_do_not_change_the_result() -> None:
    case = simulated(4, APART, seconds=70)
    at_once, pieces = ledger_of(case), ledger_of(case, cuts=23)
    assert at_once.core_blocks == pieces.core_blocks == 3
    assert np.array_equal(at_once.domains["package"].energy_nj, pieces.domains["package"].energy_nj)
    assert [a.tolist() for a in at_once.ci95()] == [a.tolist() for a in pieces.ci95()]


def broken(case: Simulated, how: str) -> Simulated:
    drawn = case.cores.energy_nj.astype(np.float64)
    if how == "more":
        return with_cores(case, drawn * (1.2 * case.package.energy_nj.sum() / drawn.sum()))
    if how == "still":
        drawn[5] = 0.0
        return with_cores(case, drawn)
    cause = case.cores.cause.copy()
    cause[2, 10:15] = Cause.IMPLAUSIBLE
    return replace(case, cores=replace(case.cores, cause=cause))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("more", "cores of package 0 show more than the package"),
        ("still", "that of core 5 stands still while the core is busy"),
        ("jumps", "that of core 2 jumps"),
    ],
)
def test_counters_that_disagree_are_not_used_and_the_reason_is_said(how: str, reason: str) -> None:
    case = simulated(6, APART, seconds=29)
    blind, seeing = ledger_of(case, cores=False), ledger_of(broken(case, how))
    assert seeing.notes == blind.notes | {f"counters of single cores are not used: {reason}": 1}
    assert seeing.core_blocks == 0
    assert (
        seeing.domains["package"].energy_nj.tolist() == blind.domains["package"].energy_nj.tolist()
    )


@settings(deadline=None)
@given(st.integers(0, 10**6), st.lists(st.floats(0.5, 2.0), min_size=4, max_size=4))
def test_evidence_is_no_more_than_a_class_s_cores_can_tell(seed: int, factors: list[float]) -> None:
    """The evidence's precision is positive, touches neither power at rest nor what is shared, and
    says less of each factor than the deviation that is allowed between cores and package."""
    case = simulated(seed, tuple(factors), seconds=12)  # type: ignore[arg-type]
    evidence, value = evidence_of(case)
    told = evidence(value)
    precision, moment = told.precision, told.moment
    assert np.allclose(precision, precision.T)
    scale = np.sqrt(np.maximum(np.diag(precision), 1e-300))
    assert np.linalg.eigvalsh(precision / np.outer(scale, scale)).min() > -1e-6
    assert not precision[:2].any() and not moment[:2].any()
    assert np.diag(precision)[evidence.fixed :].max() <= (0.4 * evidence.spread) ** -2 * (1 + 1e-9)
