# SPDX-License-Identifier: Apache-2.0
"""Stacks that the tracer sampled, for the rows of the live view: held until their windows are
complete, counted by group, and added up over the last minute.

All of it is bounded, whatever servers execute: frames as the tracer remembers them, samples in a
block, different stacks of a row and of all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Generic, TypeVar

import numpy as np

from qjoule.contract import AGGREGATE, CALLS, STACK, OwnerKind, StackFlag
from qjoule.engine.live_groups import Identity, Records, identities
from qjoule.engine.stacks import OTHER, Frames, Name, RecentStacks, RowStacks, Stack
from qjoule.live.tagged_sums import SumTags
from qjoule.model.arrays import Renumbering
from qjoule.model.energy import I64
from qjoule.model.labels import GroupLabel
from qjoule.model.labels import Identity as RowIdentity
from qjoule.model.result import Attribution, Row

#: Of a block, which has 0.1 s: with more, each second one is taken, or each third, ...
MOST_IN_BLOCK = 2_000
#: Samples may wait for the end of their window; those beyond are lost.
MOST_WAITING = 50_000
#: Different stacks of a row, and of all rows together.
MOST_OF_ROW, MOST = 1_000, 20_000
MOST_ROWS = 4_096  #: that have energy or samples in half a minute
HALF_S = 30.0
_Row = TypeVar("_Row")
#: The samples of an interval, by `Row.identity`.
Stacks = Mapping[RowIdentity, Counter[Stack]]


@dataclass(frozen=True)
class StackOptions:
    """`name` names a frame by its module and its offset; `missing` as in `RecentStacks`, now."""

    name: Name
    missing: Callable[[], tuple[str, ...]] = tuple


class StackCounts(Generic[_Row]):
    """Samples by row and stack. What is beyond the bounds counts as `OTHER`."""

    def __init__(self) -> None:
        self.rows: dict[_Row, Counter[Stack]] = {}
        self._different = 0

    def add(self, row: _Row, stack: Stack, count: int = 1) -> None:
        counts = self.rows.setdefault(row, Counter())
        if stack not in counts:
            if len(counts) < MOST_OF_ROW and self._different < MOST:
                self._different += 1
            else:
                stack = (OTHER,)
        counts[stack] += count

    def add_all(self, row: _Row, counts: Counter[Stack]) -> None:
        for stack, count in counts.items():
            self.add(row, stack, count)


class GroupStacks:
    """The samples of an interval by group."""

    def __init__(self) -> None:
        self._counts: StackCounts[int] = StackCounts()

    def add(self, groups: Sequence[int], stacks: Sequence[Stack]) -> None:
        for group, stack in zip(groups, stacks, strict=True):
            if group >= 0:
                self._counts.add(group, stack)

    def move(self, source: int, target: int) -> None:
        """Moves the samples of group `source` to group `target`."""
        moved = self._counts.rows.pop(source, None)
        if moved is not None:
            self._counts.add_all(target, moved)

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups; merged groups are added up."""
        before, self._counts = self._counts, StackCounts()
        for group, counts in before.rows.items():
            self._counts.add_all(int(renumbering.group[group]), counts)

    def take(self, labels: Sequence[GroupLabel]) -> Stacks:
        """The samples since the last call."""
        before, self._counts = self._counts, StackCounts()
        found: dict[RowIdentity, Counter[Stack]] = {}
        for group, counts in before.rows.items():
            kind, keys, apart = labels[group].identity
            found[kind, tuple(sorted(keys)), apart] = counts
        return found


@dataclass
class Samples:
    """Of complete windows: as sums without time, which have the same owners, and their stacks."""

    sums: Records
    stacks: Sequence[Stack]
    _places: I64 = field(default_factory=lambda: np.zeros(0, np.int64))  #: of their tags

    def tagged(self, tagging: Callable[[Records], SumTags], sums: Records) -> SumTags:
        """The tags of the kernel side's sums; those of the samples are kept here."""
        found, self._places = tagging(np.concatenate([sums, self.sums])).divided(len(sums))
        return found

    def groups(self, by_owner: Mapping[Identity, int], *, by_tags: bool) -> list[int]:
        """The group of each sample; -1: its owner has none, as it has no time in these windows."""
        owners, which = identities(self.sums, self._places if by_tags else None)
        groups = np.array([by_owner.get(owner, -1) for owner in owners], np.int64)
        found: list[int] = groups[which].tolist()
        return found


class SampledStacks:
    """Takes CALL and STACK blocks; `take` returns what was sampled in complete windows."""

    def __init__(self, name: Name) -> None:
        self._frames = Frames(name)
        self._remembered = np.zeros(CALLS, np.uint64)
        self._new = np.zeros(0, np.uint64)
        self._waiting = np.zeros(0, STACK)
        self._stacks: list[Stack] = []
        self._unused = 0

    def add_calls(self, records: Records) -> None:
        """Frames of the STACK block that follows, as far as it has new ones."""
        for frame, caller, offset, module in records[
            ["frame", "caller", "offset", "module"]
        ].tolist():
            self._frames.add(frame, caller, module, offset)
        self._new = np.append(self._new, records["frame"])

    def add(self, records: Records) -> None:
        taken = records[:: max(1, -(-len(records) // MOST_IN_BLOCK))]
        taken = taken[: max(0, MOST_WAITING - len(self._waiting))]
        self._unused += len(records) - len(taken)
        self._waiting = np.concatenate([self._waiting, taken])
        for frame, flags in taken[["frame", "flags"]].tolist():
            whole, in_kernel = bool(flags & StackFlag.WHOLE), bool(flags & StackFlag.KERNEL)
            self._stacks.append(self._frames.stack(frame, whole=whole, in_kernel=in_kernel))
        self._forget()

    def _forget(self) -> None:
        """Forgets the frames that the tracer has forgotten: it sends them again."""
        places = self._new % CALLS
        gone = set(self._remembered[places].tolist()) | set(self._new.tolist())
        self._remembered[places] = self._new  # of several at one place the last one
        self._frames.forget(gone - set(self._remembered[places].tolist()) - {0})
        self._new = self._new[:0]

    @property
    def crowded(self) -> bool:
        """Whether so many wait that complete windows should be taken."""
        return len(self._stacks) > MOST_WAITING // 2

    def take_unused(self) -> int:
        """How many samples were too many since the last call."""
        unused, self._unused = self._unused, 0
        return unused

    def take(self, end_ns: int) -> Samples:
        """What was sampled before `end_ns`, once."""
        before = self._waiting["segment"]["t0_ns"] < end_ns
        ended = self._waiting[before]
        stacks = list(compress(self._stacks, before.tolist()))
        self._stacks = list(compress(self._stacks, (~before).tolist()))
        self._waiting = self._waiting[~before]
        return Samples(_as_sums(ended), stacks)


def _as_sums(samples: Records) -> Records:
    """As the kernel side would sum them up (fill_key() in bpf/core/sums.bpf.h)."""
    sums, segments = np.zeros(len(samples), AGGREGATE), samples["segment"]
    for name in ("shape", "tags", "naming"):
        sums[name] = samples[name]
    for name in ("owner_kind", "server"):
        sums[name] = segments[name]
    is_server = segments["owner_kind"] == OwnerKind.SERVER
    for name in ("tgid", "pid"):
        sums[name] = np.where(is_server, segments[name], 0)
    return sums


@dataclass
class _Energy:
    """Of a row in half a minute."""

    row: Row  #: as it was last
    energy_nj: int = 0
    low_nj: float = 0.0
    high_nj: float = 0.0

    def add(self, row: Row) -> None:
        self.row = row
        self.energy_nj += row.energy_nj
        low, high = row.energy_nj_ci95
        self.low_nj, self.high_nj = self.low_nj + low, self.high_nj + high


@dataclass
class _Half:
    """Half a minute, or one longer interval."""

    seconds: float = 0.0
    lost: int = 0
    energies: dict[RowIdentity, _Energy] = field(default_factory=dict)
    stacks: StackCounts[RowIdentity] = field(default_factory=StackCounts)

    def add(self, interval: Attribution, stacks: Stacks) -> None:
        self.seconds += interval.trace.duration_s
        for row in interval.tabled:
            key = row.identity
            if key in self.energies or len(self.energies) < MOST_ROWS:
                self.energies.setdefault(key, _Energy(row)).add(row)
                self.stacks.add_all(key, stacks.get(key, Counter()))


class LastMinute:
    """Rows' energies and samples of the last 30 to 60 seconds; of the last interval, if that has 30
    seconds or more. It is kept in halves, so its memory does not grow with the number of intervals.
    """

    def __init__(self, missing: Callable[[], tuple[str, ...]] = tuple) -> None:
        self._missing = missing
        self._by = ""
        self._halves = [_Half()]

    def reset(self) -> None:
        self._halves = [_Half()]

    def add(self, by: str, interval: Attribution, stacks: Stacks, unused: int = 0) -> RecentStacks:
        """Adds an interval whose rows are grouped by `by`; returns what is known then. `unused`:
        samples that were too many."""
        if by != self._by:
            self._by = by
            self.reset()
        if interval.trace.duration_s >= HALF_S:
            self.reset()
        elif self._halves[-1].seconds >= HALF_S:
            self._halves = [self._halves[-1], _Half()]
        self._halves[-1].add(interval, stacks)
        self._halves[-1].lost += interval.trace.loss.get("stack", 0) + unused
        return self._known()

    def _known(self) -> RecentStacks:
        energies: dict[RowIdentity, _Energy] = {}
        stacks: StackCounts[RowIdentity] = StackCounts()
        for half in self._halves:
            for key, counts in half.stacks.rows.items():
                stacks.add_all(key, counts)
            for key, one in half.energies.items():
                sums = energies.setdefault(key, _Energy(one.row))
                sums.row = one.row
                sums.energy_nj += one.energy_nj
                sums.low_nj, sums.high_nj = sums.low_nj + one.low_nj, sums.high_nj + one.high_nj
        rows = {
            key: RowStacks(_with_energy(energies[key]), counts)
            for key, counts in stacks.rows.items()
        }
        seconds = sum(half.seconds for half in self._halves)
        lost = sum(half.lost for half in self._halves)
        return RecentStacks(rows, seconds, lost, self._missing())


def _with_energy(sums: _Energy) -> Row:
    return replace(sums.row, energy_nj=sums.energy_nj, energy_nj_ci95=(sums.low_nj, sums.high_nj))
