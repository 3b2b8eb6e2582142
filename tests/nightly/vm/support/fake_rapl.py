# SPDX-License-Identifier: Apache-2.0
"""The values of the counters of `fake_rapl/fake_rapl.c`, and the tests' settings for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

#: By package and domain, in the module's order. More than packages draw, so that counters wrap
#: within seconds although they can hold a second of the busiest package's energy.
POWER_MW = {
    (0, "package"): 1_200_000,
    (0, "core"): 800_000,
    (0, "dram"): 90_000,
    (1, "package"): 900_000,
}
#: Like a real machine: a constant power, and further milliwatts for each busy CPU of the package.
IDLE_MW = {(0, "package"): 40_000, (0, "core"): 5_000, (0, "dram"): 3_000, (1, "package"): 30_000}
CPU_MW = {(0, "package"): 60_000, (0, "core"): 50_000, (0, "dram"): 0, (1, "package"): 60_000}
UNIT_NJ = 500
COUNTS = 1 << 32
RANGE_UJ = COUNTS * UNIT_NJ // 1000  #: 2147 J
REST_S = 3  #: recorded after the load; including it, every package's counter wraps
NS_PER_MS = 1_000_000


def module_parameters(
    power_mw: Mapping[tuple[int, str], int], cpu_mw: Mapping[tuple[int, str], int]
) -> str:
    """Parameters for `insmod`."""
    both = {"power_mw": power_mw, "cpu_mw": cpu_mw}
    lists = (f"{name}={','.join(map(str, of.values()))}" for name, of in both.items() if of)
    return " ".join((*lists, f"unit_nj={UNIT_NJ}"))


def counter_uj(power_mw: int, ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The value of `energy_uj` at these milliseconds of CLOCK_MONOTONIC, without busy
    CPUs' energy.
    """
    counts = ms * power_mw * 1000 // UNIT_NJ % COUNTS
    return counts * UNIT_NJ // 1000
