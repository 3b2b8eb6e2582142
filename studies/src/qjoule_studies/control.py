# SPDX-License-Identifier: Apache-2.0
"""The control workload: fixed work, timed again and again until the machine is at rest.

A run heats the machine, fills its caches and leaves dirty pages, which would affect the next
measurement. When fixed work takes as long as the last few times, these effects are over.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev

from qjoule_studies.plan import Control

_BLOCK = bytes(1 << 20)
_BLOCKS = 64  #: some 50 ms with instructions for SHA-256, some 200 ms without


@dataclass(frozen=True)
class Settled:
    """Whether it settled, by which relative standard deviation, and after how many times."""

    settled: bool
    deviation: float
    times: int

    @property
    def words(self) -> str:
        return (
            f"the control workload's last times differ by {self.deviation:.1%} after {self.times} "
            "tries"
        )


def hash_once() -> float:
    """Hashes 64 MiB; how long that took, in seconds."""
    begin = time.perf_counter()
    digest = hashlib.sha256()
    for _ in range(_BLOCKS):
        digest.update(_BLOCK)
    digest.digest()
    return time.perf_counter() - begin


def settle(
    control: Control, once: Callable[[], float], sleep: Callable[[float], None] = time.sleep
) -> Settled:
    """Times the control until its last times differ by at most `control.within`.

    Args:
        once: does the fixed work; its time, in any unit.

    Only times since the call count: earlier ones show nothing about what the last run left behind.
    """
    last: deque[float] = deque(maxlen=control.last)
    deviation = math.inf
    for tries in range(1, control.tries + 1):
        last.append(once())
        if len(last) == control.last:
            deviation = relative_deviation(last)
            if deviation <= control.within:
                return Settled(True, deviation, tries)
        sleep(control.pause_s)
    return Settled(False, deviation, control.tries)


def relative_deviation(times: deque[float]) -> float:
    """Standard deviation (n - 1) over the mean; infinite where the mean is not positive."""
    mean = fmean(times)
    return stdev(times) / mean if mean > 0 else math.inf
