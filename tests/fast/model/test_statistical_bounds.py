# SPDX-License-Identifier: Apache-2.0
"""Intervals of costs that cannot be negative contain everything that the data cannot exclude."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from qjoule.model import nonnegative
from qjoule.model.arrays import F64, Requests
from qjoule.model.energy import Series
from qjoule.model.labels import GroupLabel, background
from qjoule.model.ledger import Ledger
from qjoule.model.span_sums import Roles, SpanSums
from qjoule.model.spans import learn, settle
from qjoule.model.statistical import costs
from qjoule.servers.decoding import SERVING_THREADS

SPAN_NS = 250_000_000
REACH = 1.96


@dataclass(frozen=True)
class Served:
    """A server's CPU time in spans; `each`: the average cost of a request of each shape."""

    y: F64
    counts: F64
    each: F64

    @property
    def dt_ns(self) -> F64:
        return np.full(len(self.y), float(SPAN_NS))


def served(
    rng: np.random.Generator, truth: F64, spans: int, together: float, slow: float
) -> Served:
    """Requests in waves, separate for each shape or common to all (`together` 1).

    `slow`: how much the machine's speed varies because others use it. A client that waits for its
    replies then sends less, and each request costs more.
    """
    wave = rng.normal(0, 0.7, (spans, 1)), rng.normal(0, 0.7, (spans, len(truth)))
    speed = rng.normal(0, 1, spans)
    for span in range(1, spans):
        speed[span] = 0.7 * speed[span - 1] + np.sqrt(1 - 0.7**2) * speed[span]
    factor = np.exp(slow * speed)[:, None]
    rate = rng.uniform(20, 400, len(truth)) * np.exp(wave[0] * together + wave[1] * (1 - together))
    counts = rng.poisson(rate / factor).astype(np.float64)
    clean = (1e6 + counts @ truth) * factor[:, 0]
    y = np.maximum(clean + rng.normal(0, 100, spans) * np.sqrt(clean), 0.0)
    spent = (counts * factor).sum(axis=0) * truth
    return Served(y, counts, spent / np.maximum(counts.sum(axis=0), 1.0))


def shares(found: F64, of: Served) -> F64:
    """Shares of all CPU time used."""
    calls: F64 = of.counts.sum(axis=0)
    return found * calls / float(of.y.sum())


@pytest.mark.parametrize("slow", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("together", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("spans", [40, 400])
def test_intervals_hold_the_truth(spans: int, together: float, slow: float) -> None:
    """For costs between 1 and 1000, seeded: at least 95 %. No interval is exactly zero."""
    rng, held = np.random.default_rng(20261121), []
    for _ in range(40):
        truth = np.exp(rng.uniform(np.log(1e3), np.log(1e6), rng.integers(1, 6)))
        one = served(rng, truth, spans, together, slow)
        found = costs(one.y, one.counts, one.dt_ns)
        if found.reason:
            continue
        held += list((found.low <= one.each) & (one.each <= found.high))
        assert (shares(found.high, one) > 1e-4).all()
    assert len(held) > 60
    assert np.mean(held) >= 0.95


def test_loads_that_are_far_apart_stay_well_told() -> None:
    """To a few hundredths of the total; twice or half the true cost is outside the interval."""
    rng, wrong = np.random.default_rng(5), []
    for _ in range(20):
        truth = rng.uniform(5_000, 60_000, 4)
        one = served(rng, truth, 150, 0.0, 0.0)
        found = costs(one.y, one.counts, one.dt_ns)
        assert found.told.all()
        assert found.apart.all()
        assert (shares(found.high - found.low, one) / 2 < 0.05).all()
        wrong += list(found.high > 2 * one.each) + list(found.low < one.each / 2)
    assert np.mean(wrong) <= 0.05


def test_of_shapes_that_always_come_together_each_may_be_all_of_it() -> None:
    rng = np.random.default_rng(3)
    one = served(rng, np.array([3e4]), 400, 0.0, 0.05)
    found = costs(one.y, np.repeat(one.counts, 3, axis=1), one.dt_ns)
    both = costs(one.y, one.counts, one.dt_ns)
    assert not found.apart.any()
    assert (found.low < 0.05 * both.value).all()
    assert (found.high > 0.9 * both.value).all()
    assert (found.high < 1.3 * both.high).all()


@pytest.mark.parametrize("alike", [1, 2, 8, 64])
@pytest.mark.parametrize("wrong", [0.0, 1e-12, 1e-6])
def test_what_fits_without_any_error_is_told_all_the_same(alike: int, wrong: float) -> None:
    rng = np.random.default_rng(4)
    counts = np.repeat(rng.poisson(100, (300, 1)).astype(np.float64), alike, axis=1)
    y = (1e6 + counts.sum(axis=1) * 3e4) * (1 + wrong * rng.normal(0, 1, 300))
    found = costs(y, counts, np.full(300, float(SPAN_NS)))
    assert found.value.sum() == pytest.approx(alike * 3e4, rel=1e-3)
    assert (found.low <= 3.01e4).all()
    assert (found.high >= 2.99e4).all()
    assert (found.high <= y.sum() / counts.sum(axis=0)).all()


def test_a_cost_below_nothing_widens_all_and_is_never_nothing_for_certain() -> None:
    """Least squares gives a cost below zero for one shape, and a narrow interval: both are
    wrong.
    """
    rng = np.random.default_rng(7)
    gets = rng.poisson(200, 60).astype(np.float64)
    sorts = rng.poisson(np.maximum(gets / 5 + rng.normal(0, 4, 60), 1)).astype(np.float64)
    y = 1e6 + 3e5 * sorts - 2e4 * gets + 4e6 + rng.normal(0, 1e4, 60)
    found = costs(y, np.column_stack([gets, sorts]), np.full(60, float(SPAN_NS)))
    assert found.value[0] == found.low[0] == 0
    assert found.high[0] * gets.sum() > 0.05 * y.sum()


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(0.0, 0.99))
def test_ends_are_those_of_all_that_fits(seed: int, size: int, alike: float) -> None:
    """Against a search over all quantities at once: the same ends, or slightly wider."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(0, 1, (size, size)) * (1 - alike) + alike * rng.normal(0, 1, (size, 1))
    covariance = factors @ factors.T + 0.01 * np.eye(size)
    centre = rng.normal(0, 2, size)
    low, high = nonnegative.interval(centre, covariance, REACH)
    found, misfit = nonnegative.least(centre, covariance)
    assert (low <= found).all()
    assert (found < high).all()
    rows = np.linalg.inv(np.linalg.cholesky(covariance))
    sigma = np.sqrt(np.diag(covariance))
    for one in range(size):

        def fits(at: float, one: int = one) -> bool:
            others = np.delete(rows, one, axis=1)
            left = rows @ centre - rows[:, one] * at
            off = nnls(others, left)[1] if size > 1 else np.linalg.norm(left)
            return bool(off**2 <= misfit + REACH**2 + 1e-9)

        assert not fits(high[one] + 0.01 * sigma[one])
        assert fits(high[one] - 0.01 * sigma[one])
        assert low[one] == 0 or not fits(low[one] - 0.01 * sigma[one])
        assert low[one] + 0.01 * sigma[one] > found[one] or fits(low[one] + 0.01 * sigma[one])


def test_many_costs_at_once_stay_finite() -> None:
    """More negative costs than are searched together: intervals get wider, and nothing breaks."""
    rng = np.random.default_rng(1)
    centre = rng.normal(-1, 1, 64)
    covariance = 0.9 + 0.1 * np.eye(64)
    low, high = nonnegative.interval(centre, covariance, REACH)
    assert np.isfinite(high).all()
    assert (low >= 0).all()
    assert (high > 0).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.3]))
def test_rows_and_what_stays_add_up_and_no_row_is_sure_of_nothing(
    seed: int, together: float, slow: float
) -> None:
    """To the nanojoule. A row's interval contains its joules, up to all the joules to be
    divided.
    """
    rng = np.random.default_rng(seed)
    truth = np.exp(rng.uniform(np.log(1e3), np.log(1e6), 3))
    one = served(rng, truth, 60, together, slow)
    labels = [
        *(
            GroupLabel("queries", (("tag:t", str(n)),), str(n), "c", "tag", named=True)
            for n in range(3)
        ),
        background("c", "kvd", "none"),
    ]
    bounds = np.arange(61, dtype=np.int64) * SPAN_NS
    ledger = Ledger((Series(0, "package", 1e-6),), (0,))
    ledger.grow(len(labels))
    ledger.spans = spans = SpanSums(Roles(labels, SERVING_THREADS))
    spans.add_time(bounds)
    used = np.rint(one.y).astype(np.int64)
    sums = ledger.domains["package"]
    sums.energy_nj[3] = there = int(used.sum())
    spans.add_used("package", bounds[:-1], np.full(60, 3), used)
    window, group = np.nonzero(one.counts)
    spans.add_requests(bounds, Requests(window, group, one.counts.astype(np.int64)[window, group]))
    settle(ledger, learn(ledger))
    assert int(sums.energy_nj.sum()) == there
    assert (sums.energy_nj >= 0).all()
    low, high = sums.errors.ci95(sums.energy_nj)
    assert (low <= sums.energy_nj).all()
    assert (sums.energy_nj <= high).all()
    asked = one.counts.sum(axis=0) > 0
    assert (high[:3][asked] > 1e-4 * there).all()
    assert (high[:3] <= 1.1 * there).all()
