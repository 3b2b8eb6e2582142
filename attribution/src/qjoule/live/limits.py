# SPDX-License-Identifier: Apache-2.0
"""Limits what a live view keeps and shows: clients may send ever new shapes and values of tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from qjoule.engine.live_records import Records
from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool
from qjoule.model.fold import bound_tags
from qjoule.model.labels import GroupLabel
from qjoule.model.renumbering import Renumbering
from qjoule.model.result import Attribution
from qjoule.model.same_total import with_total_error
from qjoule.snapshots import Controls, Snapshot, SnapshotSource

#: Number of groups of each kind (queries, roles of threads, processes) with their own row.
REMEMBERED = 2_048
#: This many more may appear before some are forgotten.
SPARE = 512


class GroupLru:
    """Per group: the interval in which something was last added, and the total CPU time."""

    def __init__(self, remembered: int = REMEMBERED, spare: int = SPARE) -> None:
        self._remembered, self._spare = remembered, spare
        self._full_at = remembered + spare
        self._interval = 1
        self._used: I64 = np.zeros(0, np.int64)
        self._cpu_ns: F64 = np.zeros(0)

    def note(self, records: Records, group: I64) -> None:
        """Takes records with their group numbers."""
        missing = int(group.max(initial=-1)) + 1 - len(self._used)
        if missing > 0:
            self._used = np.append(self._used, np.zeros(missing, np.int64))
            self._cpu_ns = np.append(self._cpu_ns, np.zeros(missing))
        self._used[group] = self._interval
        np.add.at(self._cpu_ns, group, records["cpu_ns"].astype(np.float64))

    def full(self, groups: int) -> bool:
        """Whether there are so many groups that some must be forgotten."""
        return groups >= self._full_at

    def least(self, labels: Sequence[GroupLabel], may_forget: Callable[[GroupLabel], bool]) -> Bool:
        """(groups,) the groups to forget: of each kind, all but the `remembered` most recently
        used.

        Among groups last used in the same interval, those with less CPU time go first.
        """
        goes = np.zeros(len(labels), np.bool_)
        known = len(self._used)
        by_kind: dict[str, list[int]] = {}
        for group, label in enumerate(labels[:known]):
            if may_forget(label):
                by_kind.setdefault(label.kind, []).append(group)
        for groups in by_kind.values():
            at = np.array(groups, np.int64)
            order = np.lexsort((self._cpu_ns[at], self._used[at]))
            goes[at[order[: max(len(at) - self._remembered, 0)]]] = True
        return goes

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups."""
        used = np.zeros(renumbering.groups, np.int64)
        np.maximum.at(used, renumbering.group[: len(self._used)], self._used)
        self._used, self._cpu_ns = used, renumbering.sums(self._cpu_ns)
        self._full_at = renumbering.groups + self._spare

    def next_interval(self) -> None:
        self._interval += 1


class LimitedValues:
    """A source's snapshots, with at most `most` values of each tag that rows are grouped by.

    Values with the most energy since the last reset are named, also in the interval, so that a
    row's name is the same in successive snapshots. `absolute`: rows' intervals contain the error of
    the total.
    """

    def __init__(self, source: SnapshotSource, most: int, *, absolute: bool = False) -> None:
        self.name = source.name
        self._shown = with_total_error if absolute else _as_it_is
        self._source = source
        self._most = most

    @property
    def groups(self) -> tuple[str, ...]:
        return self._source.groups

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        for one in self._source.snapshots(controls):
            total = bound_tags(one.total, self._most)
            interval = bound_tags(one.interval, self._most, one.total)
            yield replace(one, interval=self._shown(interval), total=self._shown(total))

    def close(self) -> None:
        self._source.close()


def _as_it_is(found: Attribution) -> Attribution:
    return found
