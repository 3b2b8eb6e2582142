# SPDX-License-Identifier: Apache-2.0
"""Cells of a memory: what adding, folding and ageing does to evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from memory_cases import HERE, NAMES, NOW_S, USUAL, cell, changed, rest_cell
from qjoule.machine import memory_file
from qjoule.machine.memory import Memory
from qjoule.model.arrays import F64
from qjoule.model.fit.cell_algebra import arrow, folded, restricted
from qjoule.model.fit.cells import Cell, Told, union
from qjoule.model.fit.remembered import Asked, Now, recalled

ALL = np.arange(1, 20, dtype=np.uint64)
DAY_S = 86_400.0


def estimate(told: Told) -> tuple[F64, F64]:
    """Values and standard errors under a wide prior around 2 (fixed) and 1 (shapes)."""
    count = len(told.moment) - len(NAMES)
    weight = np.append(np.full(len(NAMES), 1e-4), np.full(count, 0.15**-2.0))
    mean = np.append(np.full(len(NAMES), 2.0), np.ones(count))
    covariance = np.linalg.inv(told.precision + np.diag(weight))
    return covariance @ (told.moment + weight * mean), np.sqrt(np.diag(covariance))


def of(cells: list[Cell], keys: np.ndarray = ALL[:3], now_s: float = NOW_S) -> Told:
    releases = np.full(len(keys), 7, np.uint64)
    return recalled(cells, Asked("package", NAMES, keys, releases), Now(now_s, USUAL))


def test_evidence_of_this_moment_and_domain_is_recalled_as_it_was() -> None:
    one = cell(1)
    told = of([one])
    assert np.allclose(told.precision, np.block([[one.fixed, one.cross.T], [one.cross, one.own]]))
    assert np.allclose(told.moment, one.moment)
    assert not of([cell(1, domain="dram"), cell(1, domain="package/time")]).precision.any()


def test_integrating_a_shape_out_agrees_with_its_marginal() -> None:
    one = cell(2)
    value, sigma = estimate(restricted(one, NAMES, ALL[:3]))
    fewer, wider = estimate(restricted(one, NAMES, ALL[:2]))
    assert np.allclose(fewer, value[:-1], rtol=1e-6)
    assert np.allclose(wider, sigma[:-1], rtol=1e-6)
    named = restricted(one, (*NAMES[:-1], "a_later_parameter"), ALL[:3]).precision
    assert not named[len(NAMES) - 1].any()
    assert np.linalg.eigvalsh(named).min() > -1e-6 * named.max()


def test_a_folded_cell_never_tells_more() -> None:
    for seed in range(8):
        one = cell(seed, 6)
        prior = np.diag(np.append(np.full(len(NAMES), 1e-6), np.full(6, 0.15**-2.0)))
        whole = restricted(one, NAMES, ALL[:6]).precision + prior
        less = restricted(arrow(one), NAMES, ALL[:6]).precision + prior
        assert np.linalg.eigvalsh(whole - less).min() > -1e-3 * whole.max()
        assert arrow(one).stored().is_sound


def test_a_shape_that_ran_alone_keeps_all_of_its_evidence_when_folded() -> None:
    one = cell(4, 1)
    before, sigma = estimate(restricted(one, NAMES, ALL[:1]))
    after, folded_sigma = estimate(restricted(arrow(one), NAMES, ALL[:1]))
    assert np.allclose(before, after, rtol=1e-3)
    assert np.allclose(sigma, folded_sigma, rtol=2e-2)


def test_folding_adds_up() -> None:
    cells = [cell(seed, 2, first=seed) for seed in (1, 2, 3)]
    apart = [restricted(arrow(one), NAMES, ALL[:4]) for one in cells]
    whole = restricted(folded(cells), NAMES, ALL[:4])
    precision, moment = (np.sum(parts, axis=0) for parts in zip(*apart, strict=True))
    assert np.allclose(whole.precision, precision, rtol=1e-5)
    assert np.allclose(estimate(whole)[0], estimate(Told(whole.precision, moment))[0], rtol=1e-3)


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
    sigmas = [estimate(of([one], now_s=NOW_S + age))[1] for age in ages]
    assert all((a <= b * (1 + 1e-9)).all() for a, b in pairwise(sigmas))
    # After an hour power at rest is known no better than it drifts; after a week, factors.
    assert sigmas[2][0] >= 0.9 * 0.02 * 20.0
    assert sigmas[3][len(NAMES) :].min() >= 0.024
    assert sigmas[5][len(NAMES) :].max() < 0.15
    assert np.allclose(estimate(of([one], now_s=NOW_S - 7 * DAY_S))[1], sigmas[3])
    many = [cell(seed, windows=50_000, when_s=NOW_S - 3600.0) for seed in range(40)]
    assert estimate(of(many))[1][0] > 0.013 * 20.0, "a drift common to all is left"


@pytest.mark.parametrize("name", ["kernel", "governor", "frequency", "microcode"])
def test_other_conditions_widen(name: str) -> None:
    one = cell(5, windows=100_000)
    other = replace(one, conditions=USUAL._replace(**{name: "another"}))
    unknown = replace(one, conditions=USUAL._replace(**{name: ""}))
    usual, wider, same = (estimate(of([a], now_s=NOW_S + DAY_S))[1] for a in (one, other, unknown))
    assert (wider[0] > 1.5 * usual[0]) and (wider[-1] > 1.3 * usual[-1])
    assert np.allclose(same, usual)


def test_another_release_of_the_server_widens_its_shapes_alone() -> None:
    one = cell(5, windows=100_000)
    other = replace(one, releases=np.array([7, 8, 7], np.uint64))
    usual, wider = (estimate(of([a]))[1][len(NAMES) :] for a in (one, other))
    assert wider[1] > 0.05 > 2 * usual[1]
    assert wider[0] < 2 * usual[0]


def test_a_shape_that_changed_has_no_older_evidence() -> None:
    old, new = cell(1, when_s=NOW_S - 60), changed(cell(2, when_s=NOW_S), key=2)
    both, alone = (np.diag(of(cells).precision)[len(NAMES) :] for cells in ([old, new], [new]))
    assert both[1] == pytest.approx(alone[1], rel=0.05)
    assert both[0] > 1.5 * alone[0]
    assert 2 in folded([old, new]).keys[folded([old, new]).fresh]


def rest_of(cells: Sequence[Cell], days: float = 0.0) -> tuple[float, float]:
    """Power at rest as cells recall it, and its standard error."""
    none = np.zeros(0, np.uint64)
    asked = Asked("package/rest", ("idle_w.0",), none, none)
    told = recalled(cells, asked, Now(NOW_S + days * DAY_S, USUAL))
    return float(told.moment[0] / told.precision[0, 0]), float(told.precision[0, 0]) ** -0.5


def test_power_at_rest_is_kept_by_files_and_by_folding() -> None:
    whole = Memory(HERE, tuple(rest_cell(i, when_s=NOW_S - 60.0 * i) for i in range(40)))
    small = whole.bounded()
    assert len(small.cells) < len(whole.cells) and any(one.folded for one in small.cells)
    _, again = memory_file.decode(small.to_bytes())
    assert all(one.is_sound for one in again)
    (value, sigma), (before, least) = rest_of(again), rest_of(whole.cells)
    # A folded cell has one drift, where its members had one each.
    assert value == pytest.approx(before, rel=1e-3) and least <= sigma < 2 * least
    assert abs(value - 20.0) < 4 * sigma


def test_power_at_rest_is_never_more_certain_than_its_drift() -> None:
    cells = [rest_cell(i, when_s=NOW_S - 3600.0 * i) for i in range(200)]
    assert rest_of(cells, days=60.0)[1] > rest_of(cells, days=1.0)[1] > 0.02 * 20.0
