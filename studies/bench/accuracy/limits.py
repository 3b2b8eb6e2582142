# SPDX-License-Identifier: Apache-2.0
"""Draws what lowers the clock of cores besides turbo, and what firmware does by the clock: the
sections on licences, throttling and pulses of `PHYSICS.md`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from studies.bench.accuracy.activity import Activity, Cells, Setting, threads_by_core
from studies.bench.accuracy.machine import heat
from studies.bench.accuracy.recording import F64, I64

#: Steps of clock modulation: a duty cycle is a multiple of this.
_DUTY_STEP = 1 / 16


@dataclass(frozen=True)
class Licence:
    """A core has `pace` of its frequency while it runs wide vector instructions, and for `hold_ns`
    after them. The part `share` of all behaviours has such instructions, and then each costs
    `energy` times as much."""

    pace: float
    hold_ns: int
    share: float
    energy: float

    def dressed(self, random: np.random.Generator, activity: Activity) -> Activity:
        """One behaviour (1,), which may be wide."""
        if random.random() >= self.share:
            return activity
        wide = np.ones_like(activity.wide)
        return replace(activity, wide=wide, intensity=activity.intensity * self.energy)

    def until_ns(self, setting: Setting) -> I64:
        """(s,) when the licence of each slice ends."""
        until: I64 = np.minimum(setting.t1_ns + self.hold_ns, setting.span_ns[1])
        return until

    def held(self, cells: Cells, setting: Setting) -> npt.NDArray[np.bool_]:
        """(c,) whether the core of each cell has a lower licence."""
        wide = setting.activity.wide > 0
        begin = np.searchsorted(cells.edges_ns, setting.t0_ns[wide])
        end = np.searchsorted(cells.edges_ns, self.until_ns(setting)[wide])
        cores, n = cells.core_threads.shape
        holders = threads_by_core(begin, end, cells.slice_core[wide], (cores, n))
        result: npt.NDArray[np.bool_] = holders[cells.core, cells.interval] > 0
        return result


@dataclass(frozen=True)
class Throttle:
    """Above the temperature `begin` (1: of all cores busy for long) the clock falls in proportion,
    to `pace` at 1. `duty`: clocks are left out at the same voltage, in sixteenths; otherwise
    frequency and voltage fall. Temperature follows the busy cores within `tau_s`."""

    tau_s: float
    begin: float
    pace: float
    duty: bool

    def paces(self, busy_share: F64) -> F64:
        """(steps,) what is left of the clock; `busy_share` (steps,): of the cores."""
        over = np.clip((heat(self.tau_s, busy_share) - self.begin) / (1 - self.begin), 0, 1)
        pace: F64 = 1 - (1 - self.pace) * over
        return np.asarray(np.ceil(pace / _DUTY_STEP) * _DUTY_STEP) if self.duty else pace


@dataclass(frozen=True)
class Pulse:
    """Firmware draws `share` of power at rest for `length_ns` in every `period_ns`, once at
    `begin_ns`. `in_phase`: a statement runs at its begin."""

    period_ns: int
    length_ns: int
    share: float
    in_phase: bool
    begin_ns: int = 0

    def times_ns(self, span_ns: tuple[int, int]) -> I64:
        """When it begins and ends within `span_ns`."""
        count = (span_ns[1] - span_ns[0]) // self.period_ns + 2
        begins = span_ns[0] - self._since(np.array(span_ns[0])) + self.period_ns * np.arange(count)
        times = np.concatenate([begins, begins + self.length_ns])
        inside: I64 = times[(times > span_ns[0]) & (times < span_ns[1])]
        return inside

    def factor(self, t_ns: I64) -> F64:
        """(n,) on power at rest from each time until the next of `times_ns`."""
        return np.where(self._since(t_ns) < self.length_ns, 1.0 + self.share, 1.0)

    def _since(self, t_ns: I64) -> I64:
        since: I64 = (t_ns - self.begin_ns) % self.period_ns
        return since


def draw_licence(random: np.random.Generator) -> Licence:
    """Of Skylake-SP and later: a core's frequency by the width of its vector instructions."""
    return Licence(
        pace=random.uniform(0.7, 0.92),
        hold_ns=int(random.uniform(0.5e6, 2e6)),
        share=0.4,
        energy=random.uniform(1.1, 1.5),
    )


def draw_throttle(random: np.random.Generator, tau_s: float) -> Throttle:
    """A machine with poor cooling."""
    return Throttle(
        tau_s=tau_s,
        begin=random.uniform(0.05, 0.3),
        pace=random.uniform(0.3, 0.6),
        duty=bool(random.integers(2)),
    )


def draw_pulse(random: np.random.Generator) -> Pulse:
    """Work of firmware once in 0.5 to 2 s."""
    period_ns = int(random.uniform(0.5e9, 2e9))
    return Pulse(
        period_ns=period_ns,
        length_ns=int(period_ns * random.uniform(0.05, 0.3)),
        share=random.uniform(0.03, 0.2),
        in_phase=bool(random.integers(2)),
    )
