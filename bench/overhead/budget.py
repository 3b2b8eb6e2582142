# SPDX-License-Identifier: Apache-2.0
"""Divides the time of a run among what is to be measured, and says when that is precise enough.

Each step gets its share of the time that is left, by the number of its series. What a step does not
need, because its intervals are narrow before, is there for all later ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.overhead.rounds import Samples
from bench.overhead.stats import median_interval

#: Pairs of each series, however little time is left: of six, the interval from the smallest to the
#: largest holds the median with 97 %.
LEAST_PAIRS = 6
#: A server's start with its data, a load's start, and the rate that keeps it as busy as wanted.
START_S, LOAD_S, RATE_S = 12.0, 6.0, 10.0
#: One look by the kernel's accounts, beside its intervals: attaching, detaching.
LOOK_S = 5.0
#: Half of an interval's length that is narrow enough: of the throughput by CPU time, and of what a
#: query's CPU time on the whole machine becomes, as shares of untraced.
NARROW = 0.01


@dataclass(frozen=True)
class Step:
    """Part of a load. `series`: of pairs; `needs_s`: what it takes beside them."""

    load: str
    part: str
    series: int = 0
    needs_s: float = 0.0


class Budget:
    """`steps`: in the order in which they are begun."""

    def __init__(
        self, seconds: float, steps: Sequence[Step], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._left, self._clock = list(steps), clock
        self._end_s = clock() + seconds

    def begin(self, load: str, part: str) -> float:
        """The time by the clock at which this step's pairs must end; called when its load runs.
        Steps before it are over or left out.
        """
        while (self._left[0].load, self._left[0].part) != (load, part):
            self._left.pop(0)
        series = sum(step.series for step in self._left)
        step = self._left.pop(0)
        needed_s, now_s = sum(step.needs_s for step in self._left), self._clock()
        share_s = (self._end_s - now_s - needed_s) * step.series / max(series, 1)
        return now_s + max(share_s, 0.0)

    def until(self, end_s: float) -> Callable[[Mapping[str, Samples]], bool]:
        """Whether a step is over: `end_s` has come, or every series is precise enough."""

        def over(samples: Mapping[str, Samples]) -> bool:
            if any(len(sample.rate) < LEAST_PAIRS for sample in samples.values()):
                return False
            return self._clock() >= end_s or all(map(narrow, samples.values()))

        return over


def narrow(samples: Samples) -> bool:
    """Whether both figures' intervals are narrow enough."""
    places = samples.places
    untraced = median(places.untraced["machine"])
    added = [ns / untraced for ns in places.added["machine"]]
    return all(_half_length(values) <= NARROW for values in (samples.cpu_lost, added))


def _half_length(values: Sequence[float]) -> float:
    estimate = median_interval(values)
    return (estimate.high - estimate.low) / 2
