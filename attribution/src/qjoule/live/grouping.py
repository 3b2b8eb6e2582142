# SPDX-License-Identifier: Apache-2.0
"""One grouping of a live stream: its labels, its ledgers, and the calls that ended.

There are two ledgers side by side: one for the current interval, one for the total since the last
reset. Groups are bounded: clients may send ever new shapes and values of tags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qjoule.engine.keys import EVERYTHING, TAG, Selection
from qjoule.engine.live import from_aggregates
from qjoule.engine.live_calls import LiveCalls
from qjoule.engine.live_groups import LiveGroups
from qjoule.engine.live_owners import LiveNames, Records, identities
from qjoule.live.sampled_stacks import GroupStacks, Stacks, WindowStacks
from qjoule.live.tagged_sums import SumTags
from qjoule.live.window_assembler import Chunk
from qjoule.model.account import Account
from qjoule.model.arrays import F64, Anomalies, Machine, Renumbering, WindowBatch
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.span_sums import Roles
from qjoule.model.spans import Learned, apply_regression_costs, learn
from qjoule.servers.decoding import SERVING_THREADS
from qjoule.stream.context import Watching
from qjoule.stream.names import Names


class IntervalLedgers:
    """`new_account` makes an empty account of the session's series, packages and policy.

    Both ledgers, and the interval's open windows, are split by what the account has learned so far.
    """

    def __init__(
        self, new_account: Callable[[], Account], has_counted: Callable[[], bool] = lambda: True
    ) -> None:
        """`has_counted`: true if there are requests without CPU time, whose costs are learned."""
        self._new_account, self._has_counted = new_account, has_counted
        self._account = new_account()
        self._batches: list[WindowBatch] = []  #: of the current interval
        self._moves: list[tuple[int, int]] = []
        self._total: Ledger | None = None
        self._interval: Ledger | None = None
        self._learned: dict[str, Learned] = {}  #: costs of requests, learned from the total

    @property
    def total(self) -> Ledger:
        if self._total is None:
            self._total = self._account.snapshot()
            self._learned = learn(self._total)
            apply_regression_costs(self._total, self._learned)
        return self._total

    @property
    def interval(self) -> Ledger:
        if self._interval is None:
            if self._has_counted():
                _ = self.total  # the costs of requests are learned from the whole total
            self._interval = self._account.split(self._batches)
            for source, target in self._moves:
                self._interval.move(source, target)
            apply_regression_costs(self._interval, self._learned)
        return self._interval

    def add(self, batch: WindowBatch) -> None:
        self._batches.append(batch)
        self.catch_up(batch)

    def catch_up(self, batch: WindowBatch) -> None:
        """Adds windows that earlier intervals have already shown."""
        self._account.add(batch)
        self._total = self._interval = None

    def move(self, source: int, target: int) -> None:
        """Moves everything of group `source` to group `target`."""
        self._account.move(source, target)
        self._moves.append((source, target))
        self._total = self._interval = None

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups in all sums."""
        self._account.renumber(renumbering)
        moved = renumbering.after(self._moves)
        self._batches = [moved.batch(batch) for batch in self._batches]
        self._moves.clear()
        self._total = self._interval = None

    def next_interval(self) -> None:
        self._batches, self._interval = [], None
        self._moves.clear()

    def reset(self) -> None:
        self._account, self._total = self._new_account(), None
        self.next_interval()


def live_names(
    names: Names,
    tags: Callable[[int], Mapping[str, str] | None] = lambda _shape: None,
    watch: Watching | None = None,
) -> LiveNames:
    """The names for labels of groups. `tags`: the tags of a shape of calls; None for a
    statement. `watch` names the processes of untraced servers."""

    def process(tgid: int) -> str:
        untraced = "" if watch is None else watch.untraced_now(tgid)
        return untraced or names.comm(tgid)

    return LiveNames(names.statement, names.server, process, names.comm, names.attach_mode, tags)


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
        self._last_used: I64 = np.zeros(0, np.int64)
        self._cpu_ns: F64 = np.zeros(0)

    def note(self, records: Records, group: I64) -> None:
        """Takes records with their group numbers."""
        missing = int(group.max(initial=-1)) + 1 - len(self._last_used)
        if missing > 0:
            self._last_used = np.append(self._last_used, np.zeros(missing, np.int64))
            self._cpu_ns = np.append(self._cpu_ns, np.zeros(missing))
        self._last_used[group] = self._interval
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
        group_count = len(self._last_used)
        by_kind: dict[str, list[int]] = {}
        for group, label in enumerate(labels[:group_count]):
            if may_forget(label):
                by_kind.setdefault(label.kind, []).append(group)
        for groups in by_kind.values():
            members = np.array(groups, np.int64)
            order = np.lexsort((self._cpu_ns[members], self._last_used[members]))
            goes[members[order[: max(len(members) - self._remembered, 0)]]] = True
        return goes

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups."""
        last_used = np.zeros(renumbering.groups, np.int64)
        np.maximum.at(last_used, renumbering.group[: len(self._last_used)], self._last_used)
        self._last_used, self._cpu_ns = last_used, renumbering.sums(self._cpu_ns)
        self._full_at = renumbering.groups + self._spare

    def next_interval(self) -> None:
        self._interval += 1


class Grouping:
    """`by`: as in `LiveGroups`. `new_account` makes an empty account of the session.

    `begin_ns`: its ledgers contain nothing from before this time.
    """

    def __init__(
        self,
        by: str,
        names: LiveNames,
        new_account: Callable[[Roles, list[GroupLabel]], Account],
        where: Selection = EVERYTHING,
        begin_ns: int = 0,
    ) -> None:
        self.by = by
        self.begin_ns = begin_ns
        self._groups = LiveGroups(names, by, where)
        roles = Roles(self._groups.index.labels, SERVING_THREADS)
        self._ledgers = IntervalLedgers(
            lambda: new_account(roles, self.labels),
            lambda: any(label.is_counted for label in self.labels),
        )
        self._interval_calls, self._total_calls = LiveCalls(), LiveCalls()
        self._stacks = GroupStacks()  #: of the interval
        self._roles = roles
        self._lru = GroupLru()

    @property
    def labels(self) -> list[GroupLabel]:
        return self._groups.index.labels

    @property
    def by_tag(self) -> bool:
        return self.by.startswith(TAG)

    def sums(self, whole: bool) -> tuple[Ledger, LiveCalls]:
        """The sums since the last reset, or of the last interval."""
        if whole:
            return self._ledgers.total, self._total_calls
        return self._ledgers.interval, self._interval_calls

    def add_chunk(
        self,
        chunk: Chunk,
        calls: Records,
        tagging: SumTags,
        samples: WindowStacks | None,
        *,
        machine: Machine,
        first: int,
        anomalies: Anomalies | None,
    ) -> None:
        """Adds complete windows, of which the first has the number `first`.

        `calls`: client-reported calls to count. `tagging`: tags of the chunk's sums. `samples`: the
        windows' stacks. `anomalies`: counts what the sums contradict; None: another grouping does.
        """
        sums = np.concatenate([chunk.aggregates, calls]) if len(calls) else chunk.aggregates
        reads_tags = self._groups.reads_tags  # a query's group may depend on its tags
        owners, which = identities(sums, tagging.with_calls(calls) if reads_tags else None)
        numbers = self._groups.numbers(owners, tagging.tags)
        group = numbers[which]
        if samples is not None:  # before `_add`, which may renumber the groups
            by_owner = dict(zip(owners, numbers.tolist(), strict=True))
            self._stacks.add(samples.groups(by_owner, by_tags=reads_tags), samples.stacks)
        batch = from_aggregates(
            sums,
            group,
            chunk.energy,
            machine,
            first=first,
            lost_ns=chunk.lost_ns,
            awake_ns=chunk.awake_ns,
            stolen=chunk.stolen,
            anomalies=anomalies,
        )
        if self.by_tag:
            is_counted = np.ones(len(sums), bool)
            is_counted[: len(tagging.counts)] = tagging.counts
            sums, group = sums[is_counted], group[is_counted]
        self._add(batch, sums, group)

    def _add(self, batch: WindowBatch, records: Records, group: I64) -> None:
        """Adds windows, and the records they were made of with their group numbers."""
        self._ledgers.add(batch)
        self._interval_calls.add(records, group)
        self._total_calls.add(records, group)
        self._lru.note(records, group)
        if self._lru.full(len(self.labels)):
            self._forget()

    def take_stacks(self) -> Stacks:
        """The samples since the last call."""
        return self._stacks.take(self.labels)

    def resolve_pending_names(self) -> None:
        """Names the statements whose text has arrived since, and merges rows of one statement."""
        for source, target in self._groups.resolve_pending_names():
            for sums in (self._ledgers, self._total_calls, self._interval_calls, self._stacks):
                sums.move(source, target)

    def _forget(self) -> None:
        """Merges the groups that were unused for longest into common ones."""
        renumbering = self._groups.forget(self._lru.least(self.labels, self._groups.may_forget))
        self._roles.relearn()
        calls = self._total_calls, self._interval_calls
        for by_group in (self._ledgers, *calls, self._stacks, self._lru):
            by_group.renumber(renumbering)

    def reset(self) -> None:
        self._ledgers.reset()
        self._interval_calls, self._total_calls = LiveCalls(), LiveCalls()

    def next_interval(self) -> None:
        self._ledgers.next_interval()
        self._interval_calls = LiveCalls()
        self._lru.next_interval()
