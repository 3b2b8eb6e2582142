# SPDX-License-Identifier: Apache-2.0
"""A study's statistics: which runs take part, which test decides, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule_studies.statistics.pairwise import GAMES_HOWELL, TUKEY
from qjoule_studies.statistics.sample import select
from qjoule_studies.statistics.study import ANOVA, RANKS, WELCH, Findings, response
from statistics_cases import load, run, runs_of

J = "j_per_operation"
SIX = [1.0, 2.0, 1.1, 2.1, 1.2, 2.3]


def findings(table: pd.DataFrame) -> Findings:
    tests = response(select(table, J)).tests
    assert tests is not None
    return tests


def two_levels(values: list[float], **fields: object) -> pd.DataFrame:
    """Runs of levels `a` and `b`, alternating."""
    return pd.DataFrame(
        [
            run(number, **{J: value, **fields}) | {"factor:server": "ab"[number % 2]}
            for number, value in enumerate(values, 1)
        ]
    )


def test_assumptions_choose_the_test_that_decides() -> None:
    """Variances that differ let Welch decide; factors with long tails are ranked."""
    tests = findings(runs_of(load("plant_growth"), "weight", ["group"]))
    assert (tests.decides, tests.why) == (ANOVA, "its assumptions hold")
    assert tests.combinations.method == TUKEY
    assert tests.effects() == tests.anova.effects
    table = load("plant_growth")
    table["weight"] = np.where(
        table["group"] == "ctrl", 5 + 8 * (table["weight"] - 5), table.weight
    )
    tests = findings(runs_of(table, "weight", ["group"]))
    assert (tests.decides, tests.why) == (WELCH, "variances differ")
    assert tests.combinations.method == GAMES_HOWELL
    assert tests.effects()[0].p == tests.welch.effects[0].p
    table = load("warpbreaks")
    tails = [-9.0, -1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0, 9.0]
    table["breaks"] = np.tile(np.array(tails), 6)
    tests = findings(runs_of(table, "breaks", ["wool", "tension"]))
    assert (tests.decides, tests.why) == (RANKS, "residuals are not normal")
    assert tests.effects()[0].f == tests.ranks.effects[0].f
    assert [name for name, _ in tests.factors] == ["wool", "tension"]


def test_failed_runs_and_runs_without_a_value_are_counted() -> None:
    table = two_levels([*SIX, float("nan"), 2.2, float("inf"), 2.4])
    table.loc[7, "status"] = "failed"
    table["flags"] = [["unsettled"] if number == 2 else [] for number in range(10)]
    sample = select(table, J)
    assert (len(sample.values), sample.failed, sample.unknown) == (7, 1, 2)
    text = "\n".join(sample.notes)
    assert "1 of 10 runs failed" in text
    assert "2 runs without j_per_operation" in text
    assert "1 runs are flagged unsettled" in text
    assert "unbalanced: 3 to 4" in text


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("grade", "measured", "different grades"),
        ("machine", "host B", "different machines"),
        ("grade", None, "unknown"),
    ],
)
def test_runs_measured_differently_are_refused_or_flagged(
    column: str, value: str | None, message: str
) -> None:
    table = two_levels(SIX)
    table.loc[3, column] = value
    with pytest.raises(QjouleError, match=message) as refused:
        select(table, J)
    assert "--mixed" in str(refused.value)
    sample = select(table, J, mixed=True)
    assert sample.mixed
    assert any("are compared" in note for note in sample.notes)
    table.loc[3, "status"] = "failed"  # the omitted part confounds nothing
    assert not select(table, J).mixed


def test_too_few_runs_leave_the_means() -> None:
    rows = [
        run(number, **{J: 1.0 + number}) | {"factor:a": number // 3, "factor:b": number % 3}
        for number in range(9)
    ]
    crossed = response(select(pd.DataFrame(rows), J))
    assert crossed.tests is not None
    assert crossed.tests.anova.order == 1, "one replication has main effects only"
    assert crossed.means[0].low is None
    single = response(select(two_levels(SIX[:2]), J))
    assert single.tests is None
    assert "two replications" in single.notes[0]


def test_zero_variance_is_no_error_of_the_program() -> None:
    constant = response(select(two_levels([2.0] * 8), J))
    assert constant.tests is None
    assert "the same value" in constant.notes[0]
    within = findings(two_levels([1.0, 2.0] * 4))
    assert within.anova.effects[0].p is None
    assert within.combinations.pairs[0].p is None
    half = findings(two_levels([1.0, 2.0, 1.0, 6.1, 1.0, 1.8, 1.0, 7.4, 1.0, 1.1, 1.0, 5.2]))
    assert half.decides == ANOVA  # Welch's test would divide by the equal group's variance


@pytest.mark.parametrize(
    ("table", "columns", "error", "message"),
    [
        (two_levels(SIX), ("grade",), UsageError, "choose of"),
        (two_levels([float("nan")] * 6), (J,), QjouleError, "energy source"),
        (pd.DataFrame(), (J,), QjouleError, "run it first"),
    ],
)
def test_nothing_to_analyse_says_what_to_do(
    table: pd.DataFrame, columns: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        select(table, *columns)
