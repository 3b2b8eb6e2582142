# SPDX-License-Identifier: Apache-2.0
"""A response against time: equal to R's lm and cor.test on published data."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.studies.statistics.regression import line, lines
from statistics_cases import design_of, golden, load


@pytest.mark.parametrize(
    ("data", "x", "y"), [("cars", "speed", "dist"), ("iris", "Petal.Length", "Petal.Width")]
)
def test_the_line_is_rs(data: str, x: str, y: str) -> None:
    table = load(data)
    found = line(table[x].to_numpy(float), table[y].to_numpy(float))
    expected = golden(data, "regression")["line"]
    for name, part in (("slope", found.slope), ("intercept", found.intercept)):
        assert part.value == pytest.approx(expected[name], rel=1e-9)
        assert part.low == pytest.approx(expected[f"{name}_low"], rel=1e-9)
        assert part.high == pytest.approx(expected[f"{name}_high"], rel=1e-9)
    assert found.r_squared == pytest.approx(expected["r_squared"], rel=1e-9)
    assert found.p == pytest.approx(expected["slope_p"], rel=1e-6)
    pearson = golden(data, "pearson")["line"]
    assert found.pearson.value == pytest.approx(pearson["r"], rel=1e-9)
    assert (found.pearson.low, found.pearson.high) == pytest.approx(
        (pearson["low"], pearson["high"]), rel=1e-9
    )
    assert found.spearman.value == pytest.approx(golden(data, "spearman")["line"]["r"], rel=1e-9)
    assert found.spearman.low is not None
    assert found.spearman.high is not None
    assert found.spearman.low < (found.spearman.value or 0) < found.spearman.high


def test_each_level_has_a_line_and_all_are_corrected_together() -> None:
    table = load("iris")
    x, y = table["Petal.Length"].to_numpy(float), table["Petal.Width"].to_numpy(float)
    found = lines(x, y, design_of(table, ["Species"]))
    assert [(one.factor, one.level) for one in found] == [
        ("", ""),
        ("Species", "setosa"),
        ("Species", "versicolor"),
        ("Species", "virginica"),
    ]
    own = (table["Species"] == "setosa").to_numpy()
    assert found[1].slope == line(x[own], y[own]).slope
    assert all((one.p_holm or 0) >= (one.p or 0) for one in found)


def test_what_has_no_line_says_why() -> None:
    flat = line(np.array([1.0, 1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert (flat.slope.value, flat.p, flat.note) == (None, None, "all values are equal")
    few = line(np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.0, 3.0]))
    assert (few.runs, few.note) == (2, "fewer than 3 runs")
    perfect = line(np.arange(6.0), 2 * np.arange(6.0) + 1)
    assert perfect.slope.value == pytest.approx(2)
    assert perfect.spearman.value == pytest.approx(1)
