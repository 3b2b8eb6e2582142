# SPDX-License-Identifier: Apache-2.0
"""Energy in proportion to CPU time, as most tools in the field divide it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from studies.bench.accuracy.peers.observed import Observed
from studies.bench.accuracy.peers.shares import divide
from studies.bench.accuracy.recording import F64

#: Weight of CPU time beside a busy sibling: half of what HaPPy measured for both, 1.1 of one
#: (Zhai et al., USENIX ATC 2014).
SIBLING_WEIGHT = 0.55


def kepler(seen: Observed) -> F64:
    """Kepler 0.10 and later: active = energy * usage ratio of all CPUs; active energy by CPU time.

    The rest is Kepler's idle energy and appears in no target's figure
    (sustainable-computing-io/kepler, internal/monitor/node.go and process.go). The method neither
    needs nor knows a power at rest.
    """
    busy_ns = seen.cpu_ns.sum(axis=2).T
    usage = np.minimum(busy_ns / np.maximum(seen.dt_ns * seen.cpus[:, None], 1.0), 1.0)
    return divide(seen.energy_nj * usage, seen.cpu_ns)


def scaphandre(seen: Observed) -> F64:
    """All energy, including idle, by share of the CPU time in use (Scaphandre's book, "How
    scaphandre computes per process power consumption").
    """
    return divide(seen.energy_nj, seen.cpu_ns)


def above_idle(seen: Observed) -> F64:
    """Energy above the measured power at rest, by CPU time: Kepler and Scaphandre at their best."""
    return divide(seen.above_idle_nj(), seen.cpu_ns)


def above_least(seen: Observed) -> F64:
    """Energy above the least power of any window (2 % quantile), by CPU time.

    What a user without a calibration can subtract.
    """
    least_w = np.zeros(len(seen.energy_nj))
    for package, energy_nj in enumerate(seen.energy_nj):
        known = seen.known[package] & (seen.dt_ns > 0)
        if known.any():
            least_w[package] = np.quantile(energy_nj[known] / seen.dt_ns[known], 0.02)
    return divide(replace(seen, idle_w=least_w).above_idle_nj(), seen.cpu_ns)


def smt_time(seen: Observed) -> F64:
    """As `above_idle`, with HaPPy's weight for time beside a busy sibling.

    No tool publishes this for CPU time. It is what a careful user of the tools could compute.
    """
    weight = seen.cpu_ns - (1 - SIBLING_WEIGHT) * seen.overlap_ns
    return divide(seen.above_idle_nj(), weight)
