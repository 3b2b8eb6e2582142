# SPDX-License-Identifier: Apache-2.0
"""The parts of the fit: least squares, noise by frequency, slow drift, and coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.fft import dst
from scipy.linalg import solveh_banded
from scipy.signal import lfilter

from qjoule.errors import UsageError
from qjoule.model.coefficients import Coefficients, PowerInterval, Weights
from qjoule.model.fit import noise
from qjoule.model.fit.power import fit_power, solve_nonnegative
from qjoule.model.fit.warming import low_passed


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_no_step_from_the_solution_makes_it_better(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(size + 3, size))
    gram, moment = x.T @ x, random.normal(size=size)
    best = solve_nonnegative(gram, moment)
    assert (best >= 0).all()
    slope = gram @ best - moment
    scale = 1e-6 * (1.0 + np.abs(moment).max())
    assert (slope > -scale * 100).all()
    assert (np.abs(slope[best > 1e-9]) < scale * 100).all()


def test_a_matrix_that_rounding_made_indefinite_is_solved_all_the_same() -> None:
    x = np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 2.0], [2.0, 2.0, 4.0]])
    gram = x - np.eye(3) * 1e-9
    best = solve_nonnegative(gram, np.array([1.0, -1.0, 0.5]))
    assert np.isfinite(best).all()
    assert (best >= 0).all()


def test_noise_of_edges_and_white_noise_are_told_apart() -> None:
    random = np.random.default_rng(3)
    edges = random.normal(0, 2.0, 2001)
    white = random.normal(0, 0.5, 2000)
    power = noise.transform(edges[1:] - edges[:-1] + white) ** 2
    parts = noise.components(2000, 0.02)
    level = np.ones(4)
    for _ in range(10):
        level = noise.fit_spectrum(parts, power, level, np.full(4, 1e-9))
    assert level[0] == pytest.approx(4.0, rel=0.15)
    assert level[1] + level[2] == pytest.approx(0.25, rel=0.5)


def test_slow_drift_is_followed_and_what_is_unknown_is_bridged() -> None:
    random = np.random.default_rng(4)
    walk = np.cumsum(random.normal(0, 0.05, 1000))
    seen = walk + random.normal(0, 1.0, 1000)
    variance = np.ones(1000)
    variance[400:450] = np.inf
    seen[400:450] = 1e6
    found = noise.slow_part(seen, variance, 0.05**2)
    assert np.abs(found - walk).mean() < 0.35
    assert noise.slow_part(seen[:1], variance[:1], 1.0).tolist() == [0.0]


def test_coefficients_come_back_as_they_were_stored() -> None:
    rows = tuple(tuple(float(i == j) for j in range(7)) for i in range(7))
    made = Coefficients(
        a=1.5,
        covariance=rows,
        calibrated=True,
        idle_w={(0, "package"): PowerInterval(3.0, 2.0, 4.0), (1, "dram"): PowerInterval(1, 1, 1)},
        shared_w={(0, "package"): 5.0},
        others={"dram": Weights(0.0, 0.0, 2.0), "package/time": Weights(0.0, t=4.0)},
    )
    assert Coefficients.from_json_dict(made.to_json_dict()) == made


@pytest.mark.parametrize("rows", [1, 2, 3, 64, 389])
def test_transforms_and_solvers_give_what_scipy_gives(rows: int) -> None:
    random = np.random.default_rng(rows)
    columns = random.normal(size=(rows, 3))
    sines = dst(columns, type=1, axis=0, norm="ortho")
    np.testing.assert_allclose(noise.transform(columns), sines, rtol=0, atol=1e-14)
    low = lfilter([0.03], [1.0, -0.97], columns[:, 0])
    np.testing.assert_allclose(low_passed(columns[:, 0], np.full(rows, 0.97)), low, rtol=1e-12)
    if rows > 1:
        diagonal, right = 2.5 + random.random(rows), columns[:, 1]
        solution = solveh_banded(np.stack([np.full(rows, -1.2), diagonal]), right)
        np.testing.assert_allclose(noise.tridiagonal(diagonal, -1.2, right), solution, rtol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, [], {"a": "much"}, {"a": float("nan")}, {"a": -1.0}, {"more": 1.0}),
        *({"covariance": [[1.0]]}, {"covariance": 3}, {"idle_w": [{"package": 0}]}),
        {"idle_w": [{"package": 0, "domain": "package", "value": [1, 2]}]},
        {"others": {"dram": {"a": None}}},
    ],
)
def test_invalid_coefficients_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        Coefficients.from_json_dict(wrong)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_fit_of_what_is_no_number_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="no numbers"):
        fit_power(np.ones((4, 1)), np.array([1.0, wrong, 1.0, 1.0]))
