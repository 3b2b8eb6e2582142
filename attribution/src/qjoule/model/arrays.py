"""The arrays that the model works on: machines, segments, and what they become per window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model.counters import I64, Bool, WindowEnergy

F64 = npt.NDArray[np.float64]
COUNTERS = 3


@dataclass(frozen=True)
class Machine:
    """CPU ids with the package of each."""

    cpu_ids: I64
    cpu_package: I64

    @property
    def packages(self) -> tuple[int, ...]:
        return tuple(int(p) for p in np.unique(self.cpu_package))

    def slots(self, cpu: npt.NDArray[np.integer]) -> I64:
        """Position of each CPU id in `cpu_ids`; -1 where there is no such CPU."""
        table = np.full(int(self.cpu_ids.max(initial=0)) + 2, -1, np.int64)
        table[self.cpu_ids] = np.arange(len(self.cpu_ids))
        inside = np.minimum(cpu, len(table) - 1).astype(np.int64)
        found: I64 = table[inside]
        return found

    def package_slots(self) -> I64:
        """Position in `packages` of each CPU's package."""
        return np.searchsorted(np.array(self.packages), self.cpu_package).astype(np.int64)


@dataclass(frozen=True)
class Segments:
    """n segments in order of `t0_ns`. `group` is who they are charged to.

    `counters` is (n, 3): cycles, instructions, LLC misses; `valid` says which were read.
    """

    t0_ns: I64
    t1_ns: I64
    cpu: npt.NDArray[np.integer]
    group: I64
    counters: npt.NDArray[np.uint64] | None = None
    valid: Bool | None = None


@dataclass(frozen=True)
class Entries:
    """Sums per window, package and group, sorted by them; one row each, never of zero time.

    `counters` (m, 3) were counted over `counted_ns` (m, 3) of the `cpu_ns`. `package` is a slot.
    """

    window: I64
    package: I64
    group: I64
    cpu_ns: I64
    counters: F64
    counted_ns: F64


@dataclass(frozen=True)
class WindowBatch:
    """Consecutive windows that are complete, from `first` on.

    `entries.window` counts from the batch's first window. `idle_ns` and `lost_ns` are per window
    and package, summed over its CPUs.
    """

    first: int
    energy: WindowEnergy
    packages: tuple[int, ...]
    idle_ns: I64
    lost_ns: I64
    entries: Entries


@dataclass
class Anomalies:
    """What a trace should not contain, counted."""

    overlapping: int = 0  #: segments that began before another on their CPU had ended
    overlap_ns: int = 0  #: time cut off from them
    late: int = 0  #: segments of a window that was already closed: order broken
    inverted: int = 0  #: segments that end before they begin
    unknown_cpu: int = 0
    outside_ns: int = 0  #: CPU time before or after the trace
    implausible_counters: int = 0
    lost_unplaced_ns: int = 0  #: lost CPU time that no window has room for

    def add(self, other: Anomalies) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def counts(self) -> dict[str, int]:
        """Those that happened, by name."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class LostTime:
    """Running sum of the CPU time lost on one CPU at the times of its loss records."""

    cpu: int
    t_ns: I64
    lost_ns: I64
