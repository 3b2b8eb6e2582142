# SPDX-License-Identifier: Apache-2.0
"""Solo moments, and the information that they add."""

from __future__ import annotations

import numpy as np
import pytest

from power_cases import FACTORS, calibrated, known
from qjoule.model.features import FEATURES, entry_features
from qjoule.model.fit.learner import Learner
from qjoule.model.power_model import PowerModel
from qjoule.model.solo import Moment, after, gained, narrowed, noise_of, solo_moments


def test_information_is_the_growth_of_log_det() -> None:
    random = np.random.default_rng(1)
    root = random.normal(size=(5, 5))
    covariance, slopes = root @ root.T, random.normal(size=(3, 5))
    noise_w = random.uniform(0.5, 2.0, 3)
    precision = np.linalg.inv(covariance)
    told = precision + (slopes / noise_w[:, None] ** 2).T @ slopes
    growth = 0.5 * (np.linalg.slogdet(told)[1] - np.linalg.slogdet(precision)[1])
    assert gained(covariance, slopes, noise_w) == pytest.approx(growth)
    assert after(covariance, slopes, noise_w) == pytest.approx(np.linalg.inv(told))


def test_longer_is_more_certain_and_never_certain() -> None:
    noises = [noise_of(50.0, 30.0, seconds) for seconds in (0.01, 0.1, 1.0, 10.0, 1e6)]
    assert noises == sorted(noises, reverse=True)
    assert noises[-1] == pytest.approx(0.25, rel=0.05)


def test_time_alone_narrows_the_factors_of_what_ran_together() -> None:
    """The first two of four statements always ran together: each factor is uncertain, and some
    seconds alone would tell it."""
    case = known(3, FACTORS, together=True)
    learner = Learner(case.series, (0,), calibrated(), 1_000_000)
    model: PowerModel = learner.learn([case.batch], keep=True)["package"]
    features = entry_features(case.batch.entries, len(case.batch.lost_ns))
    group = case.batch.entries.group
    found = {}
    for column in range(4):
        mine = features[group == column].sum(axis=0)
        ns = mine[FEATURES.index("cpu_ns")]
        found[column] = [narrowed(model, 0, column, mine / ns, s) for s in (1.0, 10.0)]
    for before, later in (pair for pairs in found.values() for pair in pairs):
        assert 0 < later <= before
    assert found[0][1][1] <= found[0][0][1], "ten seconds tell more than one"
    assert found[0][1][1] < 0.8 * found[0][1][0]


def test_solo_moments_are_windows_with_one_class_alone() -> None:
    busy = np.array([[9.0, 0], [5, 0], [0, 0], [0, 7], [96, 4], [90, 10], [0, 1], [0, 1]])
    expected = [Moment(0, 0, 2), Moment(1, 3, 1), Moment(0, 4, 1), Moment(1, 6, 2)]
    assert solo_moments(busy) == expected
    assert solo_moments(busy, 0.9)[2] == Moment(0, 4, 2)
    for nothing in (np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((3, 2))):
        assert solo_moments(nothing) == []
    for wrong in (np.zeros(3), np.array([[-1.0]]), np.array([[np.nan]])):
        with pytest.raises(ValueError, match="no CPU times"):
            solo_moments(wrong)
