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
from qjoule.model.fit.power import fit_power, optima, solve_nonnegative
from qjoule.model.fit.warming import low_passed


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_no_step_from_the_nonnegative_solution_makes_it_better(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(size + 3, size))
    gram, moment = x.T @ x, random.normal(size=size)
    best = solve_nonnegative(gram, moment)
    assert (best >= 0).all()
    slope, tolerance = gram @ best - moment, 1e-4 * (1.0 + np.abs(moment).max())
    assert (slope > -tolerance).all()
    assert (np.abs(slope[best > 1e-9]) < tolerance).all()


def test_matrices_that_are_not_definite_are_solved_or_refused() -> None:
    x = np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 2.0], [2.0, 2.0, 4.0]])
    best = solve_nonnegative(x - np.eye(3) * 1e-9, np.array([1.0, -1.0, 0.5]))
    assert np.isfinite(best).all()
    assert (best >= 0).all()
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(np.linalg.LinAlgError), np.errstate(invalid="ignore"):
            optima(np.stack([np.eye(2), np.diag([1.0, wrong])]), np.ones((2, 2)))
        if not np.isfinite(wrong):
            with pytest.raises(ValueError, match="no numbers"):
                fit_power(np.ones((4, 1)), np.array([1.0, wrong, 1.0, 1.0]))


def test_standard_errors_are_those_of_many_repetitions() -> None:
    random = np.random.default_rng(2)
    x = random.random((200, 2)) + 1.0
    fits = [fit_power(x, x @ [1.0, 2.0] + random.normal(0, 0.3, 200)) for _ in range(300)]
    spread = np.std([one.coef for one in fits], axis=0)
    assert np.mean([np.sqrt(np.diag(one.cov)) for one in fits], axis=0) == pytest.approx(
        spread, rel=0.15
    )


def test_noise_of_edges_and_white_noise_are_told_apart() -> None:
    random = np.random.default_rng(3)
    edges, white = random.normal(0, 2.0, 2001), random.normal(0, 0.5, 2000)
    power = noise.transform(edges[1:] - edges[:-1] + white) ** 2
    parts, level = noise.components(2000, 0.02), np.ones(4)
    for _ in range(10):
        level = noise.fit_spectrum(parts, power, level, np.full(4, 1e-9))
    assert level[0] == pytest.approx(4.0, rel=0.15)
    assert level[1] + level[2] == pytest.approx(0.25, rel=0.5)


def test_slow_drift_is_followed_and_what_is_unknown_is_bridged() -> None:
    random = np.random.default_rng(4)
    walk = np.cumsum(random.normal(0, 0.05, 1000))
    seen, variance = walk + random.normal(0, 1.0, 1000), np.ones(1000)
    variance[400:450], seen[400:450] = np.inf, 1e6
    assert np.abs(noise.slow_part(seen, variance, 0.05**2) - walk).mean() < 0.35
    assert noise.slow_part(seen[:1], variance[:1], 1.0).tolist() == [0.0]


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


def test_coefficients_come_back_as_they_were_stored() -> None:
    made = Coefficients(
        a=1.5,
        covariance=tuple(map(tuple, np.eye(7).tolist())),
        calibrated=True,
        idle_w={(0, "package"): PowerInterval(3.0, 2.0, 4.0), (1, "dram"): PowerInterval(1, 1, 1)},
        shared_w={(0, "package"): 5.0},
        others={"dram": Weights(0.0, 0.0, 2.0), "package/time": Weights(0.0, t=4.0)},
    )
    assert Coefficients.from_json_dict(made.to_json_dict()) == made


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
