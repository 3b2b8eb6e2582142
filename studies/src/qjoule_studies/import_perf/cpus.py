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
        state = self._cpu(cpu, before, tgid)
        if state.tid is None:
            self._end_gap(cpu, state, t_ns)
        else:
            if state.tid != before:
                self._count_hidden(cpu, state, t_ns)
            self._close(cpu, state, t_ns)
        self._label(state, after, -1, t_ns)

    def saw(self, cpu: int, t_ns: int, tid: int, tgid: int) -> None:
        """Another kind of record shows that this thread runs; its switch-in may be missing."""
        state = self._cpu(cpu, tid, tgid)
        if state.tid is None:
            self._end_gap(cpu, state, t_ns)
            self._label(state, tid, tgid, t_ns)
        elif tid >= 0 and state.tid != tid:
            self._count_hidden(cpu, state, t_ns)
            self._close(cpu, state, t_ns)
            self._label(state, tid, tgid, t_ns)
        state.seen_ns = max(state.seen_ns, t_ns)

    def lose(self, cpu: int, t_ns: int, count: int, tid: int, tgid: int) -> None:
        """`count` records were lost between this CPU's last record and now; this thread runs
        now."""
        state = self._cpu(cpu, None, -1)
        if state.tid is not None:
            self._close(cpu, state, state.seen_ns)
            state.tid, state.since_ns = None, max(state.seen_ns, self._begin_ns)
        state.lost += count
        self._end_gap(cpu, state, t_ns)
        if tid >= 0:
            self._label(state, tid, tgid, t_ns)

    def claim(self, cpu: int, t_ns: int, tid: int, query: int) -> None:
        """From now on the thread running on this CPU works for this query (0: for none)."""
        self._query_of[tid] = query
        state = self._cpus.get(cpu)
        if state is None or state.tid != tid or state.query == query:
            return
        self._close(cpu, state, t_ns)
        state.query = query
        state.kind = OwnerKind.QUERY if query else OwnerKind.SERVER

    def works_for(self, tid: int, query: int) -> None:
        """From its next switch-in the thread works for this query; until then nothing changes."""
        self._query_of[tid] = query

    def forget(self, tid: int) -> None:
        """The thread has ended."""
        self._query_of.pop(tid, None)

    # ---- what is known --------------------------------------------------------------------------

    def count_busy_until(self, t_ns: int) -> int:
        """Counts CPU time up to now. Returns when the oldest open slice began: everything before
        that has been sent. Open slices are not cut here, because they may turn out to be
        lost.
        """
        first_ns = t_ns
        for state in self._cpus.values():
            if state.tid is not None and state.kind != OwnerKind.IDLE:
                self._count_busy(state, t_ns)
                first_ns = min(first_ns, state.since_ns)
        return first_ns

    def finish(self, t_ns: int) -> None:
        """Ends the trace. A CPU without any record may have done anything."""
        for cpu, state in self._cpus.items():
            if state.tid is not None:
                self._close(cpu, state, t_ns)
        for cpu in self._packages:
            state = self._cpu(cpu, None, -1)
            if state.tid is None and t_ns > state.since_ns:
                state.lost += not state.lost
                self._end_gap(cpu, state, t_ns)

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
        state = self._cpus.get(cpu)
        if state is None:
            state = _Cpu(since_ns=self._begin_ns, package=self._packages.get(cpu, 0))
            state.seen_ns = self._begin_ns
            self._cpus[cpu] = state
            if tid is not None and tid >= 0:
                self._label(state, tid, tgid, self._begin_ns)
        return state

    def _label(self, state: _Cpu, tid: int, tgid: int, t_ns: int) -> None:
        state.tid, state.since_ns = tid, t_ns
        state.seen_ns = max(state.seen_ns, t_ns)
        if tid == _IDLE_TID:
            state.kind, state.query, state.server, state.tgid = OwnerKind.IDLE, 0, 0, 0
            return
        task = self._tasks.of(tid, tgid)
        state.tgid, state.server, state.kind = task.tgid, task.server, task.kind
        state.query = self._query_of.get(tid, 0) if task.server else 0
        if state.query:
            state.kind = OwnerKind.QUERY

    def _close(self, cpu: int, state: _Cpu, t_ns: int) -> None:
        t0_ns = max(state.since_ns, self._begin_ns)
        state.since_ns = max(state.since_ns, t_ns)
        if state.kind == OwnerKind.IDLE or state.tid is None or t_ns <= t0_ns:
            return
        query = state.query if state.kind == OwnerKind.QUERY else 0
        self._segments.append(
            (t0_ns, t_ns, query, state.tid, state.tgid, cpu, state.server, state.kind, 0, 0)
        )
        self._count_busy(state, t_ns, t0_ns)

    def _count_busy(self, state: _Cpu, t_ns: int, t0_ns: int | None = None) -> None:
        since_ns = state.since_ns if t0_ns is None else t0_ns
        more_ns = t_ns - max(since_ns, state.counted_ns, self._begin_ns)
        if more_ns > 0:
            self.busy_ns[state.package] = self.busy_ns.get(state.package, 0) + more_ns
        state.counted_ns = max(state.counted_ns, t_ns)

    # ---- loss -----------------------------------------------------------------------------------

    def _end_gap(self, cpu: int, state: _Cpu, t_ns: int) -> None:
        """Counts the time since the thread was last known as lost. The loss is reported at both
        ends, because readers spread it evenly between two records.
        """
        since_ns = max(state.since_ns, self._begin_ns)
        if t_ns <= since_ns:
            return
        gap_ns = t_ns - since_ns
        self._losses.append((since_ns, state.lost, state.lost_ns, cpu, Loss.SEGMENT))
        state.lost_ns += gap_ns
        new_ns = max(t_ns - max(since_ns, state.counted_ns), 0)
        self.unknown_ns[state.package] = self.unknown_ns.get(state.package, 0) + new_ns
        self._losses.append((t_ns, state.lost, state.lost_ns, cpu, Loss.SEGMENT))
        state.since_ns = t_ns

    def _count_hidden(self, cpu: int, state: _Cpu, t_ns: int) -> None:
        """Counts a switch that has no record: its time stays with the thread seen last."""
        state.hidden += 1
        if t_ns >= self._begin_ns:
            self._losses.append((t_ns, state.hidden, 0, cpu, Loss.SWITCH))


def package_of(cpus: Iterable[tuple[int, int]]) -> dict[int, int]:
    """(CPU, package) pairs as `Cpus` takes them."""
    return dict(cpus)
