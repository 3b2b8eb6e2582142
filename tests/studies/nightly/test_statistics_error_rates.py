# SPDX-License-Identifier: Apache-2.0
"""How often the test that decides sees an effect where there is none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qjoule.studies.pareto import verdict
from qjoule.studies.statistics.anova import analyse
from qjoule.studies.statistics.art import aligned_ranks
from qjoule.studies.statistics.assumptions import check
from qjoule.studies.statistics.design import Design, Floats
from qjoule.studies.statistics.pairwise import cells_of
from qjoule.studies.statistics.study import RANKS, WELCH, choose
from qjoule.studies.statistics.welch import welch
from statistics_cases import design_of

pytestmark = pytest.mark.beside


def deciding_p(values: Floats, design: Design) -> list[float]:
    """The p values of the test that decides."""
    table = analyse(values, design)
    groups = welch(
        cells_of(values, design.cells), design, [effect.term for effect in table.effects]
    )
    decides, _ = choose(check(table.fit, design.cells, np.arange(design.runs)), groups)
    if decides == WELCH:
        return [effect.p for effect in groups.effects]
    effects = aligned_ranks(values, design, table).effects if decides == RANKS else table.effects
    return [effect.p or 0.0 for effect in effects]


@pytest.mark.parametrize("kind", ["normal", "spread", "skewed"])
@pytest.mark.parametrize("factors", [1, 2])
def test_about_five_percent_are_false_positives(kind: str, factors: int) -> None:
    rng = np.random.default_rng(20240506)
    table = pd.DataFrame({"a": np.repeat(np.arange(3), 16), "b": np.tile([0, 1], 24)})
    design = design_of(table, ["a", "b"][:factors])
    wide = (table["a"] == 1) & (table["b"] == 1)
    significant = []
    for _ in range(500):
        values = rng.lognormal(0, 1, 48) if kind == "skewed" else rng.normal(10, 1, 48)
        if kind == "spread":
            values = values * np.where(wide, 4.0, 1.0) - np.where(wide, 30.0, 0.0)
        significant += [p < 0.05 for p in deciding_p(values, design)]
    assert 0.025 <= np.mean(significant) <= 0.09


def test_equal_configurations_are_seldom_told_apart() -> None:
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(400):
        samples = [tuple(np.exp(rng.normal(0, 0.05, (2, 6)))) for _ in range(4)]
        wrong += verdict(list("abcd"), samples).answer in {"yes", "no"}
    assert wrong <= 20  # 5 %
