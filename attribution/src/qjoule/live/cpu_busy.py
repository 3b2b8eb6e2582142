# SPDX-License-Identifier: Apache-2.0
"""How busy each CPU was in each window of a live stream, from the tracer's CPU_TIME blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qjoule.contract import CPU_TIME
from qjoule.model.arrays import F64, Machine
from qjoule.model.energy import I64

Records = npt.NDArray[np.void]


class CpuBusy:
    """Running sums of busy time per CPU, kept as long as a window may still need them."""

    def __init__(self, machine: Machine) -> None:
        self._cpus = machine.cpu_ids.tolist()
        self._records: Records = np.empty(0, CPU_TIME)

    def add(self, records: Records) -> None:
        """Records of CPU_TIME: `busy_ns` of a CPU since tracing began, at `t_ns`."""
        self._records = np.concatenate([self._records, records])

    def shares(self, bounds_ns: I64) -> F64:
        """(windows, CPUs) share of each window in which each CPU was busy; NaN: not known.

        Between two records a CPU is assumed to be uniformly busy. Records that no later window
        needs are dropped, so windows must be requested in order.
        """
        out = np.full((len(bounds_ns) - 1, len(self._cpus)), np.nan)
        kept = np.zeros(len(self._records), bool)
        for place, cpu in enumerate(self._cpus):
            mine = np.flatnonzero(self._records["cpu"] == cpu)
            t_ns = self._records["t_ns"][mine].astype(np.int64)
            mine, t_ns = mine[np.argsort(t_ns, kind="stable")], np.sort(t_ns)
            if len(t_ns) < 2:
                kept[mine] = True
                continue
            busy_ns = self._records["busy_ns"][mine].astype(np.float64)
            at_ns = bounds_ns - t_ns[0]
            at_bounds = np.interp(at_ns, t_ns - t_ns[0], busy_ns - busy_ns[0])
            known = (at_ns[:-1] >= 0) & (bounds_ns[1:] <= t_ns[-1])
            share = np.diff(at_bounds) / np.maximum(np.diff(bounds_ns), 1)
            out[known, place] = np.clip(share[known], 0.0, 1.0)
            last = max(int(np.searchsorted(t_ns, bounds_ns[-1], "right")) - 1, 0)
            kept[mine[last:]] = True
        self._records = self._records[kept]
        return out
