# SPDX-License-Identifier: Apache-2.0
"""Converts readings of an external meter to a counter of the domain `wall`, on the trace's
clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.engine.tables import POWER
from qjoule.model.clock import ClockFit, fit_clock, to_ours
from qjoule.model.energy import WALL, Readings, Series
from qjoule.trace.reader import Trace
from qjoule.trace.views import view

_DEFAULT_PERIOD_NS = 1_000_000_000
_EPOCH_NS = 10**18  #: a clock with a larger value counts since 1970 (this is in 2001)


@dataclass(frozen=True)
class Metered:
    """`series` of `readings`, numbered from the number that the caller gave."""

    readings: Readings
    series: Series
    clock: ClockFit | None  #: None: the meter has no clock
    apart_ns: int = 0  #: that clock minus this machine's of the same kind, when the meter began
    epoch: bool = False  #: whether it counts since 1970

    @property
    def note(self) -> str:
        """How the meter's clock was interpreted."""
        if self.clock is None:
            return "wall meter: without a clock, so its readings are of when they came"
        if not self.clock.followed:
            return "wall meter: its clock jumps, so its readings are of when they came"
        whose = "this machine's" if self.epoch else "this machine's monotonic one"
        drift_ppm = -self.clock.drift * 1e6 + 0.0  # no -0.0
        return (
            f"wall meter: its clock is {self.apart_ns * 1e-9:+.3f} s from {whose} and drifts "
            f"{drift_ppm:+.1f} ppm; 95 % of its readings came within "
            f"{self.clock.delay_ns * 1e-9:.3f} s"
        )


def metered(trace: Trace, number: int) -> Metered | None:
    """The readings of the trace's meter; None without one. `number`: the number of its series."""
    table, info = trace.table("meter"), trace.meta.meter
    if not table.num_rows or info is None:
        return None
    t_ns = view(table.column("t_ns"))
    stamps = table.column("stamp_ns")
    raw = view(table.column("raw")).astype(np.uint64)
    clock, half_ns, ours, apart_ns, epoch = None, 0, t_ns, 0, False
    if not stamps.null_count:
        stamp_ns = view(stamps)
        clock = fit_clock(stamp_ns, t_ns)
        ours, half_ns = to_ours(clock, stamp_ns, t_ns), clock.half_width_ns
        since_ns = trace.meta.realtime_offset_ns or 0
        epoch = bool(since_ns) and int(stamp_ns[0]) >= _EPOCH_NS
        apart_ns = -clock.offset_ns - (since_ns if epoch else 0)
    moved = np.flatnonzero(np.append(True, raw[1:] != raw[:-1]))
    steps_ns = np.diff(ours[moved])
    period_ns = int(np.median(steps_ns)) if len(steps_ns) else _DEFAULT_PERIOD_NS
    ones = np.ones(len(ours), np.int64)
    return Metered(
        Readings(ours, raw, ones.astype(bool), ones * half_ns, ones * number),
        Series(0, WALL, info.unit_j, 0, max(period_ns, 1), info.kind == POWER),
        clock,
        apart_ns,
        epoch,
    )


def with_meter(readings: Readings, found: Metered) -> Readings:
    """Both kinds of readings."""
    pairs = zip(vars(readings).values(), vars(found.readings).values(), strict=True)
    return Readings(*(np.concatenate(pair) for pair in pairs))
