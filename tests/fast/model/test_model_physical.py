# SPDX-License-Identifier: Apache-2.0
"""The physical test's arithmetic, on a small machine with known truth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from qjoule_studies.physical.judgement import LEAST_ROUNDS, Round, Verdict, judge, share_above_rest


@dataclass(frozen=True)
class Machine:
    """Power at rest, power drawn once as soon as anything runs, and each load's on top of
    it; in W.
    """

    rest_w: float
    once_w: float
    a_w: float
    b_w: float
    noise: float = 0.002  #: relative error of a reading, one sigma

    @property
    def share_a(self) -> float:
        return self.a_w / (self.a_w + self.b_w)

    def rounds(self, split_a: float, n: int = 5, seed: int = 1) -> list[Round]:
        """Readings of n rounds; the attribution under test gives A this share of the dynamic
        energy.
        """
        random = np.random.default_rng(seed)
        awake_w = self.rest_w + self.once_w
        rounds = []
        for _ in range(n):
            jitter = 1 + self.noise * random.standard_normal(3)
            rounds.append(
                Round(
                    alone_a_w=(awake_w + self.a_w) * jitter[0],
                    alone_b_w=(awake_w + self.b_w) * jitter[1],
                    together_w=(awake_w + self.a_w + self.b_w) * jitter[2],
                    split_a=split_a * 80.0,
                    split_b=(1 - split_a) * 80.0,
                    alone_a_calls_per_s=20.0,
                    alone_b_calls_per_s=15.0,
                    together_a_calls_per_s=19.8,
                    together_b_calls_per_s=14.7,
                )
            )
        return rounds


def machine(residual: float, share_a: float, **more: float) -> Machine:
    """150 W together, of which `residual` is drawn once; two fifths of that at rest."""
    once = 150.0 * residual
    loads = 150.0 - once
    return Machine(0.4 * once, 0.6 * once, share_a * loads, (1 - share_a) * loads, **more)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    truth = machine(0.4, 0.6, noise=0.004)
    held = sum(
        side.low <= truth.share_a <= side.high
        for seed in range(400)
        for side in [judge(truth.rounds(0.6, n=4, seed=seed)).a.physical_share]
    )
    assert 0.91 <= held / 400 <= 0.985


@pytest.mark.parametrize(
    ("rounds", "why"),
    [
        (machine(0.6, 0.5, noise=0.03).rounds(0.5), ""),
        (Machine(30, 20, 40, 0.0).rounds(1.0), "B adds"),
        ([replace(r, together_b_calls_per_s=12.0) for r in machine(0.3, 0.5).rounds(0.5)], "-20%"),
        ([replace(r, alone_a_calls_per_s=0.0) for r in machine(0.3, 0.5).rounds(0.5)], ""),
    ],
    ids=["noise", "adds nothing", "slow each other down", "never ran"],
)
def test_rounds_that_cannot_tell_give_no_verdict(rounds: list[Round], why: str) -> None:
    test = judge(rounds)
    assert test.verdict is Verdict.CANNOT_TELL
    assert why in test.why
    sides = [one for side in (test.a, test.b) for one in (side.physical_share, side.error)]
    assert not any(map(math.isnan, (x for one in sides for x in (one.value, one.low, one.high))))


def test_too_few_rounds_and_no_numbers_are_refused() -> None:
    rounds = machine(0.3, 0.5).rounds(0.5, n=LEAST_ROUNDS)
    with pytest.raises(ValueError, match="at least"):
        judge(rounds[1:])
    with pytest.raises(ValueError, match="no number"):
        judge([*rounds, replace(rounds[0], alone_a_w=math.nan)])


@pytest.mark.parametrize("residual", [0.15, 0.6])
def test_the_true_split_agrees_and_one_by_time_differs(residual: float) -> None:
    """The true split is 70:30, by time 50:50. Subtracting rest leans towards that."""
    truth = machine(residual, 0.7)
    test = judge(truth.rounds(split_a=0.7))
    assert test.verdict is Verdict.AGREES, test.why
    assert test.residual_w.low < truth.rest_w + truth.once_w < test.residual_w.high
    assert test.a.adds_w.value == pytest.approx(truth.a_w, rel=0.02)
    assert test.a.physical_share.low < 0.7 < test.a.physical_share.high
    assert share_above_rest(test, truth.rest_w) < 0.7 - 0.02
    assert judge(truth.rounds(split_a=0.5)).verdict is Verdict.DIFFERS
