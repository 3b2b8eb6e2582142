# SPDX-License-Identifier: Apache-2.0
"""Keeps what tracing costs within a share of the machine's CPU time, by tracing less.

A level takes effect at a start, so changes are few: shedding waits for several measurements, and
recovering waits until the cost at the fuller level would fit, as far as earlier changes tell. A
recovery that had to be taken back makes the next one wait twice as long.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from statistics import fmean

#: What each level leaves out, in addition to those before it.
LEVELS = (
    "nothing",
    "the flight recorder, most of the sample, short windows and hardware counters",
    "uprobes where sockets suffice",
)
PROBES_LEFT_OUT = 2  #: the level from which they are
MEASUREMENTS = 5  #: that decide, about two and a half minutes
HOLD_S, MOST_HOLD_S = 1800.0, 86_400.0
FITS = 0.8  #: a fuller level is tried if it would take so much of the budget
_RATIO = 0.5  #: what a level is thought to leave of the cost before it was ever changed


@dataclass(frozen=True)
class DegradationLevel:
    """How much is left out, and what was learned; the next start goes on with it."""

    level: int = 0
    hold_s: float = HOLD_S
    since_s: float = 0.0  #: Unix time of the last change
    recovered: bool = False  #: the last change was to a fuller level
    before: float = 0.0  #: share of the machine before the last change
    #: cost of each level in relation to that of the one before, of level 1 first
    ratios: tuple[float, ...] = (_RATIO,) * (len(LEVELS) - 1)

    def valid(self) -> bool:
        """Whether all numbers are possible: they may come from a damaged file."""
        numbers = (self.hold_s, self.since_s, self.before, *self.ratios)
        return (
            0 <= self.level < len(LEVELS)
            and len(self.ratios) == len(LEVELS) - 1
            and all(math.isfinite(one) and one >= 0 for one in numbers)
            and all(0 < one <= 1 for one in self.ratios)
            and HOLD_S <= self.hold_s <= MOST_HOLD_S
        )


@dataclass
class Controller:
    """Decides on the level from measurements of the cost.

    Args:
        limit: share of the machine's CPU time.
        shed: as the start before left it.
    """

    limit: float
    shed: DegradationLevel
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=MEASUREMENTS))
    _learned: bool = False

    def take(self, share: float, wall_s: float) -> DegradationLevel | None:
        """A measurement. Returns what the next start should do, if it should be another level."""
        self._recent.append(share)
        if len(self._recent) < MEASUREMENTS:
            return None
        mean, now = fmean(self._recent), self.shed
        held_s = wall_s - now.since_s
        if held_s < 0:  # the clock was set back
            self.shed = now = replace(now, since_s=wall_s)
            held_s = 0.0
        if not self._learned:
            self._learned = True
            self.shed = now = _learn(now, mean)
        if mean > self.limit and now.level < len(LEVELS) - 1:
            back = now.recovered and held_s < 2 * now.hold_s
            hold_s = min(2 * now.hold_s, MOST_HOLD_S) if back else HOLD_S
            return replace(
                now,
                level=now.level + 1,
                hold_s=hold_s,
                since_s=wall_s,
                recovered=False,
                before=mean,
            )
        fuller = mean / now.ratios[now.level - 1] if now.level else math.inf
        if held_s >= now.hold_s and fuller <= FITS * self.limit:
            return replace(now, level=now.level - 1, since_s=wall_s, recovered=True, before=mean)
        return None


def _learn(shed: DegradationLevel, mean: float) -> DegradationLevel:
    """The ratio of the two levels of the last change, from the cost before and after it.

    The load may have changed as well, so half of it is what was thought before.
    """
    fuller = shed.level - 1 if not shed.recovered else shed.level
    if not 0 <= fuller < len(shed.ratios) or not shed.before or not mean:
        return shed
    seen = shed.before / mean if shed.recovered else mean / shed.before
    ratios = list(shed.ratios)
    ratios[fuller] = min(max(math.sqrt(ratios[fuller] * seen), 0.05), 1.0)
    return replace(shed, ratios=tuple(ratios))
