# SPDX-License-Identifier: Apache-2.0
"""EnergAt: Hè, Friedman, Rekatsinas, "EnergAt: Fine-Grained Energy Attribution for Multi-Tenancy",
HotCarbon 2023 (arXiv:2307.05647), and its implementation HongyuHe/energat.

Per socket and interval: static energy, measured on the idle machine, is subtracted; a target is
credited with (its share of the socket's CPU time in use) ** gamma of the rest, gamma = 0.3. An
interval is at least 50 ms. DRAM is credited by resident memory, which a CPU trace does not contain.
"""

from __future__ import annotations

import numpy as np
from studies.bench.accuracy.peers.observed import Observed
from studies.bench.accuracy.peers.shares import divide
from studies.bench.accuracy.recording import F64

GAMMA = 0.3
INTERVAL_NS = 50_000_000


def as_published(seen: Observed) -> F64:
    """Credits of all groups. They need not add up to the energy."""
    energy_nj, credit = _intervals(seen)
    charged: F64 = np.einsum("pk,kpg->g", energy_nj, credit)
    return charged


def normalised(seen: Observed) -> F64:
    """The same credits, scaled to add up to the energy, in the method's favour."""
    energy_nj, credit = _intervals(seen)
    return divide(energy_nj, credit)


def _intervals(seen: Observed) -> tuple[F64, F64]:
    """Energy above idle (p, n) and credits (n, p, g) of every interval."""
    number = (np.cumsum(seen.dt_ns) - seen.dt_ns).astype(np.int64) // INTERVAL_NS
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    energy_nj = np.add.reduceat(seen.above_idle_nj(), starts, axis=1)
    cpu_ns = np.add.reduceat(seen.cpu_ns, starts, axis=0)
    total_ns = cpu_ns.sum(axis=2, keepdims=True)
    return energy_nj, (cpu_ns / np.maximum(total_ns, 1.0)) ** GAMMA
