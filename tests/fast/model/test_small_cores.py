# SPDX-License-Identifier: Apache-2.0
"""Cores of two kinds: which CPUs are small, what work on them weighs, and older calibrations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power_cases import known
from qjoule.machine.core_kinds import read_small_cpus
from qjoule.model.arrays import Entries
from qjoule.model.coefficients import EFFECT_TERMS, THETA, WEIGHT_TERMS, Coefficients
from qjoule.model.features import basis, basis_slopes, entry_features

#: Not less than a nanosecond on either kind of core: shorter times do not exist.
PART = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
TERMS = st.lists(st.floats(0.01, 3.0), min_size=len(WEIGHT_TERMS), max_size=len(WEIGHT_TERMS))
#: Nothing that a miss or saturation costs depends on the kind of core.
WITHOUT_MISSES = np.array([1.0 * (name != "c") for name in THETA])


def some_entries() -> Entries:
    return known(1, (1.0, 1.0), windows=30).batch.entries


def on_small(entries: Entries, part: float) -> Entries:
    """The same entries with a part of their time and counts on small cores."""
    columns = (entries.cpu_ns.astype(np.float64), *entries.counters[:, :2].T)
    return replace(entries, small=part * np.stack(columns, axis=1))


@given(PART, TERMS)
def test_work_on_a_small_core_costs_e_times_as_much(part: float, terms: list[float]) -> None:
    theta = np.zeros(len(THETA))
    theta[: len(terms)] = terms
    theta *= WITHOUT_MISSES
    entries = some_entries()
    large = entry_features(entries, 30) @ basis(theta)
    mixed = entry_features(on_small(entries, part), 30) @ basis(theta)
    e = theta[THETA.index("e")]
    assert mixed == pytest.approx((1.0 - part + part * e) * large, rel=1e-9)


@given(TERMS)
def test_slopes_are_those_of_the_weight(terms: list[float]) -> None:
    theta = np.zeros(len(THETA))
    theta[: len(terms)] = terms
    for i, name in enumerate(WEIGHT_TERMS):
        step = np.zeros(len(THETA))
        step[i] = 1e-6
        numeric = (basis(theta + step) - basis(theta - step)) / 2e-6
        if name != "k":
            assert numeric == pytest.approx(basis_slopes(theta)[:, i], abs=1e-6)


def test_a_machine_of_one_kind_has_no_such_features() -> None:
    assert not entry_features(some_entries(), 30)[:, -4:].any()


def test_older_calibrations_keep_their_covariance() -> None:
    earlier = (*WEIGHT_TERMS[:-1], *EFFECT_TERMS[: EFFECT_TERMS.index("wc") + 1])
    diagonal = np.arange(1.0, len(earlier) + 1)
    plain = Coefficients().to_json_dict() | {"covariance": np.diag(diagonal).tolist()}
    for name in set(THETA) - set(earlier):
        del plain[name]
    covariance = np.array(Coefficients.from_json_dict(plain).covariance)
    variances = dict(zip(earlier, diagonal.tolist(), strict=True))
    assert np.diag(covariance).tolist() == [variances.get(name, 0.0) for name in THETA]


def sysfs_with(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "sys/devices" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "small"),
    [
        ({"cpu_core/cpus": "0-3\n", "cpu_atom/cpus": "4-6,9\n"}, (4, 5, 6, 9)),
        ({"cpu_core/cpus": "0-3\n"}, ()),
        ({"cpu_core/cpus": "0\n", "cpu_atom/cpus": "1-\n"}, ()),
        ({"cpu_core/cpus": "0\n", "cpu_atom/cpus": "1-99999\n"}, ()),
        ({f"system/cpu/cpu{i}/cpu_capacity": t for i, t in enumerate(("446", "1024"))}, (0,)),
        # Favoured cores of one kind are a little faster.
        ({f"system/cpu/cpu{i}/cpu_capacity": t for i, t in enumerate(("980", "1024"))}, ()),
        ({"system/cpu/cpu0/cpu_capacity": "x\n"}, ()),
        ({}, ()),
    ],
)
def test_the_kernel_names_small_cores(
    tmp_path: Path, files: dict[str, str], small: tuple[int, ...]
) -> None:
    assert read_small_cpus(sysfs_with(tmp_path, files)) == small
