# SPDX-License-Identifier: Apache-2.0
"""A study's statistics: which runs take part, which test decides, and bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.statistics.anova import analyse as table_of
from qjoule.studies.statistics.art import aligned_ranks
from qjoule.studies.statistics.assumptions import check
from qjoule.studies.statistics.design import Design, Floats
from qjoule.studies.statistics.pairwise import GAMES_HOWELL, TUKEY, cells_of
from qjoule.studies.statistics.sample import select
from qjoule.studies.statistics.study import ANOVA, RANKS, WELCH, Findings, analyse, choose, response
from qjoule.studies.statistics.welch import welch
from statistics_cases import design_of, golden, load, run, runs_of

J = "j_per_operation"


def findings(table: pd.DataFrame) -> Findings:
    found = response(select(table, J)).tests
    assert found is not None
    return found


def two_levels(values: list[float], **fields: object) -> pd.DataFrame:
    """Runs of levels `a` and `b`, alternating."""
    return pd.DataFrame(
        [
            run(number, **{J: value, **fields}) | {"factor:server": "ab"[number % 2]}
            for number, value in enumerate(values, 1)
        ]
    )


SIX = [1.0, 2.0, 1.1, 2.1, 1.2, 2.3]


def test_assumptions_that_hold_let_the_analysis_of_variance_decide() -> None:
    found = findings(runs_of(load("plant_growth"), "weight", ["group"]))
    assert (found.decides, found.why) == (ANOVA, "its assumptions hold")
    assert found.combinations.method == TUKEY
    assert found.effects() == found.anova.effects


def test_variances_that_differ_let_welch_and_games_howell_decide() -> None:
    table = load("plant_growth")
    table["weight"] = np.where(
        table["group"] == "ctrl", 5 + 8 * (table["weight"] - 5), table.weight
    )
    found = findings(runs_of(table, "weight", ["group"]))
    assert (found.decides, found.why) == (WELCH, "variances differ")
    assert found.combinations.method == GAMES_HOWELL
    assert found.effects()[0].p == found.welch.effects[0].p


def test_factorial_data_with_long_tails_are_ranked() -> None:
    table = load("warpbreaks")
    table["breaks"] = np.log(table["breaks"])  # in the form that Tukey analyses
    assert findings(runs_of(table, "breaks", ["wool", "tension"])).decides == ANOVA
    tails = [-9.0, -1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0, 9.0]
    table["breaks"] = np.tile(np.array(tails), 6)
    found = findings(runs_of(table, "breaks", ["wool", "tension"]))
    assert (found.decides, found.why) == (RANKS, "residuals are not normal")
    assert found.effects()[0].f == found.ranks.effects[0].f
    assert [name for name, _ in found.factors] == ["wool", "tension"]


def test_blocks_are_a_factor_without_interactions() -> None:
    table = runs_of(load("npk"), "yield", ["N", "P", "K"])
    table["block"] = load("npk")["block"]
    found = findings(table)
    expected = golden("npk", "aov")
    assert found.anova.effects[0].name == "block"
    assert found.anova.effects[0].p == pytest.approx(expected["block"]["p"])
    assert "no run" not in found.welch.note
    assert found.anova.effects[-1].df == 0
    assert "N" in found.anova.notes[0]


def test_a_lost_run_does_not_put_a_block_into_a_mean() -> None:
    rng = np.random.default_rng(11)
    rows: list[dict[str, object]] = []
    for block in range(1, 5):
        for level in "ab":
            own: dict[str, object] = {
                J: 10.0 * block + (level == "b") + rng.normal(0, 0.01),
                "block": block,
            }
            rows.append(run(len(rows) + 1, **own) | {"factor:server": level})
    rows[7]["status"] = "failed"
    found = findings(pd.DataFrame(rows))
    assert found.combinations.pairs[0].difference == pytest.approx(-1, abs=0.05)


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


def test_unbalanced_after_failures_is_rs_unbalanced_table() -> None:
    whole, lost = load("warpbreaks"), load("warpbreaks_lost")
    table = runs_of(whole, "breaks", ["wool", "tension"])
    removed = [0, 1, 2, 3, 11, 19, 20, 29, 39, 40, 41, 42, 43, 52]
    table.loc[removed, "status"] = "failed"
    found = response(select(table, J)).tests
    assert found is not None
    assert found.anova.df_error == len(lost) - 6
    expected = golden("warpbreaks_lost", "type2")["wool:tension"]
    assert found.anova.effects[2].p == pytest.approx(expected["p"])


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("grade", "measured", "different grades"),
        ("idle_policy", "even", "different idle policies"),
        ("energy_source", "rapl", "different energy sources"),
        ("machine", "host B", "different machines"),
        ("grade", None, "unknown"),
    ],
)
def test_runs_measured_differently_are_refused_or_flagged(
    column: str, value: str | None, words: str
) -> None:
    table = two_levels(SIX)
    table.loc[3, column] = value
    with pytest.raises(QjouleError, match=words) as refused:
        select(table, J)
    assert "--mixed" in str(refused.value)
    sample = select(table, J, mixed=True)
    assert sample.mixed
    assert any("are compared" in note for note in sample.notes)
    table.loc[3, "status"] = "failed"  # the omitted part confounds nothing
    assert not select(table, J).mixed


def test_a_factor_with_one_level_is_dropped_and_said() -> None:
    table = two_levels(SIX)
    table["factor:size"] = 1000
    sample = select(table, J)
    assert sample.design.names == ("server",)
    assert any("size has one level only (1000)" in note for note in sample.notes)
    alone = response(select(table, J, ["size"]))
    assert alone.tests is None
    assert "no factor has two levels" in alone.notes[0]
    assert alone.means[0].runs == 6


def test_a_factor_left_aside_is_said_to_be_in_the_error() -> None:
    table = two_levels(SIX)
    table["factor:size"] = [1, 1, 2, 2, 3, 3]
    assert "size varies too" in " ".join(select(table, J, ["server"]).notes)


def test_one_replication_of_two_factors_has_main_effects_only() -> None:
    rows = [
        run(number, **{J: 1.0 + number}) | {"factor:a": number // 3, "factor:b": number % 3}
        for number in range(9)
    ]
    found = response(select(pd.DataFrame(rows), J))
    assert found.tests is not None
    assert found.tests.anova.order == 1
    assert found.means[0].low is None
    assert found.tests.assumptions.variances.holds is None


def test_one_run_of_each_level_says_what_to_do() -> None:
    found = response(select(two_levels(SIX[:2]), J))
    assert found.tests is None
    assert "two replications" in found.notes[0]


def test_zero_variance_is_no_error_of_the_program() -> None:
    found = response(select(two_levels([2.0] * 8), J))
    assert found.tests is None
    assert "the same value" in found.notes[0]
    within = findings(two_levels([1.0, 2.0] * 4))
    assert within.anova.effects[0].p is None
    assert within.combinations.pairs[0].p is None
    half = findings(two_levels([1.0, 2.0, 1.0, 6.1, 1.0, 1.8, 1.0, 7.4, 1.0, 1.1, 1.0, 5.2]))
    assert half.decides == ANOVA  # Welch's test would divide by the equal group's variance
    assert "has no answer" in half.why
    assert half.combinations.pairs[0].p is not None


def test_thousands_of_levels_leave_the_means() -> None:
    rows = [
        run(number, **{J: float(number % 97)}) | {"factor:user": number % 2500}
        for number in range(5000)
    ]
    found = response(select(pd.DataFrame(rows), J))
    assert len(found.means) == 2500
    assert found.tests is None
    assert "2500 levels" in found.notes[0]


def test_nothing_to_analyse_says_what_to_do() -> None:
    table = two_levels(SIX)
    with pytest.raises(UsageError, match="the study has server"):
        select(table, J, ["sever"])
    with pytest.raises(UsageError, match="choose of"):
        select(table, "grade")
    with pytest.raises(QjouleError, match="energy source"):
        select(two_levels([float("nan")] * 6), J)
    with pytest.raises(QjouleError, match="run it first"):
        select(pd.DataFrame(), J)
    with pytest.raises(QjouleError, match="all 6 runs failed"):
        select(two_levels(SIX, status="failed"), J)


@pytest.mark.parametrize("value", ["12", True, None, 10**400, [1]])
def test_what_is_no_number_is_unknown(value: object) -> None:
    table = two_levels(SIX)
    table[J] = pd.Series([value, *SIX[1:]], dtype=object)
    assert select(table, J).unknown == 1


def test_energy_against_time_needs_both() -> None:
    table = two_levels(SIX)
    found = analyse(table, [J])
    assert found.energy_time is not None
    sample, _, lines = found.energy_time
    assert sample.response == "energy_j"
    assert [line.level for line in lines] == ["", "b", "a"]
    table["energy_j"] = None
    assert analyse(table, [J]).energy_time is None


def test_what_one_run_does_not_know_of_itself_is_kept() -> None:
    table = two_levels(SIX, j_per_operation_low=0.9, j_per_operation_high=1.1)
    own = select(table, J).own_interval
    assert own == pytest.approx(float(np.mean(0.1 / np.array(SIX))))


def false_positives(kind: str, factors: int, studies: int = 500) -> float:
    """The share of non-existent effects for which the deciding test gives p < 0.05."""
    rng = np.random.default_rng(20240506)
    table = pd.DataFrame({"a": np.repeat(np.arange(3), 16), "b": np.tile([0, 1], 24)})
    design = design_of(table, ["a", "b"][:factors])
    found = []
    for _ in range(studies):
        values = rng.normal(10, 1, 48)
        if kind == "spread":
            values *= np.where((table["a"] == 1) & (table["b"] == 1), 4.0, 1.0)
            values -= np.where((table["a"] == 1) & (table["b"] == 1), 30.0, 0.0)
        elif kind == "skewed":
            values = rng.lognormal(0, 1, 48)
        found += [p < 0.05 for p in _deciding(values, design)]
    return float(np.mean(found))


def _deciding(values: Floats, design: Design) -> list[float]:
    """The p values of the deciding test of `study.response`, without its pairs (slow)."""
    table = table_of(values, design)
    cells = cells_of(values, design.cells)
    groups = welch(cells, design, [effect.term for effect in table.effects])
    decides, _ = choose(check(table.fit, design.cells, np.arange(design.runs)), groups)
    if decides == WELCH:
        return [effect.p for effect in groups.effects]
    rows = aligned_ranks(values, design, table).effects if decides == RANKS else table.effects
    return [effect.p or 0.0 for effect in rows]


@pytest.mark.parametrize("kind", ["normal", "spread", "skewed"])
@pytest.mark.parametrize("factors", [1, 2])
def test_the_path_chosen_has_about_five_percent_false_positives(kind: str, factors: int) -> None:
    assert 0.025 <= false_positives(kind, factors) <= 0.09
