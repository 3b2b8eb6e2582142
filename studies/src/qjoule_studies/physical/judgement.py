# SPDX-License-Identifier: Apache-2.0
"""The physical test: does the split of a shared total agree with what each part draws alone?

Two loads, A and B, run alone and then together. Whatever the machine draws once, at rest or as soon
as anything runs (package, uncore, voltage and clock), is in both solo readings but only once in the
joint one. So with the residual

    R = A + B - together

A alone minus R is what A adds to the machine, and likewise for B. Their ratio is physical, and
known without any model. If the power at rest were subtracted instead, power drawn once would remain
in both and pull the ratio towards 1: with RAPL read once a second, A + B - rest exceeded `together`
by 16 % on a desktop of six cores and by 56 % on a server of two sockets.

The split under test is what each load adds by the attribution (`kit.figures`): its dynamic power,
and the shared power that is drawn only because it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from qjoule.api.model import F64

#: Error, relative, up to which a split passes. Power Containers (Shen et al., ASPLOS 2013) kept its
#: per-request energies within 11 %, HaPPy (Zhai et al., USENIX ATC 2014) its threads' within 9.4 %.
THRESHOLD = 0.11
#: A load is still the same if its rate, alone against together, changes by at most this share.
SAME_RATE = 0.10
LEAST_ROUNDS = 3


class Verdict(StrEnum):
    """`AGREES`: the whole 95 % interval is within the threshold; `DIFFERS`: the estimate exceeds
    it."""

    AGREES = "agrees"
    DIFFERS = "differs"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Round:
    """One round: mean power of the machine in W, rates in calls/s, and the split under test.

    `split_a`, `split_b`: what A and B add by the attribution, in any one unit.
    """

    alone_a_w: float
    alone_b_w: float
    together_w: float
    split_a: float
    split_b: float
    alone_a_calls_per_s: float
    alone_b_calls_per_s: float
    together_a_calls_per_s: float
    together_b_calls_per_s: float


@dataclass(frozen=True)
class Estimate:
    """A mean over rounds with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Side:
    """One load: W alone, W it adds (alone - R), its shares of the dynamic energy, the error."""

    alone_w: Estimate
    adds_w: Estimate
    physical_share: Estimate
    split_share: Estimate
    error: Estimate  #: split_share / physical_share - 1
    rate_change: float  #: calls/s together over alone, minus 1


@dataclass(frozen=True)
class PhysicalTest:
    """The result of the rounds. `why` gives the reason for any verdict except agreement."""

    a: Side
    b: Side
    together_w: Estimate
    residual_w: Estimate
    verdict: Verdict
    why: str
    threshold: float
    rounds: int


def judge(rounds: Sequence[Round], threshold: float = THRESHOLD) -> PhysicalTest:
    """Compares the split of the joint runs with what A and B add to the machine.

    Shares and errors are ratios of means over rounds, with intervals by the delta method and
    Student's t of rounds - 1 degrees of freedom. A round's three powers are measured one after the
    other, so a drift of the machine shows in their covariance.

    Raises `ValueError` for fewer than `LEAST_ROUNDS` rounds, or values that are not numbers.
    """
    if len(rounds) < LEAST_ROUNDS:
        raise ValueError(f"{len(rounds)} rounds: at least {LEAST_ROUNDS} are needed")
    means = _Means(np.array([_values(round_) for round_ in rounds]))
    a, b = (_side(means, rounds, is_a=is_a) for is_a in (True, False))
    verdict, why = _verdict(a, b, threshold)
    together, residual = means.linear(0.0, 0.0, 1.0, 0.0), means.linear(1.0, 1.0, -1.0, 0.0)
    return PhysicalTest(a, b, together, residual, verdict, why, threshold, len(rounds))


def share_above_rest(test: PhysicalTest, rest_w: float) -> float:
    """A's share if the power at rest were subtracted instead of R; not valid as a criterion."""
    a, b = test.a.alone_w.value - rest_w, test.b.alone_w.value - rest_w
    return a / (a + b) if a + b > 0 else math.nan


class _Means:
    """Means of rounds (n, p), and intervals of functions of these means."""

    def __init__(self, values: F64) -> None:
        from scipy.special import stdtrit  # noqa: PLC0415 - slow to import, for this one test

        n = len(values)
        self.mean: F64 = values.mean(axis=0)
        self.covariance: F64 = np.cov(values, rowvar=False) / n
        self.t = float(stdtrit(n - 1, 0.975))

    def around(self, value: float, slope: F64) -> Estimate:
        """A function's value at the means, with its interval from its slope (p,) there."""
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            return Estimate(value, -math.inf, math.inf)
        half = self.t * math.sqrt(max(float(slope @ self.covariance @ slope), 0.0))
        return Estimate(float(value), float(value - half), float(value + half))

    def linear(self, *slope: float) -> Estimate:
        at = np.array(slope)
        return self.around(float(at @ self.mean), at)


def _values(round_: Round) -> tuple[float, float, float, float]:
    """What `_Means` are made of: W of A, of B, together, and A's part of the split."""
    split = round_.split_a + round_.split_b
    values = (round_.alone_a_w, round_.alone_b_w, round_.together_w, round_.split_a)
    if not (all(map(math.isfinite, values)) and math.isfinite(split) and split > 0):
        raise ValueError("a round has a power or an energy that is no number, or none at all")
    return (*values[:3], round_.split_a / split)


def _side(means: _Means, rounds: Sequence[Round], *, is_a: bool) -> Side:
    alone_a, alone_b, together, split = means.mean
    share, slope = _physical_share(alone_a, alone_b, together, is_a=is_a)
    sign = 1.0 if is_a else -1.0
    split = split if is_a else 1.0 - split
    error, error_slope = math.inf, np.full(4, math.inf)
    if share > 0:
        error = split / share - 1.0
        error_slope = np.append(-split / share**2 * slope, sign / share)
    return Side(
        alone_w=means.linear(float(is_a), float(not is_a), 0.0, 0.0),
        adds_w=means.linear(*((0.0, -1.0, 1.0) if is_a else (-1.0, 0.0, 1.0)), 0.0),
        physical_share=means.around(share, np.append(slope, 0.0)),
        split_share=means.around(split, np.array([0.0, 0.0, 0.0, sign])),
        error=means.around(error, error_slope),
        rate_change=_rate_change(rounds, is_a=is_a),
    )


def _physical_share(a: float, b: float, together: float, *, is_a: bool) -> tuple[float, F64]:
    """(A - R) / (A - R + B - R), or B's, and its slope in (A, B, together)."""
    adds_a, adds_b = together - b, together - a
    sum_w = adds_a + adds_b
    if sum_w <= 0:
        return 0.0, np.full(3, np.inf)
    slope_a = np.array([adds_a, -adds_b, adds_b - adds_a]) / sum_w**2
    return (adds_a / sum_w, slope_a) if is_a else (adds_b / sum_w, -slope_a)


def _rate_change(rounds: Sequence[Round], *, is_a: bool) -> float:
    alone = sum(r.alone_a_calls_per_s if is_a else r.alone_b_calls_per_s for r in rounds)
    together = sum(r.together_a_calls_per_s if is_a else r.together_b_calls_per_s for r in rounds)
    return together / alone - 1.0 if alone > 0 else math.nan


def _verdict(a: Side, b: Side, threshold: float) -> tuple[Verdict, str]:
    for name, side in (("A", a), ("B", b)):
        if side.adds_w.low <= 0:
            return Verdict.CANNOT_TELL, (
                f"what {name} adds to the machine cannot be told from noise: "
                "more or longer rounds, or a quieter machine"
            )
        if not abs(side.rate_change) <= SAME_RATE:
            return Verdict.CANNOT_TELL, (
                f"{name} runs {side.rate_change:+.0%} as fast beside the other: "
                "it is not the load that it is alone"
            )
    worst = max(abs(side.error.value) for side in (a, b))
    if worst > threshold:
        return Verdict.DIFFERS, f"the split is off by {worst:.1%}, more than {threshold:.0%}"
    widest = max(max(abs(s.error.low), abs(s.error.high)) for s in (a, b))
    if widest > threshold:
        return Verdict.CANNOT_TELL, (
            f"the split is off by {worst:.1%}, but with its interval it may be {widest:.1%}: "
            "more or longer rounds, or a quieter machine"
        )
    return Verdict.AGREES, ""
