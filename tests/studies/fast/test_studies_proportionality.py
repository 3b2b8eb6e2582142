# SPDX-License-Identifier: Apache-2.0
"""Energy proportionality of curves and of tables of runs with known results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from qjoule.errors import QjouleError
from qjoule.studies.proportionality import (
    dynamic_range,
    linear_deviation,
    proportionality,
    proportionality_index,
    relative_efficiency,
)

LOAD = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def table(powers: dict[float, list[float]], **more: Any) -> pd.DataFrame:
    """Runs in which a load of 100 % does 1,000 operations a second."""
    rows = [
        {
            "status": "done",
            "throughput": level * 10,
            "power_w": power,
            "j_per_operation": None if level == 0 else power / level / 20,
            "grade": "measured",
            "idle_policy": "separate",
            "energy_source": "rapl",
            "machine": "host",
            "factor:level": level,
            **more,
        }
        for level, each in powers.items()
        for power in each
    ]
    return pd.DataFrame(rows)


LINEAR = {0.0: [50.0, 50.0], 50.0: [75.0, 75.0], 100.0: [100.0, 100.0]}


def test_proportional_constant_and_linear_power() -> None:
    curves = np.stack([LOAD * 80, np.full(5, 80.0)], axis=1)
    assert proportionality_index(LOAD, curves) == pytest.approx([1, 0])
    linear = 40 + 40 * LOAD
    assert proportionality_index(LOAD, linear) == pytest.approx(0.5)  # the dynamic range
    assert dynamic_range(linear[0], linear[-1]) == pytest.approx(0.5)
    assert linear_deviation(LOAD, linear) == pytest.approx(0)
    assert linear_deviation(LOAD, linear + np.array([0, 10, 10, 10, 0])) > 0
    assert linear_deviation(LOAD, linear - np.array([0, 10, 10, 10, 0])) < 0


def test_relative_efficiency_of_the_source() -> None:
    """T. Haerder's slides: efficiency at 90, 70, 50, 30 and 10 % of load, from which relative
    power.
    """
    load = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
    told = np.array([0.14, 0.35, 0.55, 0.73, 0.90, 1.0])
    assert relative_efficiency(load, load / told * 250) == pytest.approx(told)


def test_runs_with_known_answers() -> None:
    (found,) = proportionality(table(LINEAR))
    assert found.idle_share.value == pytest.approx(0.5)
    assert found.dynamic_range.value == pytest.approx(0.5)
    assert found.index.value == pytest.approx(0.5)
    assert found.linear_deviation.value == pytest.approx(0)
    assert (found.index.low, found.index.high) == pytest.approx((0.5, 0.5))
    half = found.levels[1]
    assert half.machine_j_per_operation.value == pytest.approx(75 / 500)
    assert half.j_per_operation.value == pytest.approx(75 / 50 / 20)
    assert half.relative_efficiency.value == pytest.approx(0.5 / 0.75)
    assert found.levels[0].machine_j_per_operation.value is None  # no work was done
    assert found.missing == ()
    assert (found.grade, found.configuration) == ("measured", {})


def test_intervals_of_runs_that_differ_hold_the_figure() -> None:
    spread = {level: [power - 2, power, power + 2] for level, (power, _) in LINEAR.items()}
    (found,) = proportionality(table(spread))
    for estimate in (found.idle_share, found.dynamic_range, found.index):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < 0.5 < estimate.high
    (again,) = proportionality(table(spread))
    assert again == found
    (single,) = proportionality(table({level: each[:1] for level, each in LINEAR.items()}))
    assert (single.index.value, single.index.low) == (pytest.approx(0.5), None)


@pytest.mark.parametrize(
    ("left_out", "said"), [(0.0, "idle power"), (100.0, "peak's power"), (50.0, "the curve")]
)
def test_what_is_missing_is_unknown(left_out: float, said: str) -> None:
    (found,) = proportionality(table({k: v for k, v in LINEAR.items() if k != left_out}))
    assert found.index.value is None
    assert said in found.missing[0]
    assert (found.idle_share.value is None) == (left_out != 50.0)


def test_a_level_that_is_not_answered_is_saturated() -> None:
    runs = table({**LINEAR, 150.0: [101.0, 101.0]})
    runs.loc[runs["factor:level"] == 150.0, "throughput"] = 1_010.0
    (found,) = proportionality(runs)
    assert [level.saturated for level in found.levels] == [False, False, False, True]
    assert found.index.value == pytest.approx(0.5)  # values above 100 % do not belong to the curve


@pytest.mark.parametrize("column", ["grade", "idle_policy", "energy_source", "machine"])
def test_what_must_not_be_mixed(column: str) -> None:
    runs = table(LINEAR)
    runs.loc[0, column] = "another"
    with pytest.raises(QjouleError, match="cannot be put together"):
        proportionality(runs)


def test_tables_that_are_no_study_of_load() -> None:
    with pytest.raises(QjouleError, match="no factor rows: it has level"):
        proportionality(table(LINEAR), "rows")
    with pytest.raises(QjouleError, match="not all percentages"):
        proportionality(table(LINEAR).assign(**{"factor:level": "high"}))
    with pytest.raises(QjouleError, match="no run that is done"):
        proportionality(table(LINEAR).assign(status="failed"))
