# SPDX-License-Identifier: Apache-2.0
"""Threads by number: their owners, and the TASK records that the tracer would have sent.

Their number is bounded by the machine's: a thread is forgotten a while after its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.api.capture import TASK, OwnerKind, TaskEvent
from qjoule.api.traces import Array
from qjoule_studies.import_perf import sidebands
from qjoule_studies.import_perf.imported import Imported
from qjoule_studies.import_perf.lines import Record

_KTHREADD = 2
_ENDED_MAX = 4_096  #: that are remembered for their last segment
TASKS_MAX = 1 << 22


@dataclass(slots=True)
class Task:
    tgid: int
    kind: int  #: OwnerKind, but for queries
    server: int = 0
    parent_tgid: int = 0
    comm: bytes = b""


class Tasks:
    """`servers` and `tracers` as they are known from the start."""

    def __init__(self, servers: Sequence[Imported], tracers: set[int], begin_ns: int) -> None:
        self._server_of = {tgid: server.id for server in servers for tgid in server.tgids}
        self._tracers = tracers
        self._begin_ns = begin_ns
        self._by_tid: dict[int, Task] = {}
        self._ended: deque[int] = deque()
        self._rows: list[tuple[object, ...]] = []

    def of(self, tid: int, tgid: int = -1) -> Task:
        """The thread; an unannounced one is taken for a process of its own."""
        task = self._by_tid.get(tid)
        if task is None or (tgid > 0 and task.tgid != tgid):
            task = self._new(tgid if tgid > 0 else tid, tid, 0)
        return task

    def take(self, record: Record) -> bool:
        """Takes in a FORK, COMM or EXIT. False: it contradicts itself."""
        if record.event == b"COMM":
            named = sidebands.name(record)
            if named is None:
                return False
            self._named(record.t_ns, named)
            return True
        of = sidebands.family(record)
        if of is None:
            return False
        if record.event == b"FORK":
            self._forked(record.t_ns, of)
        else:
            self._exited(record.t_ns, of)
        return True

    def take_records(self) -> Array:
        """TASK records since the last call."""
        rows, self._rows = self._rows, []
        return np.array(rows, TASK)

    def _forked(self, t_ns: int, of: sidebands.Family) -> None:
        task = self._new(of.tgid, of.tid, of.parent_tgid)
        parent = self._by_tid.get(of.parent_tid)
        if parent is not None:
            task.comm = parent.comm
        if t_ns:
            self._tell(t_ns, of.tid, task, TaskEvent.FORK)

    def _named(self, t_ns: int, named: sidebands.Name) -> None:
        task = self._by_tid.get(named.tid)
        if task is None or task.tgid != named.tgid:
            task = self._new(named.tgid, named.tid, 0)
        before, task.comm = task.comm, named.comm
        if not t_ns:
            self._tell(self._begin_ns, named.tid, task, TaskEvent.ALIVE)
        elif named.is_exec:
            if task.server and named.tgid not in self._server_of and before != named.comm:
                task.server, task.kind = 0, OwnerKind.PROCESS  # it runs another program
            self._tell(t_ns, named.tid, task, TaskEvent.EXEC)
        else:
            self._tell(t_ns, named.tid, task, TaskEvent.RENAME)

    def _exited(self, t_ns: int, of: sidebands.Family) -> None:
        task = self._by_tid.get(of.tid)
        if task is None:
            return
        self._tell(t_ns, of.tid, task, TaskEvent.EXIT)
        self._ended.append(of.tid)
        if len(self._ended) > _ENDED_MAX:
            gone = self._ended.popleft()
            if gone not in self._ended:
                self._by_tid.pop(gone, None)

    def _new(self, tgid: int, tid: int, parent_tgid: int) -> Task:
        main = self._by_tid.get(tgid) if tid != tgid else None
        if main is not None:
            task = Task(tgid, main.kind, main.server, main.parent_tgid)
        else:
            task = Task(tgid, OwnerKind.PROCESS, 0, parent_tgid)
            task.server = self._server_of.get(tgid) or self._server_of.get(parent_tgid, 0)
            if task.server:
                task.kind = OwnerKind.SERVER
            elif _KTHREADD in (tgid, parent_tgid):
                task.kind = OwnerKind.KERNEL
            elif tgid in self._tracers:
                task.kind = OwnerKind.TRACER
        if len(self._by_tid) < TASKS_MAX:
            self._by_tid[tid] = task
        return task

    def _tell(self, t_ns: int, tid: int, task: Task, event: TaskEvent) -> None:
        self._rows.append(
            (t_ns, tid, task.tgid, task.parent_tgid, task.server, event, task.kind, task.comm)
        )
