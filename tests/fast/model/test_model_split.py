# SPDX-License-Identifier: Apache-2.0
"""Weights and splits: hardware counters, idle and shared power, several packages."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import model_cases
from model_cases import Case
from qjoule.errors import UsageError
from qjoule.model.arrays import Segments
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.energy import Cause

MS = 1_000_000


def case(**changed: Any) -> Case:
    """Two CPUs of one package, one window of 10 ms and 1 J; groups 0 and 1 run 5 ms each."""
    made = Case(
        model_cases.machine(0, 0),
        model_cases.energy([0, 10 * MS], {(0, "package"): [10**9]}),
        model_cases.segments([(0, 5 * MS, 0, 0), (0, 5 * MS, 1, 1)]),
        (),
        Coefficients(),
        "separate",
    )
    return dataclasses.replace(made, **changed)


def counted(valid: list[list[bool]], *counts: list[int]) -> Segments:
    plain = case().segments
    return dataclasses.replace(plain, counters=np.array(counts, np.uint64), valid=np.array(valid))


ALL = [True, True, True]
NONE = [False, False, False]


def energies(made: Case, domain: str = "package") -> list[int]:
    energy: list[int] = model_cases.run(made).ledger.domains[domain].energy_nj.tolist()
    return energy


def test_without_counters_time_is_the_weight() -> None:
    assert energies(case()) == [500_000_000] * 2


def test_cycles_are_the_weight_where_they_are_counted() -> None:
    made = case(segments=counted([ALL, ALL], [3000, 1, 1], [1000, 1, 1]))
    assert energies(made) == [750_000_000, 250_000_000]


def test_coefficients_weigh_instructions_and_misses() -> None:
    both = counted([ALL, ALL], [0, 1000, 0], [0, 0, 10])
    made = case(segments=both, coefficients=Coefficients(a=0, b=1, c=300))
    assert energies(made) == [250_000_000, 750_000_000]


def test_an_unread_counter_is_taken_at_the_windows_rate_not_as_zero() -> None:
    assert energies(case(segments=counted([ALL, NONE], [3000, 1, 1], [0, 0, 0]))) == [
        500_000_000,
        500_000_000,
    ]


def test_a_counter_that_lies_is_not_believed() -> None:
    made = case(segments=counted([ALL, ALL], [3000, 1, 1], [2**63, 1, 1]))
    ran = model_cases.run(made)
    assert ran.anomalies.implausible_counters == 1
    assert ran.ledger.domains["package"].energy_nj.tolist() == [500_000_000] * 2


def test_dram_goes_by_misses() -> None:
    made = case(
        energy=model_cases.energy([0, 10 * MS], {(0, "package"): [10**9], (0, "dram"): [10**8]}),
        segments=counted([ALL, ALL], [1000, 1, 9], [1000, 1, 1]),
    )
    assert energies(made) == [500_000_000] * 2
    assert energies(made, "dram") == [90_000_000, 10_000_000]


def test_idle_power_is_never_more_than_the_energy() -> None:
    power = PowerInterval(1000.0, 0.0, 2000.0)
    made = case(coefficients=Coefficients(idle_w={(0, "package"): power}))
    ran = model_cases.run(made)
    assert ran.ledger.domains["package"].idle_nj == 10**9


def test_shared_power_goes_by_time_and_only_while_somebody_runs() -> None:
    made = case(
        segments=counted([ALL, ALL], [3000, 1, 1], [1000, 1, 1]),
        coefficients=Coefficients(shared_w={(0, "package"): 40.0}),
    )
    # Both run in the same 5 ms: 40 W are 0.2 J, split in halves; the other 0.8 J are split 3:1.
    assert energies(made) == [700_000_000, 300_000_000]
    asleep = case(segments=model_cases.segments([]), coefficients=made.coefficients)
    assert model_cases.run(asleep).ledger.domains["package"].idle_nj == 10**9


def test_packages_are_split_apart_and_psys_over_both() -> None:
    made = case(
        machine=model_cases.machine(0, 1),
        energy=model_cases.energy(
            [0, 10 * MS],
            {(0, "package"): [10**9], (1, "package"): [3 * 10**9], (0, "psys"): [6 * 10**9]},
        ),
    )
    assert energies(made) == [10**9, 3 * 10**9]
    assert energies(made, "psys") == [3 * 10**9] * 2


def test_energy_of_a_package_without_cpus_is_residual() -> None:
    made = case(energy=model_cases.energy([0, 10 * MS], {(7, "package"): [10**9]}))
    sums = model_cases.run(made).ledger.domains["package"]
    assert (sums.residual_nj, sums.idle_nj) == (10**9, 0)


def test_a_window_without_a_figure_gives_nobody_anything() -> None:
    key = (0, "package")
    made = case(energy=model_cases.energy([0, 10 * MS], {key: [10**9]}, {key: [Cause.GAP]}))
    ran = model_cases.run(made)
    assert energies(made) == [0, 0]
    assert (ran.ledger.unattributed, ran.ledger.domains["package"].measured_nj) == (1, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": -1.0},
        {"b": float("nan")},
        {"a": 0.0},
        {"idle_w": {(0, "package"): PowerInterval(5.0, 6.0, 7.0)}},
        {"shared_w": {(0, "package"): float("inf")}},
    ],
)
def test_coefficients_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Coefficients(**wrong)
