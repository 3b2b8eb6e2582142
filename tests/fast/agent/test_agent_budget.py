# SPDX-License-Identifier: Apache-2.0
"""The budget's controller over simulated loads: it holds the budget, recovers, and hardly flaps."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.agent.budget import HOLD_S, LEVELS, MOST_HOLD_S, Controller, Shed

LIMIT = 0.01
DAY_S = 86_400.0
START_S = 5.0
#: What each level leaves of the cost of the one before.
RATIOS = st.tuples(*[st.floats(0.1, 1.0)] * (len(LEVELS) - 1))


class Run:
    """Days of an agent whose measurements have an error of some percent."""

    def __init__(
        self, full: Callable[[float], float], ratios: tuple[float, ...], days: float, seed: int
    ) -> None:
        self.times: list[float] = []
        self.levels: list[int] = []
        self.shares: list[float] = []
        chance = random.Random(seed)
        wall_s = begin_s = 1.8e9
        controller = Controller(LIMIT, Shed())
        while wall_s < begin_s + days * DAY_S:
            wall_s += chance.uniform(15, 45)
            share = full(wall_s - begin_s)
            for ratio in ratios[: controller.shed.level]:
                share *= ratio
            found = controller.take(share * chance.uniform(0.95, 1.05), wall_s)
            self.times.append(wall_s - begin_s)
            self.levels.append(controller.shed.level)
            self.shares.append(share)
            if found is not None:
                assert abs(found.level - controller.shed.level) == 1 and found.valid()
                controller = Controller(LIMIT, found)
                wall_s += START_S

    @property
    def changes(self) -> int:
        return sum(a != b for a, b in zip(self.levels, self.levels[1:], strict=False))


def at_most(ratios: tuple[float, ...], share: float) -> float:
    """The cost at the last level."""
    for ratio in ratios:
        share *= ratio
    return share


@given(st.floats(0.0, 0.05), RATIOS, st.integers(0, 2**32))
def test_a_steady_load(load: float, ratios: tuple[float, ...], seed: int) -> None:
    run = Run(lambda _: load, ratios, 3, seed)
    # Shedding, and recoveries that were taken back, each twice as long after the last.
    assert run.changes <= len(LEVELS) - 1 + 10
    if at_most(ratios, load) <= 0.94 * LIMIT:
        assert fmean(run.shares) <= 1.03 * LIMIT
    else:
        half = len(run.levels) // 2
        assert load <= 1.06 * LIMIT or fmean(run.levels[half:]) > 0
    if load <= 0.94 * LIMIT:
        assert not any(run.levels), "what fits is never left out"


@given(st.floats(0.012, 0.05), RATIOS, st.integers(0, 2**32))
def test_it_recovers_when_the_load_falls(load: float, ratios: tuple[float, ...], seed: int) -> None:
    run = Run(lambda s: load if s < DAY_S else 0.0005, ratios, 4, seed)
    assert any(run.levels), "it was left out first"
    assert run.levels[-1] == 0
    # At the latest once every hold, the longest one included, has passed.
    back = next(
        s for s, level in zip(run.times, run.levels, strict=True) if s > DAY_S and not level
    )
    assert back <= DAY_S + MOST_HOLD_S + len(LEVELS) * HOLD_S


@given(
    st.floats(0.002, 0.03), st.floats(0.0, 0.02), st.floats(600, 2 * DAY_S), RATIOS, st.integers(0)
)
def test_loads_that_come_and_go_do_not_make_it_flap(
    low: float, more: float, period_s: float, ratios: tuple[float, ...], seed: int
) -> None:
    run = Run(lambda s: low + more * (s % period_s < period_s / 2), ratios, 3, seed)
    assert run.changes <= 3 * 24, "not more than about once per hour"


def test_a_clock_that_was_set_back_and_what_a_file_may_say() -> None:
    controller = Controller(LIMIT, Shed(level=1, since_s=2e9))
    found = None
    for step in range(200):
        found = found or controller.take(0.001, 1.9e9 + 30.0 * step)
    assert found is not None and found.level == 0
    assert Shed().valid()
    for wrong in (
        Shed(level=len(LEVELS)),
        Shed(level=-1),
        Shed(hold_s=0.0),
        Shed(hold_s=float("nan")),
        Shed(ratios=(0.5,)),
        Shed(ratios=(0.0,) * (len(LEVELS) - 1)),
        Shed(before=-1.0),
    ):
        assert not wrong.valid()


@pytest.mark.parametrize("share", [0.0, 1e-12])
def test_without_any_cost(share: float) -> None:
    controller = Controller(LIMIT, Shed(level=len(LEVELS) - 1))
    assert [controller.take(share, 1.8e9 + 60 * n) for n in range(100)].count(None) < 100
