# SPDX-License-Identifier: Apache-2.0
"""Cells of a memory: what adding, folding and ageing does to evidence."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from memory_cases import NAMES, NOW_S, USUAL, cell, changed
from qjoule.model.arrays import F64
from qjoule.model.fit.cell_algebra import arrow, folded, restricted
from qjoule.model.fit.cells import Cell, MemoryReport, union
from qjoule.model.fit.remembered import Asked, Now, recalled

ALL = np.arange(1, 20, dtype=np.uint64)
DAY_S = 86_400.0


def estimate(told: MemoryReport) -> tuple[F64, F64]:
    """Values and standard errors under a wide prior around 2 (fixed) and 1 (shapes)."""
    count = len(told.moment) - len(NAMES)
    weight = np.append(np.full(len(NAMES), 1e-4), np.full(count, 0.15**-2.0))
    mean = np.append(np.full(len(NAMES), 2.0), np.ones(count))
    covariance = np.linalg.inv(told.precision + np.diag(weight))
    return covariance @ (told.moment + weight * mean), np.sqrt(np.diag(covariance))


def of(cells: list[Cell], keys: np.ndarray = ALL[:3], now_s: float = NOW_S) -> MemoryReport:
    releases = np.full(len(keys), 7, np.uint64)
    return recalled(cells, Asked("package", NAMES, keys, releases), Now(now_s, USUAL))


def test_a_folded_cell_never_tells_more() -> None:
    for seed in range(8):
        one = cell(seed, 6)
        prior = np.diag(np.append(np.full(len(NAMES), 1e-6), np.full(6, 0.15**-2.0)))
        whole = restricted(one, NAMES, ALL[:6]).precision + prior
        less = restricted(arrow(one), NAMES, ALL[:6]).precision + prior
        assert np.linalg.eigvalsh(whole - less).min() > -1e-3 * whole.max()
        assert arrow(one).stored().is_sound


def test_evidence_never_counts_twice() -> None:
    a, b, c = cell(1), cell(2), cell(3)
    both = folded([a, b])
    assert union([a, a, b]) == union([b, a])
    assert [one.members.tolist() for one in union([a, both, c, b])] == [
        one.members.tolist() for one in union([c, both])
    ]
    assert len(union([both, folded([b, c])])) == 1  # they overlap: one of them must give way
    cells = [cell(seed, when_s=NOW_S - seed) for seed in range(6)]
    assert union([*cells[3:], *cells[:4], *cells]) == union(cells)
    assert union([*union(cells[:3]), *union(cells[3:])]) == union(cells)


def test_old_evidence_counts_less_and_less() -> None:
    """Evidence of the future ages as well: a clock was set back."""
    one = cell(5, windows=100_000)
    ages = [0.0, 60.0, 3600.0, 7 * DAY_S, 60 * DAY_S, 900 * DAY_S]
    told = [estimate(of([one], now_s=NOW_S + age)) for age in ages]
    assert all(abs(value[0] - 20.0) < 4 * sigma[0] for value, sigma in told)
    sigmas = [sigma for _, sigma in told]
    assert all((a <= b * (1 + 1e-9)).all() for a, b in pairwise(sigmas))
    # After an hour power at rest is known no better than it drifts; after a week, factors.
    assert sigmas[2][0] >= 0.9 * 0.02 * 20.0
    assert sigmas[3][len(NAMES) :].min() >= 0.024
    assert sigmas[5][len(NAMES) :].max() < 0.15
    assert np.allclose(estimate(of([one], now_s=NOW_S - 7 * DAY_S))[1], sigmas[3])
    many = [cell(seed, windows=50_000, when_s=NOW_S - 3600.0) for seed in range(40)]
    value, sigma = estimate(of(many))
    assert sigma[0] > 0.013 * 20.0, "a drift common to all is left"
    assert abs(value[0] - 20.0) < 4 * sigma[0]


def test_a_shape_that_changed_has_no_older_evidence() -> None:
    old, new = cell(1, when_s=NOW_S - 60), changed(cell(2, when_s=NOW_S), key=2)
    both, alone = (np.diag(of(cells).precision)[len(NAMES) :] for cells in ([old, new], [new]))
    assert both[1] == pytest.approx(alone[1], rel=0.05)
    assert both[0] > 1.5 * alone[0]
    assert 2 in folded([old, new]).keys[folded([old, new]).fresh]
