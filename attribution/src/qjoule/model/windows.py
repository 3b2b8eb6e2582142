# SPDX-License-Identifier: Apache-2.0
"""Converts segments to sums per window, package and group. Times are exact.

A segment that spans windows is cut at their boundaries in whole nanoseconds, and its counts are
divided in proportion, in whole counts. Idle is the remainder after busy and lost time, so for every
CPU and window, busy + lost + idle = the window's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from qjoule.model._sweep import Sweep
from qjoule.model.arrays import (
    COUNTERS,
    EFFECTS,
    SMALL,
    Anomalies,
    Entries,
    LostTime,
    Machine,
    Segments,
    WindowBatch,
)
from qjoule.model.energy import I64, WindowEnergy
from qjoule.model.kept_awake import with_kept

_Column: TypeAlias = npt.NDArray[np.uint64] | npt.NDArray[np.bool_]
#: Counts per nanosecond of CPU time that no core reaches; more means a faulty counter.
MAX_COUNTS_PER_NS = 100

_ENTRY = np.dtype(
    [
        *((name, np.int64) for name in ("window", "package", "group", "cpu_ns", "overlap_ns")),
        ("shared_ns", np.float64),
        *((name, np.float64, COUNTERS) for name in ("counters", "counted_ns", "overlap_counters")),
        ("scaled_ns", np.float64),
        ("stolen_ns", np.float64),
        ("small", np.float64, SMALL),
        ("effects", np.float64, len(EFFECTS)),
    ]
)  #: `struct sweep_entry`
_WINDOW = np.dtype([(name, np.int64) for name in ("busy_ns", "core_ns", "active_ns", "kept_ns")])
_ANOMALIES = (
    *("overlapping", "overlap_ns", "late", "inverted", "unknown_cpu", "outside_ns"),
    "implausible_counters",
)  #: `struct sweep_anomalies`


@dataclass
class SegmentWindows:
    """Turns a stream of segments into complete windows, holding only the window still open.

    The results depend on the stream alone, not on how it is cut into batches, to the bit.
    `without_stolen`: leave stolen time out of the entries. `of_cores`: the machine's packages are
    its cores, so none keeps another one awake.

    >>> stream = SegmentWindows(machine, energy)          # doctest: +SKIP
    >>> for batch in (*map(stream.add, chunks), stream.finish()): account.add(batch)
    """

    machine: Machine
    energy: WindowEnergy
    lost: Sequence[LostTime] = ()
    without_stolen: bool = False
    of_cores: bool = False
    anomalies: Anomalies = field(default_factory=Anomalies)

    def __post_init__(self) -> None:
        self._closed = 0
        self._seen = [0] * len(_ANOMALIES)  #: anomalies that have been counted
        self._packages = self.machine.packages
        self._cpu_package = self.machine.package_slots()
        cpus = np.array([lost.cpu for lost in self.lost], np.int64)
        slots = self.machine.slots(cpus)
        self._lossy = np.unique(slots[slots >= 0])  #: CPUs that lost time
        self._lost_carry_ns = np.zeros(len(self._lossy), np.int64)
        watched = np.full(len(self.machine.cpu_ids), -1, np.int32)
        watched[self._lossy] = np.arange(len(self._lossy))
        core = self.machine.core_slots()
        core_package = np.zeros(int(core.max(initial=-1)) + 1, np.int32)
        core_package[core] = self._cpu_package
        small = self.machine.cpu_small
        self._sweep = Sweep(
            np.ascontiguousarray(self.energy.boundaries_ns, np.int64),
            core.astype(np.int32),
            core_package,
            watched,
            np.zeros(len(core), np.int32) if small is None else small.astype(np.int32),
            len(self._packages),
            len(self._lossy),
            MAX_COUNTS_PER_NS,
        )

    def add(self, segments: Segments) -> WindowBatch:
        """Takes segments; returns the windows that no later segment can change (maybe none)."""
        s = segments
        self._sweep.add(
            np.ascontiguousarray(s.t0_ns, np.int64),
            np.ascontiguousarray(s.t1_ns, np.int64),
            self.machine.slots(s.cpu),
            np.ascontiguousarray(s.group, np.int64),
            None if s.scaled is None else np.ascontiguousarray(s.scaled, np.float32),
            None if s.stolen is None else np.ascontiguousarray(s.stolen, np.float32),
            *_counter_columns(s),
        )
        return self._batch()

    def finish(self) -> WindowBatch:
        """Returns the remaining windows. Lost time that fits nowhere is counted in `anomalies`."""
        self._sweep.finish()
        batch = self._batch()
        self.anomalies.lost_unplaced_ns += int(self._lost_carry_ns.sum())
        self._lost_carry_ns[:] = 0
        return batch

    def _batch(self) -> WindowBatch:
        """The windows that the sweep completed."""
        count, window, watched, entry, anomalies = self._sweep.take()
        self._count(anomalies)
        first, self._closed = self._closed, self._closed + count
        energy = self.energy.slice(first, self._closed)
        sums = np.frombuffer(window, _WINDOW).reshape(count, len(self._packages))
        dt_ns = np.diff(energy.boundaries_ns)[:, None]
        watched_ns = np.frombuffer(watched, np.int64).reshape(count, len(self._lossy))
        lost_ns = self._place_lost(energy.boundaries_ns, dt_ns - watched_ns)
        sizes = np.bincount(self._cpu_package, minlength=len(self._packages))
        rows = np.frombuffer(entry, _ENTRY)
        entries = Entries(*(rows[column.name].copy() for column in fields(Entries)))
        entries.window[:] -= first
        if not self.of_cores:
            entries = with_kept(entries, sums["kept_ns"])
        if self.without_stolen:
            entries = without_stolen(entries)
        return WindowBatch(
            first,
            energy,
            self._packages,
            dt_ns * sizes - sums["busy_ns"] - lost_ns,
            lost_ns,
            entries,
            sums["active_ns"].copy(),
            sums["core_ns"].copy(),
        )

    def _count(self, anomalies: Sequence[int]) -> None:
        """Adds the anomalies that the sweep has found since the last call."""
        for i, name in enumerate(_ANOMALIES):
            increase = anomalies[i] - self._seen[i]
            setattr(self.anomalies, name, getattr(self.anomalies, name) + increase)
            self._seen[i] = anomalies[i]

    def _place_lost(self, boundaries_ns: I64, free_ns: I64) -> I64:
        """Lost time per window and package, from each lossy CPU's free time (windows, CPUs).

        No CPU loses more than its free time of a window. Between two loss records the loss is
        assumed to be uniform; what does not fit is moved to a later window.
        """
        placed = np.zeros((len(free_ns), len(self._packages)), np.int64)
        if not len(free_ns):
            return placed
        left_ns = free_ns.copy()
        for lost in self.lost:
            slot = int(self.machine.slots(np.array([lost.cpu]))[0])
            if slot < 0:
                continue
            cpu = int(np.searchsorted(self._lossy, slot))
            # Times since the first boundary: floats do not hold whole ns of a long uptime.
            origin = self.energy.boundaries_ns[0]
            since_ns, at_ns = boundaries_ns - origin, lost.t_ns - origin
            running = np.floor(np.interp(since_ns, at_ns, lost.lost_ns, left=0.0))
            claims = np.diff(running).astype(np.int64)
            carry_ns = int(self._lost_carry_ns[cpu])
            if self.energy.boundaries_ns[-1] == boundaries_ns[-1]:
                claims[-1] += int(lost.lost_ns[-1]) - int(running[-1])
            for k in range(len(claims)) if carry_ns or claims.any() else ():
                carry_ns += int(claims[k])
                fitting_ns = min(carry_ns, int(left_ns[k, cpu]))
                left_ns[k, cpu] -= fitting_ns
                placed[k, self._cpu_package[slot]] += fitting_ns
                carry_ns -= fitting_ns
            self._lost_carry_ns[cpu] = carry_ns
        return placed


def without_stolen(entries: Entries) -> Entries:
    """The entries without their stolen time; `stolen_ns` is then exactly what `cpu_ns` lacks.

    All their times shrink in proportion, so that an entry has as many neighbours as before. Counts
    stay: counters of a virtual CPU stand still while it does not run. At least 1 ns of an entry
    remains, so that no energy loses its owner.
    """
    if not entries.stolen_ns.any():
        return entries
    total_ns = entries.cpu_ns
    remaining_ns = np.maximum(total_ns - np.rint(entries.stolen_ns).astype(np.int64), total_ns > 0)
    share = remaining_ns / np.maximum(total_ns, 1)
    return replace(
        entries,
        cpu_ns=remaining_ns,
        overlap_ns=np.minimum((entries.overlap_ns * share).astype(np.int64), remaining_ns),
        shared_ns=entries.shared_ns * share,
        counted_ns=entries.counted_ns * share[:, None],
        scaled_ns=entries.scaled_ns * share,
        stolen_ns=(total_ns - remaining_ns).astype(np.float64),
        small=entries.small * np.column_stack([share, np.ones((len(share), SMALL - 1))]),
    )


def _counter_columns(segments: Segments) -> list[_Column | None]:
    """Counts of each counter, and then which of them were read; all None without counters."""
    if segments.counters is None or segments.valid is None:
        return [None] * (2 * COUNTERS)
    return [
        *(np.ascontiguousarray(column, np.uint64) for column in segments.counters.T),
        *(np.ascontiguousarray(column, np.bool_) for column in segments.valid.T),
    ]
