# SPDX-License-Identifier: Apache-2.0
"""Laws of the analysis of variance, on designs of any shape, checked against statsmodels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from hypothesis import given, settings
from hypothesis import strategies as st

from qjoule.studies.statistics.anova import Anova, analyse
from qjoule.studies.statistics.art import aligned_ranks
from statistics_cases import design_of


@st.composite
def studies(draw: st.DrawFn) -> pd.DataFrame:
    """Two factors of 2 to 4 levels, 1 to 5 runs per combination, at least one of them with 2."""
    a, b = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    counts = draw(st.lists(st.integers(1, 5), min_size=a * b, max_size=a * b))
    counts[0] = max(counts[0], 2)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cells = np.repeat(np.arange(a * b), counts)
    table = pd.DataFrame({"a": cells // b, "b": cells % b})
    effect = draw(st.sampled_from([0.0, 1.0, 10.0]))
    table["y"] = rng.normal(50, 1, len(table)) + effect * table["a"] * table["b"]
    shuffled: pd.DataFrame = table.sample(frac=1, random_state=1, ignore_index=True)
    return shuffled


def table_of(study: pd.DataFrame, kind: int = 2) -> Anova:
    return analyse(study["y"].to_numpy(float), design_of(study, ["a", "b"]), type_=kind)


@given(studies(), st.sampled_from([2, 3]))
def test_the_table_is_that_of_statsmodels(study: pd.DataFrame, kind: int) -> None:
    found = table_of(study, kind)
    model = smf.ols("y ~ C(a, Sum) * C(b, Sum)", study).fit()
    expected = sm.stats.anova_lm(model, typ=kind)
    rows = ["C(a, Sum)", "C(b, Sum)", "C(a, Sum):C(b, Sum)"]
    for effect, row in zip(found.effects, rows, strict=True):
        assert effect.sum_sq == pytest.approx(expected.loc[row, "sum_sq"], rel=1e-6, abs=1e-8)
        assert effect.p == pytest.approx(expected.loc[row, "PR(>F)"], rel=1e-5, abs=1e-12)
    assert found.df_error == expected.loc["Residual", "df"]


@given(studies(), st.floats(1e-9, 1e9), st.sampled_from([-1e3, 0.0, 1e3]))
def test_no_unit_changes_a_test(study: pd.DataFrame, scale: float, shift: float) -> None:
    before = table_of(study)
    study["y"] = (study["y"] + shift) * scale
    after = table_of(study)
    for one, other in zip(before.effects, after.effects, strict=True):
        assert other.f == pytest.approx(one.f, rel=1e-5, abs=1e-8)
        assert other.eta_squared == pytest.approx(one.eta_squared, rel=1e-5, abs=1e-10)


@given(studies())
def test_shares_and_the_errors_add_up_and_runs_have_no_order(study: pd.DataFrame) -> None:
    found = table_of(study)
    total = sum(effect.sum_sq for effect in found.effects) + found.sum_sq_error
    shares = [effect.eta_squared or 0.0 for effect in found.effects]
    assert sum(shares) + found.sum_sq_error / total == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares)
    reversed_ = table_of(study.iloc[::-1].reset_index(drop=True))
    assert [effect.f for effect in reversed_.effects] == pytest.approx(
        [effect.f for effect in found.effects], rel=1e-6, abs=1e-9
    )


@settings(max_examples=15)
@given(studies())
def test_no_unit_changes_aligned_ranks(study: pd.DataFrame) -> None:
    """Adding or multiplying by a constant changes no rank."""
    values, design = study["y"].to_numpy(float), design_of(study, ["a", "b"])
    before = aligned_ranks(values, design, analyse(values, design))
    values = 7 * values + 3
    after = aligned_ranks(values, design, analyse(values, design))
    for one, other in zip(before.effects, after.effects, strict=True):
        assert other.f == pytest.approx(one.f, rel=1e-6, abs=1e-9)
