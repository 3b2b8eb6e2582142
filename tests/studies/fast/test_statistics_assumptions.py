# SPDX-License-Identifier: Apache-2.0
"""Checks of residuals: equal to R's, and their messages where they are impossible."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.studies.statistics.anova import analyse
from qjoule.studies.statistics.assumptions import Assumptions, check
from qjoule.studies.statistics.design import Floats, Ints
from qjoule.studies.statistics.linear import fit
from statistics_cases import design_of, golden, load

CASES = [
    ("plant_growth", "weight", ["group"]),
    ("chickwts", "weight", ["feed"]),
    ("insect_sprays", "count", ["spray"]),
    ("warpbreaks", "breaks", ["wool", "tension"]),
    ("warpbreaks_lost", "breaks", ["wool", "tension"]),
    ("tooth_growth", "len", ["supp", "dose"]),
]


@pytest.mark.parametrize(("data", "response", "factors"), CASES)
def test_checks_are_rs(data: str, response: str, factors: list[str]) -> None:
    table = load(data)
    design = design_of(table, factors)
    found = analyse(table[response].to_numpy(float), design)
    checks = check(found.fit, design.cells, np.arange(len(table)))
    shapiro = golden(data, "shapiro")["residuals"]
    assert checks.normality.statistic == pytest.approx(shapiro["statistic"], rel=1e-6)
    assert checks.normality.p == pytest.approx(shapiro["p"], rel=1e-4)
    assert checks.normality.holds == (shapiro["p"] >= 0.05)
    brown = golden(data, "brown_forsythe")["groups"]
    assert checks.variances.statistic == pytest.approx(brown["statistic"], rel=1e-9)
    assert checks.variances.p == pytest.approx(brown["p"], rel=1e-7)
    durbin = golden(data, "durbin_watson")["residuals"]
    assert checks.independence.statistic == pytest.approx(durbin["statistic"], rel=1e-9)
    outliers = golden(data, "outliers")["residuals"]
    assert len(checks.outliers) == outliers["count"]
    assert checks.outlying.statistic == pytest.approx(outliers["largest"], rel=1e-9)


def of(values: Floats, order: Ints | None = None, cells: Ints | None = None) -> Assumptions:
    runs = len(values)
    cells = np.zeros(runs, dtype=np.int64) if cells is None else cells
    columns = [(cells == cell).astype(float)[:, None] for cell in np.unique(cells)[1:]]
    return check(fit(values, columns), cells, np.arange(runs) if order is None else order)


def test_drift_over_the_order_of_runs_is_seen_in_that_order() -> None:
    rng = np.random.default_rng(7)
    drifting = np.arange(40) + rng.normal(0, 2, 40)
    found = of(drifting).independence
    assert found.holds is False
    assert "drift" in found.words
    shuffled = rng.permutation(40)
    assert of(drifting[shuffled], shuffled).independence.statistic == pytest.approx(found.statistic)
    assert of(drifting[shuffled]).independence.holds
    assert "alternate" in of(np.tile([0.0, 1.0], 20) + rng.normal(0, 0.1, 40)).independence.words


def test_durbin_watsons_p_is_uniform_without_a_drift() -> None:
    rng = np.random.default_rng(3)
    cells = np.repeat(np.arange(4), 6)
    p = [of(rng.normal(size=24), rng.permutation(24), cells).independence.p for _ in range(400)]
    assert np.mean(np.array(p, dtype=float) < 0.05) == pytest.approx(0.05, abs=0.03)
    assert np.mean(np.array(p, dtype=float) < 0.5) == pytest.approx(0.5, abs=0.08)


def test_an_outlier_is_named() -> None:
    values = np.random.default_rng(1).normal(10, 1, 30)
    values[17] = 25
    found = of(values)
    assert [run for run, _ in found.outliers] == [17]
    assert found.outlying.holds is False
    assert found.normality.holds is False


def test_many_runs_are_checked_by_anderson_and_darling() -> None:
    rng = np.random.default_rng(4)
    found = of(rng.normal(size=6000))
    assert "Anderson" in found.normality.name
    assert found.normality.holds
    assert of(rng.exponential(size=6000)).normality.holds is False


def test_equal_residuals_are_not_tested() -> None:
    found = of(np.repeat(np.array([2.5]), 8), cells=np.repeat(np.arange(2), 4))
    assert [one.holds for one in found.checks] == [None] * 4
    assert all("not tested" in one.words for one in found.checks)


def test_two_runs_of_a_combination_tell_no_variance() -> None:
    found = of(np.array([1.0, 2.0, 3.0, 5.0, 2.0, 9.0]), cells=np.array([0, 0, 1, 1, 2, 2]))
    assert found.variances.holds is None
    assert "three runs" in found.variances.words


def test_a_run_that_its_level_has_alone_is_no_outlier() -> None:
    values = np.array([1.0, 1.1, 0.9, 1.05, 50.0])
    assert not of(values, cells=np.array([0, 0, 0, 0, 1])).outliers
