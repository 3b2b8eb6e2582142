# SPDX-License-Identifier: Apache-2.0
"""The arrays that the model works on: machines, segments, sums per window, and group numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from qjoule.model._sweep import add
from qjoule.model.energy import I64, Bool, WindowEnergy

F64 = npt.NDArray[np.float64]
COUNTERS = 3
SMALL = 3  #: sums of small cores: ns, cycles, instructions
#: Lengths of tails in `EFFECTS`: `tail_ns` in attribution/sweep/tails.c. Long ones: packages only.
TAILS_NS = (100_000, 200_000, 400_000, 800_000, 1_600_000)
LONG_TAILS_NS = (3_200_000, 4_800_000, 6_400_000, 9_600_000, 12_800_000)
#: Mean misses per ns of busy cores up to which traffic counts: `limit_per_ns` in events.h there.
TRAFFIC_PER_NS = (0.005, 0.02, 0.08)
#: Causes of power besides running: `enum sweep_effect` in attribution/sweep/sweep.h.
EFFECTS = (
    *(f"traffic_to_{round(limit * 1000)}_per_us" for limit in TRAFFIC_PER_NS),
    *(f"package_tail_{ns // 1000}us" for ns in TAILS_NS),
    *(f"core_tail_{ns // 1000}us" for ns in TAILS_NS),
    "package_wakes",
    "core_wakes",
    "kept_awake",
    *(f"package_tail_{ns // 1000}us" for ns in LONG_TAILS_NS),
)
_Number = TypeVar("_Number", np.int64, np.float64)


def real_sums(index: I64, values: npt.NDArray[np.generic], size: int) -> F64:
    """Sums of `values` (n,) by `index` (n,), as an array of length `size`.

    As `np.bincount` to the bit: each sum is added in the order of the values.
    """
    sums = np.zeros(size)
    index = np.ascontiguousarray(index, np.int64)
    add(sums, index, np.ascontiguousarray(values, np.float64))
    return sums


def distinct(numbers: I64) -> I64:
    """The different ones of `numbers` (n,), sorted. They are not negative."""
    if numbers.max(initial=0) > 8 * len(numbers):  # to count them would take longer than to sort
        return np.unique(numbers)
    return np.flatnonzero(np.bincount(numbers))


@dataclass(frozen=True)
class Machine:
    """CPU ids with the package and the core of each.

    `cpu_core` is equal for SMT siblings and unique over the machine. None: every CPU is a core.
    `cpu_small`: CPUs of a smaller kind of core than the others'. None: all are of one kind.
    """

    cpu_ids: I64
    cpu_package: I64
    cpu_core: I64 | None = None
    cpu_small: Bool | None = None

    @property
    def packages(self) -> tuple[int, ...]:
        return tuple(int(p) for p in np.unique(self.cpu_package))

    def slots(self, cpu: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Position of each CPU id in `cpu_ids`; -1 where there is no such CPU."""
        table = self._slot_of
        if cpu.dtype.kind != "u":
            cpu = np.where(cpu < 0, len(table), cpu)
        return table.take(cpu, mode="clip")

    @cached_property
    def _slot_of(self) -> npt.NDArray[np.int32]:
        """Slot by CPU id; the last element (-1) stands for all larger ids."""
        table = np.full(int(self.cpu_ids.max(initial=0)) + 2, -1, np.int32)
        table[self.cpu_ids] = np.arange(len(self.cpu_ids), dtype=np.int32)
        return table

    def package_slots(self) -> I64:
        """Position in `packages` of each CPU's package."""
        return np.searchsorted(np.array(self.packages), self.cpu_package).astype(np.int64)

    def core_slots(self) -> I64:
        """Number of each CPU's core, from 0 up. CPUs of two packages never share one."""
        if self.cpu_core is None:
            return np.arange(len(self.cpu_ids))
        pairs = np.stack([self.package_slots(), self.cpu_core])
        return np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class Segments:
    """n segments in order of `t0_ns`. `group` is the owner that a segment is charged to.

    `counters` is (n, 3): cycles, instructions, LLC misses; `valid` marks those that were read.
    `scaled` (n,) is the share of the time in which the counters counted, 1 without multiplexing.
    `stolen` (n,) is the share of the time in which the host ran something else; None: nothing.
    """

    t0_ns: I64
    t1_ns: I64
    cpu: npt.NDArray[np.integer]
    group: I64
    counters: npt.NDArray[np.uint64] | None = None
    valid: Bool | None = None
    scaled: npt.NDArray[np.float32] | None = None
    stolen: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Entries:
    """Sums per window, package and group, sorted by these; each row has time or a tail.

    `package` is a slot. `overlap_ns` is the part of `cpu_ns` in which an SMT sibling was busy.
    `shared_ns` is the integral of dt / (busy cores of the package * busy threads of the core);
    summed over the entries of a window and package it equals `WindowBatch.active_ns`. `counters`
    (m, 3) were counted over `counted_ns` (m, 3) of the `cpu_ns`. `overlap_counters` (m, 3) sum
    each segment's counts times its share of overlap. `scaled_ns` is the part of `cpu_ns` in
    which multiplexed counters did not count, `stolen_ns` the part that the host stole. `small`
    (m, 3): the part of `cpu_ns`, cycles and instructions that ran on small cores.

    `effects` (m, 21) are the `EFFECTS`. Traffic is the integral of dt * (mean misses per ns of the
    package's busy cores) / (busy cores * busy threads of the core), the mean up to a limit. Tails
    are idle times of a package or core, up to a length, after the entry's owner was the last to go
    to sleep there; two sleeps whose tails overlap have half each. Wake-ups count how often the
    owner ended an idle time. `kept_awake` is the time for which the owner, on other packages, kept
    this one awake while it slept (`kept_awake`).
    """

    window: I64
    package: I64
    group: I64
    cpu_ns: I64
    overlap_ns: I64
    shared_ns: F64
    counters: F64
    counted_ns: F64
    overlap_counters: F64
    scaled_ns: F64
    stolen_ns: F64
    small: F64
    effects: F64

    def take(self, rows: npt.NDArray[np.integer] | Bool | slice) -> Entries:
        """Some rows, in their order."""
        return Entries(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Requests:
    """The number of requests per window and group, sorted by these: (n,) each.

    Only for servers whose requests own no CPU time (the statistical mode).
    """

    window: I64
    group: I64
    executions: I64

    def take(self, rows: Bool | slice) -> Requests:
        return Requests(self.window[rows], self.group[rows], self.executions[rows])

    @staticmethod
    def summed(window: I64, group: I64, executions: I64) -> Requests:
        """Sums requests of any order to one row per window and group."""
        groups = int(group.max(initial=0)) + 1
        pair, place = np.unique(window * groups + group, return_inverse=True)
        sums = np.zeros(len(pair), np.int64)
        np.add.at(sums, place.reshape(-1), executions)
        return Requests(pair // groups, pair % groups, sums)


@dataclass(frozen=True)
class WindowBatch:
    """Consecutive complete windows, starting with number `first`.

    `entries.window` and `requests.window` count from the batch's first window. All other arrays
    are per window and package. `idle_ns` and `lost_ns` are summed over the package's CPUs.
    `active_ns` is the time with any CPU busy; `core_ns` is the same per core, summed over the
    cores. Neither of the two includes lost time.
    """

    first: int
    energy: WindowEnergy
    packages: tuple[int, ...]
    idle_ns: I64
    lost_ns: I64
    entries: Entries
    active_ns: I64
    core_ns: I64
    requests: Requests | None = None  #: None: none were looked for

    @cached_property
    def by_slots(self) -> dict[tuple[int, ...], Any]:
        """Results that `zones` caches by package slots, for learning and for splitting."""
        return {}


@dataclass
class Anomalies:
    """What a trace should not contain, counted."""

    overlapping: int = 0  #: segments that began before another on their CPU had ended
    overlap_ns: int = 0  #: time cut off from them
    late: int = 0  #: segments of a window that was already closed, so out of order
    inverted: int = 0  #: segments that end before they begin
    unknown_cpu: int = 0
    outside_ns: int = 0  #: CPU time before or after the trace
    implausible_counters: int = 0
    lost_unplaced_ns: int = 0  #: lost CPU time for which no window had room

    def add(self, other: Anomalies) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def counts(self) -> dict[str, int]:
        """The counts that are not 0, by name."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class LostTime:
    """Running sum of the CPU time lost on one CPU at the times of its loss records."""

    cpu: int
    t_ns: I64
    lost_ns: I64


@dataclass(frozen=True)
class Renumbering:
    """New numbers of groups, when a live view drops some: `group` (old groups,).

    Several groups may be merged into one; the others keep their order.
    """

    group: I64
    groups: int  #: the number of groups after it

    @cached_property
    def shared(self) -> Bool:
        """(groups,) whether several old groups have become this one."""
        return np.bincount(self.group, minlength=self.groups) > 1

    @cached_property
    def first(self) -> I64:
        """(groups,) the first old number of each."""
        first = np.zeros(self.groups, np.int64)
        first[self.group[::-1]] = np.arange(len(self.group) - 1, -1, -1)
        return first

    def alone(self, group: I64) -> Bool:
        """Whether each of some groups, by its old number, is still a group of its own."""
        return np.asarray(~self.shared[self.group[group]])

    def sums(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """Adds up sums of the first m old groups (m, ...) for the new groups (groups, ...)."""
        sums = np.zeros((self.groups, *values.shape[1:]), values.dtype)
        np.add.at(sums, self.group[: len(values)], values)
        return sums

    def after(self, moves: Iterable[tuple[int, int]]) -> Renumbering:
        """The same renumbering, applied after these groups were moved to others, in this order."""
        group = np.arange(len(self.group))
        for source, target in moves:
            group[group == source] = target
        return Renumbering(self.group[group], self.groups)

    def batch(self, batch: WindowBatch) -> WindowBatch:
        """Windows with the new numbers; within one window, merged groups are added up."""
        requests = batch.requests
        if requests is not None:
            requests = self._requests(requests)
        return replace(batch, entries=self._entries(batch.entries), requests=requests)

    def _requests(self, requests: Requests) -> Requests:
        key = requests.window * self.groups + self.group[requests.group]
        present, place = np.unique(key, return_inverse=True)
        executions = np.zeros(len(present), np.int64)
        np.add.at(executions, place.reshape(-1), requests.executions)
        return Requests(present // self.groups, present % self.groups, executions)

    def _entries(self, entries: Entries) -> Entries:
        pair = entries.window * (int(entries.package.max(initial=0)) + 1) + entries.package
        key = pair * self.groups + self.group[entries.group]
        present, first, place = np.unique(key, return_index=True, return_inverse=True)
        place = place.reshape(-1)

        def summed_up(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
            out = np.zeros((len(present), *values.shape[1:]), values.dtype)
            np.add.at(out, place, values)
            return out

        return Entries(
            entries.window[first],
            entries.package[first],
            present % self.groups,
            *(summed_up(getattr(entries, field.name)) for field in fields(Entries)[3:]),
        )
