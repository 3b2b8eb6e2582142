# SPDX-License-Identifier: Apache-2.0
"""Judges the pairs of a kit: the division of each mixed run against what its loads add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qjoule_studies.physical.judgement import (
    THRESHOLD,
    Estimate,
    PhysicalTest,
    Round,
    Verdict,
    judge,
)
from qjoule_studies.physical.kit.document import Document, Load, Run


@dataclass(frozen=True)
class Pair:
    """Two loads that ran together. `test` is None, and `why` says so, if there is no verdict.

    `scale`: what both add by the attribution, over what both add to the machine, minus 1. The
    division of a wrong sum may be right. `held`: for how many of the two loads the interval of the
    attribution meets that of what the load adds.
    """

    a: Load
    b: Load
    test: PhysicalTest | None
    why: str
    scale: float | None = None
    held: int = 0

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict if self.test else Verdict.CANNOT_TELL

    @property
    def error(self) -> float | None:
        """The larger error of the two shares, relative; None if it cannot be told."""
        if self.test is None or self.verdict is Verdict.CANNOT_TELL:
            return None
        return max(abs(side.error.value) for side in (self.test.a, self.test.b))


def pairs(document: Document, threshold: float = THRESHOLD) -> tuple[Pair, ...]:
    """Every pair of loads that ran together, in the order of the first such run."""
    wanted = dict.fromkeys(run.loads for run in document.runs if len(run.parts) == 2)
    return tuple(_pair(document, both, threshold) for both in wanted)


def rest_w(document: Document) -> float | None:
    """Mean power at rest; None without such a run."""
    powers = [run.power_w for run in document.runs if not run.parts]
    return float(np.mean(powers)) if powers else None


def _pair(document: Document, both: tuple[int, ...], threshold: float) -> Pair:
    a, b = (document.loads[one] for one in both)
    trios = list(_trios(document.runs, both))
    try:
        test = judge(list(map(_round, trios)), threshold)
    except ValueError as error:
        return Pair(a, b, None, str(error))
    adds_w = test.a.adds_w.value + test.b.adds_w.value
    split_w = float(np.mean([sum(trio.added_w()) for trio in trios]))
    scale = split_w / adds_w - 1 if adds_w > 0 else None
    held = sum(_held(side.adds_w, trios, at) for at, side in enumerate((test.a, test.b)))
    return Pair(a, b, test, test.why, scale, held)


@dataclass(frozen=True)
class _Trio:
    """The runs of one round that belong to a pair."""

    a: Run
    b: Run
    mixed: Run

    def added_w(self) -> tuple[float, float]:
        """What each load adds to the machine by the attribution.

        Its dynamic power, and the shared power of the mixed run less that of the other load alone:
        that would be drawn without it. So a load that keeps the package awake while the other
        sleeps adds what is shared then, unless the other one's idle tail would draw it anyway.
        """
        shared_w = sum(part.shared_w for part in self.mixed.parts)
        a, b = (
            max(part.energy_w - part.shared_w + shared_w - other.parts[0].shared_w, 0.0)
            for part, other in zip(self.mixed.parts, (self.b, self.a), strict=True)
        )
        return a, b


def _trios(runs: Sequence[Run], both: tuple[int, ...]) -> Iterator[_Trio]:
    """Rounds that have all three runs of a pair."""
    by_round: dict[int, dict[tuple[int, ...], Run]] = {}
    for run in runs:
        by_round.setdefault(run.round, {})[run.loads] = run
    for done in by_round.values():
        a, b, mixed = done.get(both[:1]), done.get(both[1:]), done.get(both)
        if a and b and mixed:
            yield _Trio(a, b, mixed)


def _round(trio: _Trio) -> Round:
    split_a, split_b = trio.added_w()
    part_a, part_b = trio.mixed.parts
    return Round(
        alone_a_w=trio.a.power_w,
        alone_b_w=trio.b.power_w,
        together_w=trio.mixed.power_w,
        split_a=split_a,
        split_b=split_b,
        alone_a_calls_per_s=trio.a.parts[0].calls_per_s,
        alone_b_calls_per_s=trio.b.parts[0].calls_per_s,
        together_a_calls_per_s=part_a.calls_per_s,
        together_b_calls_per_s=part_b.calls_per_s,
    )


def _held(adds_w: Estimate, trios: Sequence[_Trio], at: int) -> bool:
    """Whether two intervals meet: what a load adds, and what the attribution says that it adds."""
    parts = [trio.mixed.parts[at] for trio in trios]
    other = np.mean([part.energy_w for part in parts])
    other -= np.mean([trio.added_w()[at] for trio in trios])
    low_w = float(np.mean([part.low_w for part in parts]) - other)
    high_w = float(np.mean([part.high_w for part in parts]) - other)
    return low_w <= adds_w.high and adds_w.low <= high_w
