# SPDX-License-Identifier: Apache-2.0
"""What a calibration tells of a later load: its values, and how far they carry over."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model.arrays import EFFECTS
from qjoule.model.coefficients import THETA, Coefficients, PowerInterval
from qjoule.model.features import FEATURES
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.beliefs import belief_of, with_long_tails
from qjoule.model.fit.observed import Rows
from qjoule.model.power_model import PowerModel

SLEEPS = [f"{kind}{i}" for kind in "pq" for i in range(5)] + ["wp", "wc"]
LONG_TAILS = [f"p{i}" for i in range(5, 10)]
FIRST = 2  #: of `THETA` in the parameters of one zone


def belief(rows: Rows, coefficients: Coefficients) -> Prior:
    prior = PowerModel.of(coefficients, "package", [0], counters=True)
    return belief_of(prior, rows, coefficients.of("package"), dram=False)


def sigma(prior: Prior, name: str) -> float:
    index = FIRST + THETA.index(name)
    return float(np.sqrt(np.linalg.inv(prior.precision)[index, index]))


def some_rows(watts: list[float]) -> Rows:
    n = len(watts)
    features = np.zeros((n, 2, len(FEATURES)))
    features[:, 0, :6] = 0.5
    return Rows(
        np.array(watts),
        np.ones(n, bool),
        np.zeros(n, np.int64),
        np.full(n, 0.5),
        np.ones((n, 2)),
        features,
        np.array([0]),
        np.full((n, len(EFFECTS)), 0.1),
        np.array([0.5]),
        0.1,
    )


@given(
    watts=st.lists(st.floats(20, 200), min_size=30, max_size=60),
    tail_w=st.just(0.0) | st.floats(0.01, 20),
    relative_error=st.floats(1e-3, 0.3),
)
def test_a_calibration_of_sleeps_gives_another_load_their_mean_but_not_their_error(
    watts: list[float], tail_w: float, relative_error: float
) -> None:
    rows = some_rows(watts)
    values = {"a": 1.0, "t": 1.0, **dict.fromkeys(SLEEPS, tail_w)}
    errors = [relative_error * values.get(name, 0.0) for name in THETA]
    calibrated = Coefficients(
        **values,  # type: ignore[arg-type]
        idle_w={(0, "package"): PowerInterval(15.0, 14.0, 16.0)},
        shared_w={(0, "package"): 10.0},
        calibrated=True,
        covariance=tuple(tuple(row) for row in np.diag(np.square(errors)).tolist()),
    )
    known, unknown = belief(rows, calibrated), belief(rows, Coefficients())
    for name in SLEEPS:
        assert known.mean[FIRST + THETA.index(name)] == tail_w
        assert sigma(known, name) >= sigma(unknown, name) * 0.999
    for name in ("a", "t"):  # what a core's work costs does carry over
        assert sigma(known, name) < sigma(unknown, name)


@given(st.lists(st.floats(20, 200), min_size=30, max_size=60))
def test_windows_that_contradict_a_calibrated_rest_may_show_long_tails(watts: list[float]) -> None:
    """Only long tails become less certain, as much as without a calibration if rest is known."""
    rows = some_rows(watts)
    errors = np.diag(np.full(len(THETA), 1e-4)).tolist()
    calibrated = Coefficients(
        a=1.0,
        idle_w={(0, "package"): PowerInterval(15.0, 14.0, 16.0)},
        calibrated=True,
        covariance=tuple(tuple(row) for row in errors),
    )
    known = belief(rows, calibrated)
    wider = with_long_tails(known, rows, 1)
    unknown = Coefficients()
    prior = PowerModel.of(unknown, "package", [0], counters=True)
    rested = belief_of(prior, rows, unknown.of("package"), dram=False, long_tails=True)
    assert (wider.mean == known.mean).all()
    for name in THETA:
        before = known if name not in LONG_TAILS else rested
        assert sigma(wider, name) == pytest.approx(sigma(before, name), rel=1e-3)
