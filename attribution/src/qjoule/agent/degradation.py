# SPDX-License-Identifier: Apache-2.0
"""Keeps what tracing costs within a share of the machine's CPU time, by tracing less.

A level takes effect at a start, so changes are few: shedding waits for several measurements, and
recovering waits until earlier changes show that the fuller level would fit. A recovery that had to
be taken back makes the next one wait twice as long.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

#: What each level leaves out, in addition to those before it.
LEVELS = (
    "nothing",
    "the flight recorder, most of the sample, short windows and hardware counters",
    "uprobes where sockets suffice",
)
PROBES_LEFT_OUT = 2  #: the level from which uprobes are left out
MEASUREMENTS = 5  #: of each decision: about two and a half minutes
HOLD_S, MOST_HOLD_S = 1800.0, 86_400.0
FITS = 0.8  #: a fuller level is tried if it would take at most this share of the budget
_RATIO = 0.5  #: assumed cost of a level over that of the one before, until it is observed


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
            and all(math.isfinite(number) and number >= 0 for number in numbers)
            and all(0 < ratio <= 1 for ratio in self.ratios)
            and HOLD_S <= self.hold_s <= MOST_HOLD_S
        )


@dataclass
class Controller:
    """Decides on the level from measurements of the cost.

    Args:
        limit: share of the machine's CPU time.
        shed: what the start before left out.
    """

    limit: float
    shed: DegradationLevel
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=MEASUREMENTS))
    _learned: bool = False

    def take(self, share: float, wall_s: float) -> DegradationLevel | None:
        """Adds a measurement. Returns the next start's level, if it should be another one."""
        self._recent.append(share)
        if len(self._recent) < MEASUREMENTS:
            return None
        mean, now = sum(self._recent) / len(self._recent), self.shed
        held_s = wall_s - now.since_s
        if held_s < 0:  # the clock was set back
            self.shed = now = replace(now, since_s=wall_s)
            held_s = 0.0
        if not self._learned:
            self._learned = True
            self.shed = now = _learn(now, mean)
        if mean > self.limit and now.level < len(LEVELS) - 1:
            hold_s = HOLD_S
            if held_s < 2 * now.hold_s:  # a load that comes and goes may shed several levels
                hold_s = min(2 * now.hold_s, MOST_HOLD_S) if now.recovered else now.hold_s
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
    """Updates the ratio of the last change's two levels from the cost before and after it.

    The load may have changed as well, so the result is the geometric mean with the former ratio.
    """
    fuller = shed.level - 1 if not shed.recovered else shed.level
    if not 0 <= fuller < len(shed.ratios) or not shed.before or not mean:
        return shed
    observed = shed.before / mean if shed.recovered else mean / shed.before
    ratios = list(shed.ratios)
    ratios[fuller] = min(max(math.sqrt(ratios[fuller] * observed), 0.05), 1.0)
    return replace(shed, ratios=tuple(ratios))
