# SPDX-License-Identifier: Apache-2.0
"""Rows that a learner merges from windows, and the moments in which one class ran alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power_cases import FACTORS, Known, calibrated, known, learned
from qjoule.model.arrays import EFFECTS, F64
from qjoule.model.coefficients import THETA
from qjoule.model.features import FEATURES, entry_features
from qjoule.model.fit.learner import Learner
from qjoule.model.fit.merging import merged
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.predict import predict
from qjoule.model.fit.rows import thinned
from qjoule.model.solo import Moment, after, gained, narrowed, noise_of, solo_moments

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


def moments(seed: int, *, stretch: int = 4, share: float = 0.012) -> Known:
    """Two of four statements always run together, but for `share` of the windows: there, in
    stretches, one of the two runs alone."""
    random = np.random.default_rng([seed, 5])
    alone = np.full(1500, -1)
    for at in np.flatnonzero(random.random(1500) < share / stretch):
        alone[at : at + stretch] = random.integers(2)

    def busy(share: F64) -> F64:
        for one in TOGETHER:
            share[alone == one] = 0.0
            share[alone == one, one] = 0.9
        return share

    return known(seed, FACTORS, together=True, changed=busy)


TOGETHER = (0, 1)  #: the statements that hardly ever run alone


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


def test_windows_in_which_a_class_ran_alone_are_a_row_of_their_own() -> None:
    for first in range(20, 30):
        rows = rows_of(1, 60)
        rows.features[:, 1:] = 0.0
        rows.features[:, 0] = rows.features[30, 0] + 1.0
        rows.features[first : first + 4, 1] = rows.features[0, 0]
        rows.features[first : first + 4, 0] = 0.0
        made = merged(rows, 4, np.eye(SIZE), value_of(), 1.0)
        ns = made.features[:, :2, FEATURES.index("cpu_ns")]
        assert ((ns > 0).sum(axis=1) == 1).all(), "no row is a mixture"


def difference(case: Known) -> tuple[float, float]:
    """Error of the difference of the two statements' factors, and its standard error."""
    model = learned(case, calibrated()).models["package"]
    column = model.column(np.array(TOGETHER))
    at = [model.fixed + one for one in column.tolist()]
    (a, ab), (_, b) = model.covariance[np.ix_(at, at)].tolist()
    factors = model.factor[column]
    wrong = float(factors[0] - factors[1]) - (FACTORS[0] - FACTORS[1])
    return wrong, float(np.sqrt(a + b - 2 * ab))


def test_intervals_hold_and_moments_alone_narrow_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [moments(seed) for seed in range(24)]
    chosen = np.array([difference(case) for case in cases])
    assert (np.abs(chosen[:, 0]) < 1.96 * chosen[:, 1]).mean() >= 0.92

    def evenly(windows: Rows, even: Rows, _width: int, _belief: object) -> Rows:
        return even if len(even.power_w) < len(windows.power_w) else windows

    monkeypatch.setattr("qjoule.model.fit.learner.chosen", evenly)
    before = np.array([difference(case) for case in cases])
    assert np.mean(chosen[:, 1]) < 0.98 * np.mean(before[:, 1])


def test_information_is_the_growth_of_log_det() -> None:
    random = np.random.default_rng(1)
    root = random.normal(size=(5, 5))
    covariance, slopes = root @ root.T, random.normal(size=(3, 5))
    noise_w = random.uniform(0.5, 2.0, 3)
    precision = np.linalg.inv(covariance)
    posterior = precision + (slopes / noise_w[:, None] ** 2).T @ slopes
    growth = 0.5 * (np.linalg.slogdet(posterior)[1] - np.linalg.slogdet(precision)[1])
    assert gained(covariance, slopes, noise_w) == pytest.approx(growth)
    assert after(covariance, slopes, noise_w) == pytest.approx(np.linalg.inv(posterior))


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
