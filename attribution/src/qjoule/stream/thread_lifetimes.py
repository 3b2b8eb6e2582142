# SPDX-License-Identifier: Apache-2.0
"""The life of one thread, from fork to exit, and the names it had in it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from qjoule.trace.columns import Array
from qjoule.trace.vocabulary import UNKNOWN_COMM, thread_role

#: A new thread carries its creator's name. A rename within this time counts as its first name.
NAMING_NS = 100_000_000
NAMES_MAX = 64  #: names of one life kept apart; a thread may choose any name


@dataclass(slots=True)
class Name:
    """A thread's name for some time."""

    comm: str = UNKNOWN_COMM
    role: str = ""  #: its name as a server's thread, before it ran another program
    role_before: str = ""
    owners: dict[tuple[int, int], int] = field(default_factory=dict)  #: (kind, server) to id


@dataclass(slots=True)
class ThreadLifetime:
    """One life of a thread.

    `begin_ns` None: it began before anything recorded. `settled`: its begin was announced, by a
    fork or because the thread was alive before the trace.
    """

    pid: int
    tgid: int
    begin_ns: int | None
    settled: bool = False
    end_ns: int | None = None
    first_seen_ns: int | None = None
    last_batch: int = 0  #: number of the last batch of segments with this thread, from 1
    #: in order of time; a name may occur twice
    names: list[Name] = field(default_factory=lambda: [Name()])
    since_ns: list[int] = field(default_factory=list)  #: when each name was taken, except the first
    by_role: dict[str, Name] = field(default_factory=dict)  #: only if there were several

    @property
    def name(self) -> Name:
        """The latest name."""
        return self.names[-1]

    @property
    def is_servers(self) -> bool:
        """Whether the thread belonged to a server at some time."""
        return any(name.role or any(server for _, server in name.owners) for name in self.all_names)

    @property
    def all_names(self) -> list[Name]:
        return list(self.by_role.values()) or self.names

    def rename(self, t_ns: int, comm: str, process_comm: str) -> bool:
        """Records a new name. Returns whether the name stands for different work.

        It does not if only a number in it differs, or if it is the first name of a young thread.
        Nor for a process: it is renamed when it runs a program, which has an event of its own.
        """
        name = self.name
        if comm == name.comm or UNKNOWN_COMM in (name.comm, comm or UNKNOWN_COMM):
            return False
        is_young = self.begin_ns is not None and t_ns < self.begin_ns + NAMING_NS
        if self.pid == self.tgid or (is_young and not self.by_role):
            return False
        role, before = thread_role(comm, process_comm), thread_role(name.comm, process_comm)
        by_role = self.by_role or {before: name}
        if role == before or (role not in by_role and len(by_role) >= NAMES_MAX):
            return False
        place = bisect_right(self.since_ns, t_ns)
        self.since_ns.insert(place, t_ns)
        self.names.insert(place + 1, by_role.setdefault(role, Name(comm, comm)))
        self.by_role = by_role
        return True

    def is_one(self, since_ns: int) -> bool:
        """Whether the thread had begun by `since_ns` and has had only one name since."""
        if self.begin_ns is not None and self.begin_ns > since_ns:
            return False
        return not self.since_ns or self.since_ns[-1] <= since_ns

    def called(self, t_ns: Array) -> Array:
        """For each time, the index in `names` of the name at that time."""
        return np.searchsorted(np.array(self.since_ns, np.int64), t_ns.astype(np.int64), "right")

    def forget(self, before_ns: int) -> None:
        """Drops names that were used only before `before_ns`."""
        outdated = bisect_right(self.since_ns, before_ns)
        del self.since_ns[:outdated], self.names[:outdated]
