# SPDX-License-Identifier: Apache-2.0
"""Laws of cost and carbon: they scale with energy and factors, and rows add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model.impact import Embodied, Factor, Factors, Impact, Steps, impact, mean_factor

energies = st.integers(0, 10**18)
rates = st.floats(0, 1e4)


def _factors(pue: float, price: float, carbon: float, grams: float) -> Factors:
    return Factors(pue, Factor(price, ""), "EUR", Factor(carbon, ""), Embodied(grams, ""))


def _values(found: Impact) -> list[float]:
    assert found.cost is not None
    assert found.gco2e is not None
    return [found.kwh.value, found.cost.value, found.gco2e.value, *found.cost.ci95]


factors = st.builds(_factors, st.floats(1, 10), rates, rates, rates)


@given(st.lists(energies, min_size=1, max_size=20), factors)
def test_rows_add_up(parts: list[int], given_factors: Factors) -> None:
    whole = sum(parts)
    rows = [impact(part, (part / 2, part), 1, whole, given_factors) for part in parts]
    total = impact(whole, (whole / 2, whole), 1, whole, given_factors)
    for column, value in zip(zip(*map(_values, rows), strict=True), _values(total), strict=True):
        assert math.fsum(column) == pytest.approx(value, rel=1e-9, abs=1e-300)


@given(energies, st.integers(1, 1000), factors, st.floats(0.1, 10))
def test_twice_the_energy_or_the_factor_is_twice_the_impact(
    energy: int, calls: int, given_factors: Factors, times: float
) -> None:
    assert given_factors.price
    assert given_factors.carbon
    assert given_factors.embodied
    plain = impact(energy, (0, 2.0 * energy), calls, 10**18, given_factors)
    more = impact(energy * times, (0, 2.0 * energy * times), calls, 10**18, given_factors)
    dearer = _factors(
        given_factors.pue,
        given_factors.price.per_kwh * times,
        given_factors.carbon.per_kwh * times,
        given_factors.embodied.grams * times,
    )
    scaled = impact(energy, (0, 2.0 * energy), calls, 10**18, dearer)
    assert plain.cost and more.cost and scaled.cost and plain.gco2e and scaled.gco2e
    assert more.cost.value == pytest.approx(plain.cost.value * times)
    assert scaled.cost.value == pytest.approx(plain.cost.value * times)
    assert scaled.gco2e.value == pytest.approx(plain.gco2e.value * times)
    assert plain.gco2e.per_call == pytest.approx(plain.gco2e.value / calls)


@given(st.lists(st.tuples(st.integers(0, 10**9), rates), min_size=2, max_size=30))
def test_a_mean_factor_keeps_the_total(windows: list[tuple[int, float]]) -> None:
    energy = np.array([one for one, _ in windows], float)
    values = np.array([value for _, value in windows])
    bounds = np.arange(len(windows) + 1) * 10**9
    mean = mean_factor(Steps(bounds[:-1], values, 10**9), bounds, energy)
    assert values.min() * (1 - 1e-9) - 1e-290 <= mean <= values.max() * (1 + 1e-9) + 1e-290
    if energy.sum() > 0:
        assert mean * energy.sum() == pytest.approx(
            float((energy * values).sum()), rel=1e-9, abs=1e-290
        )
