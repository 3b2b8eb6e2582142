# SPDX-License-Identifier: Apache-2.0
"""A calibration run on a machine in use: short loads that end at once if the others' work rises."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qjoule.machine.guard import Guard, Limits, LoadRose, Reading, look
from qjoule.machine.load import BusyWatch, running
from qjoule.machine.quick_steps import ENOUGH, SETTLE_S, Use
from qjoule.machine.steps import IDLE, Step
from qjoule.model.fit.known_loads import Phase
from qjoule.session.calibrating import Done
from qjoule.session.power_watch import PowerWatch

_POLL_S = 0.1


@dataclass(frozen=True)
class Bounds:
    """What ends a run: see `Limits`; and W that the load may draw (None: any)."""

    limits: Limits
    most_w: float | None = None


class QuickRun:
    """Runs the steps of one calibration. `check` raises if the recording failed."""

    def __init__(
        self,
        bounds: Bounds,
        power: PowerWatch,
        check: Callable[[], None],
        read: Callable[[], Reading] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bounds, self._power, self._check, self._sleep = bounds, power, check, sleep
        self._pids: tuple[int, ...] = ()
        self._guard = Guard(bounds.limits, read or look(lambda: self._pids))

    def begin(self, seconds: float) -> Use:
        """How busy the machine is without our load, measured for so long."""
        use = self._guard.begin(seconds, self._sleep)
        self._check()
        self._power.begun()
        return use

    def run(self, steps: Sequence[Step], after: Callable[[Done], None]) -> tuple[list[Done], str]:
        """The steps that ran to their end, and why the others did not (empty: all did).

        Raises `LoadRose` if so few ran that they tell too little.
        """
        done: list[Done] = []
        try:
            for step in steps:
                done.append(self._one(step))
                after(done[-1])
        except LoadRose as error:
            planned = sum(step.kernel != IDLE for step in steps)
            ran = sum(one.step.kernel != IDLE for one in done)
            words = f"stopped after {ran} of {planned} loads: {error}"
            if ran < ENOUGH * planned:
                raise LoadRose(words) from None
            return done, words
        return done, ""

    def _one(self, step: Step) -> Done:
        with running(step) as load:
            self._pids = load.pids
            try:
                self._wait(SETTLE_S)
                watch, t0_ns = BusyWatch(), time.monotonic_ns()
                self._wait(step.seconds)
                t1_ns, busy = time.monotonic_ns(), watch.cpus()
            finally:
                self._pids = ()
        phase = Phase(step.kernel, t0_ns, t1_ns, step.threads, step.smt)
        return Done(step, phase, busy, load.exceeds_cache)

    def _wait(self, seconds: float) -> None:
        """Sleeps in short pieces, and looks at the machine after each. Raises `LoadRose`."""
        while seconds > 0:
            self._sleep(min(seconds, _POLL_S))
            seconds -= _POLL_S
            self._check()
            self._guard.check()
            above_w = self._power.above_w()
            if self._bounds.most_w is not None and (above_w or 0.0) > self._bounds.most_w:
                raise LoadRose(
                    f"{above_w:.1f} W more than at the start are drawn, "
                    f"and {self._bounds.most_w:g} W are allowed"
                )
