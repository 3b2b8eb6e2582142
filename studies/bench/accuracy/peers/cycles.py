# SPDX-License-Identifier: Apache-2.0
"""Energy in proportion to unhalted cycles, and to cycles weighted for SMT.

HaPPy: Zhai et al., "HaPPy: Hyperthread-aware Power Profiling Dynamically", USENIX ATC 2014: two
busy threads of a core draw about 1.1 times one, so a cycle beside a busy sibling weighs 1.1 / 2;
active power (above idle) is divided by weighted cycles. DEEP-mon: Brondolin et al., "DEEP-mon:
Dynamic and Energy Efficient Power monitoring for container-based infrastructures", IPDPSW 2018,
divides the whole RAPL figure by the same weighted cycles.
"""

from __future__ import annotations

from studies.bench.accuracy.peers.observed import Observed
from studies.bench.accuracy.peers.shares import divide
from studies.bench.accuracy.recording import F64

#: Power of a core with two busy threads over that with one.
SMT_RATIO = 1.1


def all_energy(seen: Observed) -> F64 | None:
    """All energy by cycles."""
    return None if seen.counts is None else divide(seen.energy_nj, seen.counts[..., 0])


def above_idle(seen: Observed) -> F64 | None:
    """Energy above the measured power at rest, by cycles."""
    return None if seen.counts is None else divide(seen.above_idle_nj(), seen.counts[..., 0])


def deep_mon(seen: Observed) -> F64 | None:
    """All energy by SMT-weighted cycles."""
    weight = _weighted(seen)
    return None if weight is None else divide(seen.energy_nj, weight)


def happy(seen: Observed) -> F64 | None:
    """Energy above the measured power at rest, by SMT-weighted cycles."""
    weight = _weighted(seen)
    return None if weight is None else divide(seen.above_idle_nj(), weight)


def _weighted(seen: Observed) -> F64 | None:
    if seen.counts is None or seen.overlap_counts is None:
        return None
    return seen.counts[..., 0] - (1 - SMT_RATIO / 2) * seen.overlap_counts[..., 0]
