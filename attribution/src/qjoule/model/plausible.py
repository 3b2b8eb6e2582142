# SPDX-License-Identifier: Apache-2.0
"""Judges whether the counter of DRAM can be right, by the power that it shows beside others.

The unit of Intel's DRAM counter differs by CPU model (15.3 or 61 uJ: `dram_domain_energy_unit` in
the kernel's drivers/powercap/intel_rapl_common.c, and its commit 4c081324df56). Where the driver or
the firmware has another one, all of the domain's joules are wrong, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qjoule.model.arrays import WindowBatch
from qjoule.model.energy import Series
from qjoule.model.slow import coarse

#: Memory of servers draws less than three times what their packages do, at any load.
_MOST_OF_PACKAGE = 3.0
#: Sockets have like memory. One whose DRAM draws more than the package, and so many times what
#: that of another socket does, was seen on Granite Rapids: 200 W, beside 6 W (PAPI's pull request
#: 635).
_MOST_OF_OTHERS = 20.0
_LEAST_NS = 500_000_000  #: a shorter known time shows no mean power
_ADVICE = (
    "its unit differs by CPU model, and another one is in use: update kernel and firmware, or "
    "measure memory at the wall (record --meter)"
)


def left_out(batches: Sequence[WindowBatch], series: Sequence[Series]) -> dict[str, str]:
    """Domains whose counters cannot be right in these windows, each with the reason for people."""
    dram_w = _by_package(batches, series, "dram")
    package_w = _by_package(batches, series, "package") if dram_w else {}
    for package, watts in sorted(dram_w.items()):
        beside_w = package_w.get(package, np.inf)
        least_w = min(dram_w.values())
        shows = f"shows {watts:.1f} W beside {beside_w:.1f} W of its package {package}"
        if watts > _MOST_OF_PACKAGE * beside_w:
            return {"dram": f"it {shows}: {_ADVICE}"}
        if watts > max(beside_w, _MOST_OF_OTHERS * least_w):
            return {"dram": f"it {shows}, and {least_w:.1f} W of another package: {_ADVICE}"}
    return {}


def _by_package(
    batches: Sequence[WindowBatch], series: Sequence[Series], domain: str
) -> dict[int, float]:
    """Mean power in W of a domain, by package; without packages of which it is not known."""
    watts: dict[int, float] = {}
    for s, one in enumerate(series):
        if one.domain == domain:
            watts[one.package] = watts.get(one.package, 0.0) + _mean_w(batches, s)
    return {package: value for package, value in watts.items() if not np.isnan(value)}


def _mean_w(batches: Sequence[WindowBatch], s: int) -> float:
    """Mean power in W of a counter over its known windows; NaN if these are too short."""
    nj = ns = 0
    for batch in batches:
        energy = coarse(batch, (s,)).energy
        known = energy.known[s]
        nj += int(energy.energy_nj[s][known].sum())
        ns += int(np.diff(energy.boundaries_ns)[known].sum())
    return nj / ns if ns >= _LEAST_NS else np.nan
