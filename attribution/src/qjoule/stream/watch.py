# SPDX-License-Identifier: Apache-2.0
"""Notices servers that go dark: a traced one that exits or hides sessions by TLS or compression,
and a known one that runs untraced.

The kernel side reports every process that begins, executes a program or ends. It marks those of
traced servers. A process without that mark may still be a server: one that was upgraded in place,
or that starts from another root directory. Its name says so first, and `Lookout` confirms it.
Recordings and the live view both feed their task events and read `changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from qjoule.contract import OwnerKind, SessionEvent, TaskEvent
from qjoule.stream.context import (
    Candidate,
    Followed,
    Follower,
    NoFollower,
    Traced,
    untraced_cpu_ns,
)
from qjoule.trace.columns import Array
from qjoule.trace.meta import EXITED, FOLLOWED, HIDDEN, UNSEEN, UNTRACED, Change, Server

#: A server lives longer; `mariadbd --version` does not.
CONFIRM_NS = 1_000_000_000
#: Any user may name a program like a server, and start it again and again.
MAX_CHANGES, MAX_CANDIDATES, MAX_PROCESSES = 256, 256, 65_536
BEYOND = "others"  #: name of the last change: there were more than `MAX_CHANGES`


class Lookout(Protocol):
    """Recognises servers by what every user may read of a process."""

    def may_serve(self, comm: str) -> bool:
        """Whether a known server may run under this name."""

    def serves(self, pid: int, comm: str) -> bool:
        """Whether this process is a known server, not a tool with a server's name."""


class Watch:
    """Takes events of tasks and sessions; `changes` is what to report.

    Args:
        servers: those that are traced.
        chosen: the user chose processes (`--pid`). Other servers are then left out on purpose, so
            only one that may have succeeded a traced one is reported.
        reasons: why a process is not traced, where that is known.
        unseen: sessions that a traced server's attach mode misses, by its name.
        follower: attaches to servers that run untraced.

    `learnt` is called with each server that is followed.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        lookout: Lookout,
        *,
        chosen: bool = False,
        reasons: Mapping[int, str] | None = None,
        unseen: Mapping[str, str] | None = None,
        follower: Follower | None = None,
    ) -> None:
        self._traced = {server.id: Traced(server.name, server.no_symbol) for server in servers}
        self._lookout = lookout
        self._chosen = chosen
        self._reasons = dict(reasons or {})
        self._candidates: dict[int, Candidate] = {}  #: by the pid of their first process
        self._by_tgid: dict[int, Candidate] = {}  #: of ended processes, too
        self._confirmed: list[Candidate] = []
        self._beyond = False
        self._follower = follower or NoFollower()
        self._followed: list[Change] = []
        self.learnt: list[Callable[[Server], object]] = []
        self._unseen = [Change(UNSEEN, name, why=why) for name, why in (unseen or {}).items()]
        self.changes: tuple[Change, ...] = tuple(self._unseen)
        self.news = 0  #: number of changes other than of CPU time

    def tasks(self, records: Array) -> None:
        """Takes in task events (`contract.TASK`), in whatever order they arrive."""
        of_interest = (records["server"] != 0) | (records["owner_kind"] == OwnerKind.PROCESS)
        leaders = records[(records["pid"] == records["tgid"]) & of_interest]
        leaders = leaders[np.argsort(leaders["t_ns"], kind="stable")]
        for t_ns, pid, _, parent, server, event, _, comm in leaders.tolist():
            if server:
                self._apply_traced(t_ns, pid, server, event, comm.decode("utf-8", "replace"))
            else:
                self._leave_server(t_ns, pid, event)
                self._apply_other(t_ns, pid, parent, event, comm.decode("utf-8", "replace"))

    def sessions(self, records: Array) -> None:
        """Takes in events of sessions (`contract.SESSION`)."""
        for record in records[records["event"] == SessionEvent.OPAQUE]:
            traced = self._traced.get(int(record["server"]))
            if traced is not None and traced.hidden_ns is None:
                traced.hidden_ns = int(record["t_ns"])
                self.news += 1

    def ran(self, segments: Array) -> None:
        """Counts the CPU time of segments (`contract.SEGMENT`) that belongs to untraced servers."""
        if not self._candidates and not self._confirmed:
            return
        for tgid, cpu_ns in untraced_cpu_ns(segments, self._by_tgid):
            self._by_tgid[tgid].cpu_ns += cpu_ns

    def process_of(self, tgid: int) -> str:
        """The name of the untraced server that a process belongs to; empty if there is none."""
        candidate = self._by_tgid.get(tgid)
        return candidate.process if candidate is not None and candidate.is_server else ""

    def untraced_now(self, tgid: int) -> str:
        """Like `process_of`, but empty once the server is traced or has ended."""
        candidate = self._by_tgid.get(tgid)
        return "" if candidate is None or candidate.until_ns is not None else self.process_of(tgid)

    def advance(self, t_ns: int, *, everything: bool = False) -> set[int]:
        """Confirms candidates, has them followed, and updates `changes`.

        `everything`: the stream ends, so young candidates are not waited for. Returns the processes
        that are newly known to belong to an untraced server.
        """
        for answer in self._follower.take():
            self._take_answer(answer)
        newly: set[int] = set()
        for candidate in list(self._candidates.values()):
            young = candidate.since_ns is not None and t_ns - candidate.since_ns < CONFIRM_NS
            if (young and not everything) or not self._is_reported(candidate):
                continue
            del self._candidates[candidate.pid]
            above = self._by_tgid.get(candidate.parent)
            if above is not None and above.comm == candidate.comm:
                # A worker, met before its server.
                self._join(above, candidate)
            elif self._lookout.serves(candidate.pid, candidate.comm):
                candidate.is_server = True
                self._confirm(candidate)
            else:
                self._drop(candidate)
                continue
            newly |= candidate.tgids
        self.changes = tuple(self._all_changes())
        return newly

    def _is_reported(self, candidate: Candidate) -> bool:
        """True for all, or with chosen processes for possible successors of traced ones."""
        exited = (traced.comms for traced in self._traced.values() if traced.exited_ns)
        return not self._chosen or any(candidate.comm in comms for comms in exited)

    def _join(self, above: Candidate, candidate: Candidate) -> None:
        above.tgids |= candidate.tgids
        above.cpu_ns += candidate.cpu_ns
        for tgid in candidate.tgids:
            self._by_tgid[tgid] = above

    def _confirm(self, candidate: Candidate) -> None:
        if candidate.since_ns is None:  # what ran before was left out on purpose
            candidate.why = self._reasons.get(candidate.pid, "")
        else:
            self._follower.ask(candidate.pid)
        if len(self._confirmed) >= MAX_CHANGES:
            self._beyond = True
            ended = (old for old in self._confirmed if old.until_ns is not None)
            if (oldest := next(ended, None)) is None:
                return
            self._confirmed.remove(oldest)
        self._confirmed.append(candidate)
        self.news += 1

    def _take_answer(self, answer: Followed) -> None:
        server = answer.server
        if server is None:
            candidate = self._by_tgid.get(answer.pid)
            if candidate is not None:
                candidate.why = answer.why
                self.news += 1
            return
        traced = self._traced.setdefault(server.id, Traced(server.name))
        name, traced.no_symbol = traced.name, server.no_symbol
        for learn in () if answer.attached else self.learnt:
            learn(replace(server, name=name))
        candidate = self._by_tgid.get(answer.pid)
        if answer.attached and len(self._followed) < MAX_CHANGES:
            as_what = f"{server.exe} {server.version}".strip()
            t_ns = None if candidate is None else candidate.until_ns
            self._followed.append(Change(FOLLOWED, name, t_ns, pid=answer.pid, why=as_what))
            self.news += 1

    def _all_changes(self) -> Iterable[Change]:
        changes = [*self._unseen]
        changes += [
            Change(EXITED, traced.name, t_ns, until_ns)
            for traced in self._traced.values()
            for t_ns, until_ns in traced.exited_ns
        ]
        changes += [
            Change(
                *(HIDDEN, traced.name, traced.hidden_ns, None, next(iter(traced.alive), 0)),
                why=traced.no_symbol,
            )
            for traced in self._traced.values()
            if traced.hidden_ns is not None and traced.no_symbol is not None
        ]
        changes += [
            Change(
                *(UNTRACED, candidate.comm, candidate.since_ns, candidate.until_ns, candidate.pid),
                *(candidate.process, candidate.cpu_ns, candidate.why),
            )
            for candidate in self._confirmed
        ]
        changes += self._followed
        yield from sorted(changes, key=lambda change: change.t_ns or 0)
        if self._beyond:
            yield Change(UNTRACED, BEYOND)

    def _apply_traced(self, t_ns: int, pid: int, server: int, event: int, comm: str) -> None:
        traced = self._traced.setdefault(server, Traced(f"server {server}"))
        if event == TaskEvent.EXIT:
            self._leave_server(t_ns, pid, event)
        elif event in (TaskEvent.FORK, TaskEvent.EXEC, TaskEvent.ALIVE):
            if not traced.alive and traced.exited_ns and traced.exited_ns[-1][1] is None:
                traced.exited_ns[-1] = (traced.exited_ns[-1][0], t_ns)
                self.news += 1
            traced.alive.setdefault(pid, None if event == TaskEvent.ALIVE else t_ns)
            traced.comms.add(comm)
            self._became_traced(t_ns, pid)

    def _became_traced(self, t_ns: int, pid: int) -> None:
        """Takes a process as a traced server's from now on; it keeps its former name until then."""
        candidate = self._by_tgid.get(pid)
        if candidate is None:
            return
        candidate.until_ns = candidate.until_ns or t_ns
        self.news += candidate.is_server
        if self._candidates.pop(candidate.pid, None):
            self._drop(candidate)

    def _leave_server(self, t_ns: int, pid: int, event: int) -> None:
        """A process of a traced server has ended, or runs another program from now on."""
        for traced in self._traced.values() if event in (TaskEvent.EXIT, TaskEvent.EXEC) else ():
            if pid not in traced.alive:
                continue
            since_ns = traced.alive.pop(pid)
            lived = since_ns is None or t_ns - since_ns >= CONFIRM_NS
            if lived and not traced.alive and len(traced.exited_ns) < MAX_CHANGES:
                traced.exited_ns.append((t_ns, None))
                self.news += 1

    def _apply_other(self, t_ns: int, pid: int, parent: int, event: int, comm: str) -> None:
        above = self._by_tgid.get(parent)
        if event == TaskEvent.EXIT:
            self._ended(t_ns, pid)
        elif event == TaskEvent.FORK:
            self._by_tgid.pop(pid, None)  # a reused pid
            if above is not None:
                self._make_room()
                above.tgids.add(pid)
                self._by_tgid[pid] = above
        elif event == TaskEvent.EXEC or (event == TaskEvent.ALIVE and not self._chosen):
            self._ended(t_ns, pid)
            self._by_tgid.pop(pid, None)
            if self._lookout.may_serve(comm) and len(self._candidates) < MAX_CANDIDATES:
                since_ns = t_ns if event == TaskEvent.EXEC else None
                candidate = Candidate(pid, comm, since_ns, parent, tgids={pid})
                self._candidates[pid] = self._by_tgid[pid] = candidate

    def _ended(self, t_ns: int, pid: int) -> None:
        candidate = self._by_tgid.get(pid)
        if candidate is None:
            return
        candidate.tgids.discard(pid)
        if candidate.tgids and pid == candidate.pid and pid in self._candidates:
            del self._candidates[pid]
            candidate.pid = min(candidate.tgids)  # it became a daemon: its child is the server
            self._candidates[candidate.pid] = candidate
        if not candidate.tgids:
            candidate.until_ns = t_ns
            self.news += candidate.is_server
            if self._candidates.pop(candidate.pid, None):
                self._drop(candidate)

    def _drop(self, candidate: Candidate) -> None:
        """Forgets a candidate that turned out to be no server."""
        processes = self._by_tgid.items()
        self._by_tgid = {tgid: other for tgid, other in processes if other is not candidate}

    def _make_room(self) -> None:
        """Forgets processes that have ended: their last segments have come long ago."""
        if len(self._by_tgid) >= MAX_PROCESSES:
            processes = self._by_tgid.items()
            self._by_tgid = {tgid: owner for tgid, owner in processes if tgid in owner.tgids}
