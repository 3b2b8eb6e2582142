# SPDX-License-Identifier: Apache-2.0
"""Hardware counters of segments: cycles, instructions, LLC misses, multiplexed on some machines.

With fewer counters than events the kernel rotates them, every millisecond by default. It then
delivers counts scaled by enabled over running time, which are exact only for work that does not
change (perf_event_open(2); Mathur and Cook, "Improved estimation for software multiplexing of
performance counters", MASCOTS 2005).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.bench.accuracy.physics import COUNTS
from studies.bench.accuracy.recording import F64, I64

from qjoule.model.arrays import COUNTERS, Segments
from qjoule.model.energy import Bool

ROTATION_NS = 1_000_000


@dataclass(frozen=True)
class Pmu:
    """`counted` is the share of time in which the events are on a counter: 1 if not multiplexed.

    `error` is the relative error of a read. `unsteady` is how much events per nanosecond vary
    between the counted and the uncounted parts of a segment.
    """

    counted: float = 1.0
    error: float = 2e-4
    unsteady: float = 0.1


def read_pmu(
    random: np.random.Generator, pmu: Pmu, cut: Segments, amounts: dict[str, F64]
) -> Segments:
    """Adds to `cut` the counters for `amounts` and how they were scaled."""
    n = len(cut.cpu)
    true = np.stack([amounts[name] for name in COUNTS], axis=1)
    counts = true * (1 + pmu.error * random.normal(0, 1, (n, COUNTERS)))
    valid = np.ones((n, COUNTERS), bool)
    scaled = None
    if pmu.counted < 1:
        share = _running(random, pmu.counted, cut)
        off = np.sqrt(1 - share)[:, None] * pmu.unsteady
        counts *= np.exp(off * random.normal(0, 1, (n, COUNTERS)))
        # A segment that fell between two turns of the counters has no count to scale.
        never = share <= 0
        valid[never], counts[never] = _none(never), 0
        scaled = share.astype(np.float32)
    delivered = np.maximum(np.rint(counts), 0).astype(np.uint64)
    return Segments(cut.t0_ns, cut.t1_ns, cut.cpu, cut.group, delivered, valid, scaled)


def _none(rows: Bool) -> Bool:
    return np.zeros((int(rows.sum()), COUNTERS), bool)


def _running(random: np.random.Generator, counted: float, cut: Segments) -> F64:
    """Share of each segment in which its CPU's events were counted.

    Three rotations make a turn. On every CPU the events are counted in the first part of a turn.
    """
    turn_ns = 3 * ROTATION_NS
    on_ns = counted * turn_ns
    phase = random.uniform(0, turn_ns, int(cut.cpu.max(initial=0)) + 1)[cut.cpu]
    begin, end = cut.t0_ns + phase, cut.t1_ns + phase
    running = _counted_until(end, turn_ns, on_ns) - _counted_until(begin, turn_ns, on_ns)
    share: F64 = np.clip(running / (cut.t1_ns - cut.t0_ns), 0, 1)
    return share


def _counted_until(t_ns: F64 | I64, turn_ns: float, on_ns: float) -> F64:
    """Counted time from 0 to each time."""
    turns = np.floor(t_ns / turn_ns)
    until: F64 = turns * on_ns + np.minimum(t_ns - turns * turn_ns, on_ns)
    return until
