# SPDX-License-Identifier: Apache-2.0
"""The values of the counters of `fake_rapl/fake_rapl.c`, and the tests' settings for them."""

from __future__ import annotations

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
PARAMETERS = "power_mw=" + ",".join(map(str, POWER_MW.values()))  #: for `insmod`
UNIT_NJ = 500
COUNTS = 1 << 32
RANGE_UJ = COUNTS * UNIT_NJ // 1000  #: 2147 J
REST_S = 3  #: recorded after the load; including it, every package's counter wraps
NS_PER_MS = 1_000_000


def counter_uj(power_mw: int, ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The value of `energy_uj` at these milliseconds of CLOCK_MONOTONIC."""
    counts = ms * power_mw * 1000 // UNIT_NJ % COUNTS
    return counts * UNIT_NJ // 1000
