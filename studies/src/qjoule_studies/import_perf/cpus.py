# SPDX-License-Identifier: Apache-2.0
"""Who ran on each CPU, from one context switch to the next: `sched_switch` to segments.

It follows the rules of the BPF programs: a slice belongs to the thread that was switched in and to
the query that the thread works for. Time around lost records has no owner and is counted as lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from qjoule.api.traces import LOSS_COUNT, SEGMENT, Array, Loss, OwnerKind
from qjoule_studies.import_perf.tasks import Tasks

_IDLE_TID = 0


@dataclass(slots=True)
class _Cpu:
    """`tid` is None while the running thread is unknown, since `since_ns`."""

    tid: int | None = None
    since_ns: int = 0
    seen_ns: int = 0  #: its last record
    query: int = 0
    kind: int = OwnerKind.IDLE
    server: int = 0
    tgid: int = 0
    package: int = 0
    counted_ns: int = 0  #: up to here it is in `busy_ns`
    lost: int = 0
    lost_ns: int = 0
    hidden: int = 0


class Cpus:
    """`package_of`: the CPUs of the machine. The trace begins at `begin_ns`."""

    def __init__(self, package_of: dict[int, int], tasks: Tasks, begin_ns: int) -> None:
        self._tasks = tasks
        self._begin_ns = begin_ns
        self._packages = package_of
        self._cpus: dict[int, _Cpu] = {}
        self._query_of: dict[int, int] = {}  #: threads that work for one, and its id
        self._segments: list[tuple[int, ...]] = []
        self._losses: list[tuple[int, ...]] = []
        self.busy_ns = dict.fromkeys(sorted(set(package_of.values())), 0)  #: by package, so far
        self.unknown_ns = dict.fromkeys(self.busy_ns, 0)  #: likewise

    # ---- what happens ---------------------------------------------------------------------------

    def switch(self, cpu: int, t_ns: int, before: int, tgid: int, after: int) -> None:
        """Thread `before`, of process `tgid` (-1: not known), made way for thread `after`."""
        one = self._cpu(cpu, before, tgid)
        if one.tid is None:
            self._found_again(cpu, one, t_ns)
        else:
            if one.tid != before:
                self._count_hidden(cpu, one, t_ns)
            self._close(cpu, one, t_ns)
        self._label(one, after, -1, t_ns)

    def saw(self, cpu: int, t_ns: int, tid: int, tgid: int) -> None:
        """Another kind of record shows that this thread runs; its switch-in may be missing."""
        one = self._cpu(cpu, tid, tgid)
        if one.tid is None:
            self._found_again(cpu, one, t_ns)
            self._label(one, tid, tgid, t_ns)
        elif tid >= 0 and one.tid != tid:
            self._count_hidden(cpu, one, t_ns)
            self._close(cpu, one, t_ns)
            self._label(one, tid, tgid, t_ns)
        one.seen_ns = max(one.seen_ns, t_ns)

    def lose(self, cpu: int, t_ns: int, count: int, tid: int, tgid: int) -> None:
        """`count` records were lost between this CPU's last record and now; this thread runs
        now."""
        one = self._cpu(cpu, None, -1)
        if one.tid is not None:
            self._close(cpu, one, one.seen_ns)
            one.tid, one.since_ns = None, max(one.seen_ns, self._begin_ns)
        one.lost += count
        self._found_again(cpu, one, t_ns)
        if tid >= 0:
            self._label(one, tid, tgid, t_ns)

    def claim(self, cpu: int, t_ns: int, tid: int, query: int) -> None:
        """From now on the thread running on this CPU works for this query (0: for none)."""
        self._query_of[tid] = query
        one = self._cpus.get(cpu)
        if one is None or one.tid != tid or one.query == query:
            return
        self._close(cpu, one, t_ns)
        one.query = query
        one.kind = OwnerKind.QUERY if query else OwnerKind.SERVER

    def works_for(self, tid: int, query: int) -> None:
        """From its next switch-in the thread works for this query; until then nothing changes."""
        self._query_of[tid] = query

    def forget(self, tid: int) -> None:
        """The thread has ended."""
        self._query_of.pop(tid, None)

    # ---- what is known --------------------------------------------------------------------------

    def look(self, t_ns: int) -> int:
        """Counts CPU time up to now. Returns since when the oldest open slice runs: everything
        before that has been sent. Open slices are not cut here, because they may turn out to be
        lost.
        """
        first_ns = t_ns
        for one in self._cpus.values():
            if one.tid is not None and one.kind != OwnerKind.IDLE:
                self._count_busy(one, t_ns)
                first_ns = min(first_ns, one.since_ns)
        return first_ns

    def finish(self, t_ns: int) -> None:
        """Ends the trace. A CPU without any record may have done anything."""
        for cpu, one in self._cpus.items():
            if one.tid is not None:
                self._close(cpu, one, t_ns)
        for cpu in self._packages:
            one = self._cpu(cpu, None, -1)
            if one.tid is None and t_ns > one.since_ns:
                one.lost += not one.lost
                self._found_again(cpu, one, t_ns)

    def take_segments(self) -> Array:
        """SEGMENT records since the last call."""
        rows, self._segments = self._segments, []
        return np.array(rows, SEGMENT)

    def take_losses(self) -> Array:
        """LOSS records since the last call."""
        rows, self._losses = self._losses, []
        return np.array(rows, LOSS_COUNT)

    # ---- stretches ------------------------------------------------------------------------------

    def _cpu(self, cpu: int, tid: int | None, tgid: int) -> _Cpu:
        """The thread that runs at a CPU's first record has run there since the trace began."""
        one = self._cpus.get(cpu)
        if one is None:
            one = _Cpu(since_ns=self._begin_ns, package=self._packages.get(cpu, 0))
            one.seen_ns = self._begin_ns
            self._cpus[cpu] = one
            if tid is not None and tid >= 0:
                self._label(one, tid, tgid, self._begin_ns)
        return one

    def _label(self, one: _Cpu, tid: int, tgid: int, t_ns: int) -> None:
        one.tid, one.since_ns = tid, t_ns
        one.seen_ns = max(one.seen_ns, t_ns)
        if tid == _IDLE_TID:
            one.kind, one.query, one.server, one.tgid = OwnerKind.IDLE, 0, 0, 0
            return
        task = self._tasks.of(tid, tgid)
        one.tgid, one.server, one.kind = task.tgid, task.server, task.kind
        one.query = self._query_of.get(tid, 0) if task.server else 0
        if one.query:
            one.kind = OwnerKind.QUERY

    def _close(self, cpu: int, one: _Cpu, t_ns: int) -> None:
        t0_ns = max(one.since_ns, self._begin_ns)
        one.since_ns = max(one.since_ns, t_ns)
        if one.kind == OwnerKind.IDLE or one.tid is None or t_ns <= t0_ns:
            return
        query = one.query if one.kind == OwnerKind.QUERY else 0
        self._segments.append(
            (t0_ns, t_ns, query, one.tid, one.tgid, cpu, one.server, one.kind, 0, 0)
        )
        self._count_busy(one, t_ns, t0_ns)

    def _count_busy(self, one: _Cpu, t_ns: int, t0_ns: int | None = None) -> None:
        since_ns = one.since_ns if t0_ns is None else t0_ns
        more_ns = t_ns - max(since_ns, one.counted_ns, self._begin_ns)
        if more_ns > 0:
            self.busy_ns[one.package] = self.busy_ns.get(one.package, 0) + more_ns
        one.counted_ns = max(one.counted_ns, t_ns)

    # ---- loss -----------------------------------------------------------------------------------

    def _found_again(self, cpu: int, one: _Cpu, t_ns: int) -> None:
        """The time since the thread was last known has no owner. It is reported at both ends,
        because readers spread loss evenly between two records.
        """
        since_ns = max(one.since_ns, self._begin_ns)
        if t_ns <= since_ns:
            return
        gap_ns = t_ns - since_ns
        self._losses.append((since_ns, one.lost, one.lost_ns, cpu, Loss.SEGMENT))
        one.lost_ns += gap_ns
        new_ns = max(t_ns - max(since_ns, one.counted_ns), 0)
        self.unknown_ns[one.package] = self.unknown_ns.get(one.package, 0) + new_ns
        self._losses.append((t_ns, one.lost, one.lost_ns, cpu, Loss.SEGMENT))
        one.since_ns = t_ns

    def _count_hidden(self, cpu: int, one: _Cpu, t_ns: int) -> None:
        """A switch was not shown: the time stays with the thread that was seen last."""
        one.hidden += 1
        if t_ns >= self._begin_ns:
            self._losses.append((t_ns, one.hidden, 0, cpu, Loss.SWITCH))


def package_of(cpus: Iterable[tuple[int, int]]) -> dict[int, int]:
    """(CPU, package) pairs as `Cpus` takes them."""
    return dict(cpus)
