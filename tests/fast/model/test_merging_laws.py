# SPDX-License-Identifier: Apache-2.0
"""Rows that a learner merges from windows, and the moments in which one class ran alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power_cases import FACTORS, calibrated, known
from qjoule.model.arrays import EFFECTS, F64
from qjoule.model.coefficients import THETA
from qjoule.model.features import FEATURES, entry_features
from qjoule.model.fit.learner import Learner
from qjoule.model.fit.merging import merged
from qjoule.model.fit.observed import Rows, predict
from qjoule.model.fit.rows import thinned
from qjoule.model.solo import narrowed, noise_of

CLASSES = 3
SIZE = 2 + len(THETA) + CLASSES


def rows_of(seed: int, count: int, unknown: float = 0.0) -> Rows:
    """Windows of one zone in which classes come and go."""
    random = np.random.default_rng(seed)
    busy = random.random((count, CLASSES + 1)) * (random.random((count, CLASSES + 1)) < 0.4)
    features = np.zeros((count, CLASSES + 1, len(FEATURES)))
    features[:, :, FEATURES.index("cpu_ns")] = busy
    features[:, :, FEATURES.index("cycles")] = 3.0 * busy
    return Rows(
        power_w=random.uniform(10, 50, count),
        known=random.random(count) >= unknown,
        zone=np.zeros(count, np.int64),
        active=np.minimum(busy.sum(axis=1), 1.0),
        crowd=np.ones((count, CLASSES + 1)),
        features=features,
        classes=np.arange(CLASSES),
        effects=np.zeros((count, len(EFFECTS))),
        edge_w=np.array([0.5]),
        step_s=0.02,
    )


def value_of() -> F64:
    value = np.concatenate([[20.0, 8.0], np.zeros(len(THETA)), np.ones(CLASSES)])
    value[2 + THETA.index("a")] = 2.0
    return value


def information(rows: Rows, covariance: F64) -> F64:
    """Of all parameters, in units of `covariance`; a row counts by its length."""
    slopes = predict(rows, value_of())[1] * np.sqrt(rows.lengths_s)[:, None]
    root = np.linalg.cholesky(covariance)
    seen = slopes @ root
    return np.asarray(seen.T @ seen)


def covariance_of(seed: int) -> F64:
    root = np.random.default_rng(seed).normal(size=(SIZE, SIZE))
    return np.asarray(root @ root.T / SIZE + 1e-3 * np.eye(SIZE))


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 90), width=st.integers(2, 9))
def test_merging_conserves_time_energy_and_work_and_invents_no_information(
    seed: int, count: int, width: int
) -> None:
    """What separate rows tell, less what merged rows tell, is not negative in any direction; and
    the rows chosen lose no more than even ones."""
    rows, covariance = rows_of(seed, count, unknown=0.1), covariance_of(seed)
    made = merged(rows, width, covariance, value_of(), 1.0)
    lengths = np.rint(made.lengths_s / rows.step_s).astype(int)
    assert lengths.sum() == count
    assert (lengths >= min(width, count)).all()
    assert count < 2 * width or (lengths < 2 * width).all()
    ends = np.cumsum(lengths).tolist()
    assert made.known.tolist() == [rows.known[a:b].all() for a, b in pairwise([0, *ends])]
    for name in ("power_w", "active", "features", "effects"):
        before, after = getattr(rows, name), getattr(made, name)
        whole = np.tensordot(made.lengths_s, after, 1)
        np.testing.assert_allclose(whole, rows.step_s * before.sum(axis=0), rtol=1e-9, atol=1e-12)
    rows = rows_of(seed, count)
    made = merged(rows, width, covariance, value_of(), 1.0)
    apart, together = information(rows, covariance), information(made, covariance)
    assert np.linalg.eigvalsh(apart - together).min() > -1e-9 * max(np.trace(apart), 1.0)
    if count % width == 0:  # else even rows leave out the last windows
        even = information(thinned(rows, width), covariance)
        assert np.trace(together) >= np.trace(even) * (1 - 1e-6) - 1e-9


def test_time_alone_narrows_the_factors_of_what_ran_together() -> None:
    case = known(3, FACTORS, together=True)
    model = Learner(case.series, (0,), calibrated(), 1_000_000).learn([case.batch], keep=True)
    features = entry_features(case.batch.entries, len(case.batch.lost_ns))
    for column in range(4):
        mine = features[case.batch.entries.group == column].sum(axis=0)
        per_ns = mine / mine[FEATURES.index("cpu_ns")]
        power = model["package"]
        (before, one_s), (_, ten_s) = (narrowed(power, 0, column, per_ns, s) for s in (1.0, 10.0))
        assert 0 < ten_s <= one_s <= before
        assert column > 0 or ten_s < 0.8 * before
    noises = [noise_of(50.0, 30.0, seconds) for seconds in (0.01, 0.1, 1.0, 10.0, 1e6)]
    assert noises == sorted(noises, reverse=True)
    assert noises[-1] == pytest.approx(0.25, rel=0.05), "longer is more certain, never certain"
