# SPDX-License-Identifier: Apache-2.0
"""Threads by number: their owners, and the TASK records that the tracer would have sent.

They come from perf's own records about tasks: who was born, renamed, ran a program, ended.

Their number is bounded by the machine's: a thread is forgotten a while after its end.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qjoule.api.traces import TASK, Array, OwnerKind, Server, TaskEvent
from qjoule_studies.import_perf.lines import Record

_KTHREADD = 2
_ENDED_MAX = 4_096  #: that are remembered for their last segment
TASKS_MAX = 1 << 22
_PAIR = rb"\(([0-9]{1,7}):([0-9]{1,7})\)"
_RELATIVES = re.compile(_PAIR + rb":" + _PAIR + rb"\s*\Z")
_COMM = re.compile(rb"(exec)?: ?(.*):([0-9]{1,7})/([0-9]{1,7})\s*\Z", re.DOTALL)
_LOST = re.compile(rb"lost ([0-9]{1,18})\s*\Z")
COMM_BYTES = 15


class Family(NamedTuple):
    """Fields of a FORK or EXIT record."""

    tgid: int
    tid: int
    parent_tgid: int
    parent_tid: int


class Name(NamedTuple):
    """Fields of a COMM record."""

    tgid: int
    tid: int
    comm: bytes
    is_exec: bool


def parse_family(record: Record) -> Family | None:
    """None: it is none."""
    match = _RELATIVES.match(record.payload)
    return Family(*map(int, match.groups())) if match else None


def parse_name(record: Record) -> Name | None:
    """None: it is none."""
    match = _COMM.match(record.payload)
    if match is None:
        return None
    ran, comm, tgid, tid = match.groups()
    return Name(int(tgid), int(tid), comm[:COMM_BYTES], ran is not None)


def parse_lost(record: Record) -> int | None:
    """How many records a LOST reports as lost; None: it gives no number."""
    match = _LOST.match(record.payload)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class Imported:
    """A server in a recording of perf's.

    `tgids`: its known main processes; their children belong to it too.
    """

    id: int
    flavour: str
    tgids: frozenset[int]
    label: str
    version: str = ""
    pool: bool = False  #: sessions change threads

    @property
    def meta(self) -> Server:
        """The server's entry in the trace, as long as none of its probes was hit."""
        return Server(
            id=self.id,
            name=self.label,
            kind=self.flavour,
            version=self.version,
            attach_mode="none",
            reason="imported from perf: none of its probes was hit",
        )


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
            named = parse_name(record)
            if named is None:
                return False
            self._named(record.t_ns, named)
            return True
        of = parse_family(record)
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

    def _forked(self, t_ns: int, of: Family) -> None:
        task = self._new(of.tgid, of.tid, of.parent_tgid)
        parent = self._by_tid.get(of.parent_tid)
        if parent is not None:
            task.comm = parent.comm
        if t_ns:
            self._tell(t_ns, of.tid, task, TaskEvent.FORK)

    def _named(self, t_ns: int, named: Name) -> None:
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

    def _exited(self, t_ns: int, of: Family) -> None:
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
