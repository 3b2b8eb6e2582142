# SPDX-License-Identifier: Apache-2.0
"""Computes how much CPU time the host of a virtual machine stole, from the table `cpu_time`.

A segment lasts while its thread has the virtual CPU, also while the host runs something else on the
real one. The kernel counts stolen time per CPU (`steal` of proc_stat(5)), not per thread, in ticks
of mostly 10 ms. So in each interval of about a second, all segments of a CPU have the same share:
stolen time over busy time. A virtual CPU that waits to leave its sleep also counts as stolen,
though none of its segments lasts then: stolen time beyond the busy time is left out.

A live stream sums per package, not per CPU. There all CPUs of a package have one share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from qjoule.contract import STEAL_UNKNOWN
from qjoule.lazy_import import pa
from qjoule.model.arrays import F64, Machine
from qjoule.model.energy import I64
from qjoule.trace.columns import Array, is_valid, view

COLUMNS = ("t_ns", "cpu", "busy_ns", "idle_ns", "steal_ns")
_Points: TypeAlias = npt.NDArray[np.int64]  #: (n, 5): COLUMNS
_T, _CPU, _BUSY, _IDLE, _STEAL = range(len(COLUMNS))
_INTERVAL_NS = 1_000_000_000
_LATE_NS = 1_000_000_000  #: clocks of CPUs may begin so long before the trace


@dataclass(frozen=True)
class Stolen:
    """Stolen time of the CPUs that lost some: by CPU, times (n,) since `origin_ns`, and the running
    sum (n,) that was stolen from a segment that never ended; both in ns."""

    origin_ns: int
    sums: dict[int, tuple[I64, F64]]

    def shares(
        self, cpu: npt.NDArray[np.integer], t0_ns: I64, t1_ns: I64
    ) -> npt.NDArray[np.float32] | None:
        """Returns each of n segments' share, 0 to 1; None if none of their CPUs lost any time."""
        out = np.zeros(len(cpu), np.float32)
        for number, (times_ns, sum_ns) in self.sums.items():
            rows = np.flatnonzero(cpu == number)
            begin_ns, end_ns = t0_ns[rows] - self.origin_ns, t1_ns[rows] - self.origin_ns
            stolen_ns = np.interp(end_ns, times_ns, sum_ns) - np.interp(begin_ns, times_ns, sum_ns)
            out[rows] = np.clip(stolen_ns / np.maximum(end_ns - begin_ns, 1), 0.0, 1.0)
        return out if out.any() else None


def stolen_time(tables: Iterable[pa.Table], begin_ns: int) -> Stolen | None:
    """Reads the rows of `cpu_time` (COLUMNS); None if stolen time is not recorded."""
    changes = [_changes(_rows(table)) for table in tables]
    points = np.concatenate([np.zeros((0, len(COLUMNS)), np.int64), *changes])
    if not len(points):
        return None
    sums = {}
    points = points[np.lexsort((points[:, _T], points[:, _CPU]))]
    for of_cpu in np.split(points, np.flatnonzero(np.diff(points[:, _CPU])) + 1):
        times_ns, sum_ns = _running(of_cpu, begin_ns)
        if sum_ns[-1] > 0:
            sums[int(of_cpu[0, _CPU])] = times_ns, sum_ns
    return Stolen(begin_ns, sums)


def _rows(table: pa.Table) -> _Points:
    """Returns the rows with a stolen time."""
    valid = is_valid(table.column("steal_ns"))
    columns = [view(table.column(name), 0)[valid].astype(np.int64) for name in COLUMNS]
    return np.stack(columns, axis=1)


def _changes(points: _Points) -> _Points:
    """Keeps the last reading of each CPU and interval, and drops those between two equal sums: on
    most machines the sum never changes."""
    points = points[np.lexsort((points[:, _T], points[:, _CPU]))]
    place = np.stack([points[:, _CPU], points[:, _T] // _INTERVAL_NS], axis=1)
    last = np.append((np.diff(place, axis=0) != 0).any(axis=1), True)
    points = points[last[: len(points)]]
    moved = (np.diff(points[:, (_CPU, _STEAL)], axis=0) != 0).any(axis=1)
    keep = np.append(True, moved) | np.append(moved, True)
    changes: _Points = points[keep[: len(points)]]
    return changes


def _running(points: _Points, begin_ns: int) -> tuple[I64, F64]:
    """Returns times since `begin_ns` and the running sum of one CPU's readings, in time order."""
    times_ns, busy_ns, steal_ns = points[:, _T] - begin_ns, points[:, _BUSY], points[:, _STEAL]
    # In a part of a longer recording, the sums began long before it.
    if times_ns[0] > 0 and busy_ns[0] + points[0, _IDLE] <= times_ns[0] + _LATE_NS:
        times_ns, busy_ns, steal_ns = (np.append(0, ns) for ns in (times_ns, busy_ns, steal_ns))
    busy, steal = (np.maximum(np.diff(ns), 0).astype(float) for ns in (busy_ns, steal_ns))
    share = np.minimum(steal / np.maximum(busy, 1.0), 1.0) * (busy > 0)
    return times_ns, np.append(0.0, np.cumsum(share * np.diff(times_ns)))


class LiveStolen:
    """Computes the stolen share of each package's busy time from a live stream's readings."""

    def __init__(self, machine: Machine) -> None:
        self.recorded = False  #: true if any CPU's stolen time is known
        self._packages = len(machine.packages)
        self._slots = machine.package_slots()
        self._place = {cpu: place for place, cpu in enumerate(machine.cpu_ids.tolist())}
        self._sums_ns = np.zeros((2, len(self._slots)))  #: busy and stolen time, by CPU
        self._taken_ns = self._sums_ns.copy()

    def add(self, readings: Array) -> None:
        """Adds CPU_TIME records, whose sums begin with the stream."""
        for cpu, busy_ns, steal_ns in readings[["cpu", "busy_ns", "steal_ns"]].tolist():
            if steal_ns != STEAL_UNKNOWN and cpu in self._place:
                self.recorded = True
                self._sums_ns[:, self._place[cpu]] = busy_ns, steal_ns

    def take(self) -> F64:
        """Returns (packages,) shares, 0 to 1, of the time added since the last call."""
        busy_ns, steal_ns = np.maximum(self._sums_ns - self._taken_ns, 0)
        self._taken_ns = self._sums_ns.copy()
        stolen_ns = np.bincount(self._slots, np.minimum(steal_ns, busy_ns), self._packages)
        return stolen_ns / np.maximum(np.bincount(self._slots, busy_ns, self._packages), 1.0)
