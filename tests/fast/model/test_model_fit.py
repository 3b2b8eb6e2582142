# SPDX-License-Identifier: Apache-2.0
"""The parts of the fit: least squares, noise by frequency, slow drift, and coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.errors import UsageError
from qjoule.model.coefficients import Coefficients, PowerInterval, Weights
from qjoule.model.fit.power import fit_power, solve_nonnegative


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


def test_standard_errors_are_those_of_many_repetitions() -> None:
    random = np.random.default_rng(2)
    x = random.random((200, 2)) + 1.0
    fits = [fit_power(x, x @ [1.0, 2.0] + random.normal(0, 0.3, 200)) for _ in range(300)]
    spread = np.std([one.coef for one in fits], axis=0)
    assert np.mean([np.sqrt(np.diag(one.cov)) for one in fits], axis=0) == pytest.approx(
        spread, rel=0.15
    )


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
        *(None, {"a": "much"}, {"a": float("nan")}, {"a": -1.0}, {"more": 1.0}),
        *({"covariance": [[1.0]]}, {"idle_w": [{"package": 0}]}, {"others": {"dram": {"a": None}}}),
    ],
)
def test_invalid_coefficients_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        Coefficients.from_json_dict(wrong)
