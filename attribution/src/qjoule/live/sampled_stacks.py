# SPDX-License-Identifier: Apache-2.0
"""Stacks that the tracer sampled, for the rows of the live view and of the agent's profiles: held
until their windows are complete, and counted by group. `recent_stacks` adds them up.

All of it is bounded, whatever servers execute: frames as the tracer remembers them, samples in a
block, different stacks of a row and of all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from typing import Generic, TypeVar

import numpy as np

from qjoule.contract import AGGREGATE, CALLS, STACK, OwnerKind, StackFlag
from qjoule.engine.live_owners import Identity, Records, identities
from qjoule.engine.stacks import OTHER, Frames, Name, NotYetNamed, Stack
from qjoule.live.tagged_sums import SumTags
from qjoule.model.arrays import Renumbering
from qjoule.model.energy import I64
from qjoule.model.labels import GroupLabel
from qjoule.model.labels import Identity as RowIdentity

#: Most samples of a block: of more, each second one is taken, or each third, ...
MOST_IN_BLOCK = 2_000
#: Samples may wait for the end of their window; those beyond are lost.
MOST_WAITING = 50_000
MOST_NEW = CALLS  #: new frames before their stacks; beyond, some callers are unknown
#: Different stacks of a row, and of all rows together.
MOST_OF_ROW, MOST = 1_000, 20_000
MOST_FRAMES = 128  #: of a stack, the innermost
_Row = TypeVar("_Row")
#: The samples of an interval, by `Row.identity`; those of no known row by `NO_ROW`.
Stacks = Mapping[RowIdentity, Counter[Stack]]
NO_ROW: RowIdentity = ("", (), "")
_NO_GROUP = -1


class StackCounts(Generic[_Row]):
    """Samples by row and stack. What is beyond the bounds counts as `OTHER`."""

    def __init__(self) -> None:
        self.rows: dict[_Row, Counter[Stack]] = {}
        self._different = 0

    def add(self, row: _Row, stack: Stack, count: int = 1) -> None:
        counts = self.rows.setdefault(row, Counter())
        if stack not in counts and stack != (OTHER,):
            if len(counts) < MOST_OF_ROW and self._different < MOST:
                self._different += 1
            else:
                stack = (OTHER,)
        counts[stack] += count

    def take(self, row: _Row) -> Counter[Stack]:
        """Takes a row's samples out."""
        counts = self.rows.pop(row, Counter())
        self._different -= len(counts) - ((OTHER,) in counts)
        return counts

    def add_all(self, row: _Row, counts: Counter[Stack]) -> None:
        for stack, count in counts.items():
            self.add(row, stack, count)


class GroupStacks:
    """The samples of an interval by group."""

    def __init__(self) -> None:
        self._counts: StackCounts[int] = StackCounts()

    def add(self, groups: Sequence[int], stacks: Sequence[Stack]) -> None:
        """Adds samples of these groups; -1: unknown, whose samples are only counted."""
        for group, stack in zip(groups, stacks, strict=True):
            self._counts.add(group, () if group == _NO_GROUP else stack)

    def move(self, source: int, target: int) -> None:
        """Moves the samples of group `source` to group `target`."""
        self._counts.add_all(target, self._counts.take(source))

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups; merged groups are added up."""
        before, self._counts = self._counts, StackCounts()
        for group, counts in before.rows.items():
            after = group if group == _NO_GROUP else int(renumbering.group[group])
            self._counts.add_all(after, counts)

    def take(self, labels: Sequence[GroupLabel]) -> Stacks:
        """The samples since the last call."""
        before, self._counts = self._counts, StackCounts()
        stacks: dict[RowIdentity, Counter[Stack]] = {}
        for group, counts in before.rows.items():
            if group == _NO_GROUP:
                stacks[NO_ROW] = counts
            else:
                kind, keys, apart = labels[group].identity
                stacks[kind, tuple(sorted(keys)), apart] = counts
        return stacks


@dataclass
class WindowStacks:
    """Samples of complete windows: their owners as sums without CPU time, and their stacks."""

    sums: Records
    stacks: Sequence[Stack]
    _places: I64 = field(default_factory=lambda: np.zeros(0, np.int64))  #: indices of tags

    def tagged(self, tagging: Callable[[Records], SumTags], sums: Records) -> SumTags:
        """Returns the tags of the kernel side's sums, and keeps those of the samples."""
        tags, self._places = tagging(np.concatenate([sums, self.sums])).divided(len(sums))
        return tags

    def groups(self, by_owner: Mapping[Identity, int], *, by_tags: bool) -> list[int]:
        """The group of each sample; -1: its owner has none, as it has no time in these windows."""
        owners, which = identities(self.sums, self._places if by_tags else None)
        groups = np.array([by_owner.get(owner, _NO_GROUP) for owner in owners], np.int64)
        numbers: list[int] = groups[which].tolist()
        return numbers


class SampledStacks:
    """Takes CALL and STACK blocks; `take` returns what was sampled in complete windows.

    Samples wait until their frames are named. Those that are named late count in the windows that
    are complete by then.
    """

    def __init__(self, name: Name) -> None:
        self._frames = Frames(name, MOST_FRAMES)
        self._remembered = np.zeros(CALLS, np.uint64)
        self._new: list[int] = []
        self._waiting = np.zeros(0, STACK)
        self._stacks: list[Stack] = []  #: of the first waiting samples; others are unnamed
        self._dropped = 0

    def add_calls(self, records: Records) -> None:
        """Takes the frames that are new in the STACK block that follows."""
        for frame, caller, offset, module in records[
            ["frame", "caller", "offset", "module"]
        ].tolist():
            self._frames.add(frame, caller, module, offset)
        self._new += records["frame"].tolist()
        if len(self._new) > MOST_NEW:
            self._forget()

    def add(self, records: Records) -> None:
        sampled = records[:: max(1, -(-len(records) // MOST_IN_BLOCK))]
        sampled = sampled[: max(0, MOST_WAITING - len(self._waiting))]
        self._dropped += len(records) - len(sampled)
        self._waiting = np.concatenate([self._waiting, sampled])
        self._name()
        self._forget()

    def _name(self) -> None:
        """Names the samples that wait, as far as that is possible now."""
        unnamed = self._waiting[len(self._stacks) :]
        with suppress(NotYetNamed):
            for frame, flags in unnamed[["frame", "flags"]].tolist():
                whole, in_kernel = bool(flags & StackFlag.WHOLE), bool(flags & StackFlag.KERNEL)
                self._stacks.append(self._frames.stack(frame, whole=whole, in_kernel=in_kernel))

    def _forget(self) -> None:
        """Forgets the frames that the tracer has forgotten: it sends them again."""
        new = np.array(self._new, np.uint64)
        places = new % CALLS
        overwritten = set(self._remembered[places].tolist()) | set(self._new)
        self._remembered[places] = new  # of several at one place the last one
        self._frames.forget(overwritten - set(self._remembered[places].tolist()) - {0})
        self._new.clear()

    @property
    def crowded(self) -> bool:
        """True if so many samples wait that complete windows should be taken."""
        return len(self._stacks) > MOST_WAITING // 2

    def take_dropped(self) -> int:
        """How many samples were dropped, as too many, since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def take(self, end_ns: int) -> WindowStacks:
        """Removes and returns the samples that were taken before `end_ns`."""
        self._name()
        before = self._waiting["segment"]["t0_ns"] < end_ns
        before[len(self._stacks) :] = False
        ended = self._waiting[before]
        stacks = list(compress(self._stacks, before.tolist()))
        self._stacks = list(compress(self._stacks, (~before).tolist()))
        self._waiting = self._waiting[~before]
        return WindowStacks(_as_sums(ended), stacks)


def _as_sums(samples: Records) -> Records:
    """Gives each sample the key that the kernel's sums would have (fill_key() in
    bpf/core/sums.bpf.h).
    """
    sums, segments = np.zeros(len(samples), AGGREGATE), samples["segment"]
    for name in ("shape", "tags", "naming"):
        sums[name] = samples[name]
    for name in ("owner_kind", "server"):
        sums[name] = segments[name]
    is_server = segments["owner_kind"] == OwnerKind.SERVER
    for name in ("tgid", "pid"):
        sums[name] = np.where(is_server, segments[name], 0)
    return sums
