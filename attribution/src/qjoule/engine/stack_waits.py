# SPDX-License-Identifier: Apache-2.0
"""Sums of sampled waits by where on a stack they began: estimates of the sums over all waits, exact
where every wait was sampled.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

_RUN_QUEUE = "run_queue"
_CI95 = 1.96


class SampledWait(NamedTuple):
    """`ns`: its whole length; `run_queue_ns`: the last part, in which the thread could have run;
    `kind`: one of `vocabulary.WAIT_KINDS`, of the rest; `probability`: with which it was drawn."""

    kind: str
    ns: int
    run_queue_ns: int
    probability: float


@dataclass
class WaitSum:
    """Estimated sums of waits. `variance`: of their total, in ns².

    Each sampled wait stands for 1 / p, where p is its probability. The variance is that of
    independent draws (Horvitz and Thompson, JASA 47, 1952).
    """

    by_kind_ns: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    variance: float = 0.0

    @property
    def total_ns(self) -> float:
        return sum(self.by_kind_ns.values())

    @property
    def sampling_ns(self) -> float:
        """Half the width of the 95 % interval of the total; 0 if all waits were sampled."""
        return _CI95 * math.sqrt(self.variance)

    def add(self, wait: SampledWait) -> None:
        weight = 1 / wait.probability
        self.by_kind_ns[wait.kind] += weight * (wait.ns - wait.run_queue_ns)
        self.by_kind_ns[_RUN_QUEUE] += weight * wait.run_queue_ns
        self.variance += weight * (weight - 1) * wait.ns**2

    def add_all(self, other: WaitSum) -> None:
        for kind, ns in other.by_kind_ns.items():
            self.by_kind_ns[kind] += ns
        self.variance += other.variance
